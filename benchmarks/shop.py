"""Event logs of a web shop: one JSON file a server, products skewed as in real shops.

Equal arguments give equal bytes. Events of a server are written when they are over, so its log
is nearly, but not quite, in the order of its timestamps.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

COLUMNS = {
    "ts": "TIMESTAMP",
    "server": "VARCHAR",
    "user": "VARCHAR",
    "product": "VARCHAR",
    "store": "VARCHAR",
    "event": "VARCHAR",
    "clicks": "BIGINT",
    "price": "DOUBLE",
    "latency_ms": "BIGINT",
    "path": "VARCHAR",
}
START = datetime(2026, 3, 2, 8, tzinfo=UTC)
FILE = "events.jsonl"

_STORES = ("books", "garden", "video_games", "kitchen", "music", "sports", "toys", "clothes")
_EVENTS = ("view", "search", "cart", "buy")
_EVENT_SHARES = (0.7, 0.18, 0.09, 0.03)
_ZIPF = 1.0
_USERS = 400_000
_ROWS_AT_ONCE = 250_000


@dataclass(frozen=True)
class Shop:
    """How much log to write. Products are shared by all servers."""

    records: int = 2_000_000
    servers: int = 8
    products: int = 10_000
    hours: float = 2.0
    seed: int = 7


def write_shop(folder: Path, shop: Shop) -> int:
    """Writes `{server}/events.jsonl` for every server; returns the size of all in bytes."""
    return sum(_write_server(folder, shop, server) for server in range(shop.servers))


def _write_server(folder: Path, shop: Shop, server: int) -> int:
    name = f"web-{server + 1}"
    path = folder / name / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.register("events", pa.Table.from_batches(_events(shop, server), _CODES))
    con.execute(f"COPY ({_lines_sql(name)}) TO '{path}' (FORMAT json)")
    con.close()
    return path.stat().st_size


_CODES = pa.schema(
    [
        ("us", pa.int64()),
        ("user", pa.int32()),
        ("rank", pa.int32()),
        ("event", pa.int8()),
        ("clicks", pa.int64()),
        ("cents", pa.int32()),
        ("latency_ms", pa.int64()),
    ]
)


def _events(shop: Shop, server: int) -> Iterator[pa.RecordBatch]:
    """The server's events in log order, as numbers."""
    random = np.random.default_rng([shop.seed, server])
    shares = np.cumsum(1 / np.arange(1, shop.products + 1) ** _ZIPF)
    shares /= shares[-1]
    kinds = np.cumsum(_EVENT_SHARES)
    count = shop.records // shop.servers + (server < shop.records % shop.servers)
    start_us, span_us = int(START.timestamp()) * 1_000_000, shop.hours * 3.6e9
    for first in range(0, count, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, count - first)
        latency = random.gamma(2.0, 60.0, rows)
        over = (np.arange(first, first + rows) + random.random(rows)) * (span_us / count)
        begun = np.clip(over - latency * 1000, 0, span_us - 1)
        columns = [
            start_us + begun.astype(np.int64),
            random.integers(_USERS, size=rows, dtype=np.int32),
            np.searchsorted(shares, random.random(rows)).astype(np.int32),
            np.searchsorted(kinds, random.random(rows)).astype(np.int8),
            random.geometric(0.4, rows).astype(np.int64),
            random.integers(199, 9999, size=rows, dtype=np.int32),
            latency.astype(np.int64),
        ]
        yield pa.record_batch([pa.array(column) for column in columns], schema=_CODES)


def _lines_sql(server: str) -> str:
    stores = ", ".join(f"'{store}'" for store in _STORES)
    events = ", ".join(f"'{event}'" for event in _EVENTS)
    return f"""
        SELECT strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%gZ') AS ts,
               '{server}' AS server,
               'u' || "user" AS user,
               product,
               store,
               [{events}][event + 1] AS event,
               clicks,
               cents / 100 AS price,
               latency_ms,
               '/' || store || '/' || product || '?from=mail' AS path
        FROM (SELECT *, [{stores}][rank % {len(_STORES)} + 1] AS store,
                     printf('p%05d', rank) AS product
              FROM events)
    """


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="a new temporary one if not given")
    parser.add_argument("--records", type=int, default=Shop.records)
    parser.add_argument("--servers", type=int, default=Shop.servers)
    parser.add_argument("--products", type=int, default=Shop.products)
    parser.add_argument("--hours", type=float, default=Shop.hours)
    parser.add_argument("--seed", type=int, default=Shop.seed)
    given = vars(parser.parse_args())
    folder = given.pop("folder") or Path(tempfile.mkdtemp(prefix="muntin-shop-"))
    size = write_shop(folder, Shop(**given))
    print(json.dumps({"folder": str(folder), "bytes": size, **given}))


if __name__ == "__main__":
    main()
