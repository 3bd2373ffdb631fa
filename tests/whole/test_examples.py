"""Each example answers its question from real logs as plain Python does, record by record."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from muntin.api import results, run_on_spark
from muntin.language import program
from muntin.run.inline import windows_inline
from muntin.run.loop import Loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = Path(__file__).parents[3] / "shared" / "data"
FILES = sorted(EXAMPLES.glob("*.sql"))

Row = dict[str, Any]
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data/` as a user would lay it out."""
    if not DATA.is_dir():
        pytest.skip(f"the real logs are not here: no folder {DATA.parent.name}/{DATA.name}")
    root = tmp_path_factory.mktemp("examples")
    for source in (path for path in DATA.iterdir() if path.is_dir()):
        target = root / "data" / source.name
        target.mkdir(parents=True)
        for path in source.iterdir():
            if path.name.endswith(".tar.gz"):
                with tarfile.open(path) as archive:
                    archive.extractall(target, filter="data")
            else:
                (target / path.name).symlink_to(path)
    return root


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.stem)
def test_example(example: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    pipelines: list[Loop] = []
    rows: list[Row] = []
    for windows in windows_inline(program.load(example), done=pipelines.append):
        rows += windows.table().to_pylist()
    (pipeline,) = pipelines
    expected = ORACLES[example.stem]()
    assert pipeline.progress.records == expected.records
    assert pipeline.progress.bad == expected.bad
    assert pipeline.progress.late == {}
    assert rows
    assert [select(row, expected.rows[0]) for row in rows] == [
        {name: tolerant(name, value) for name, value in row.items()} for row in expected.rows
    ]


@pytest.mark.parametrize("name", ["azure_latest", "cars", "kafka", "wikipedia"])
def test_example_on_spark(
    name: str, spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    loaded = program.load(EXAMPLES / f"{name}.sql")
    for _ in run_on_spark(loaded, tmp_path, spark):
        pass
    (job,) = loaded.jobs
    expected = ORACLES[name]().rows
    assert [select(row, expected[0]) for row in results(job, tmp_path).to_pylist()] == [
        {column: tolerant(column, value) for column, value in row.items()} for row in expected
    ]


def test_all_examples_are_listed() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\S+\.sql)\]\((\S+)\) \|", table, re.MULTILINE)
    assert listed == [(path.name, path.name) for path in FILES]


def select(row: Row, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def tolerant(name: str, value: Any) -> Any:
    """Sums of floats differ in their last digits, and sketches by one percent."""
    if isinstance(value, float):
        return pytest.approx(value, rel=0.01 if name in ("p99_prompt", "median_mph") else 1e-9)
    return value


# Oracles: plain Python over the same files.


@dataclass(frozen=True)
class Expected:
    rows: list[Row]
    records: int
    bad: int = 0


@dataclass(frozen=True)
class Record:
    time: datetime
    fields: Any


Group = list[Any]


def grouped(
    records: Iterable[Record], key: Callable[[Any], Any], size: int, every: int | None = None
) -> dict[datetime, dict[Any, Group]]:
    """Records of every window, by key; lengths in seconds. Weeks begin on Mondays."""
    slide = every or size
    monday = 4 * DAY if slide % (7 * DAY) == 0 else 0
    found: dict[int, dict[Any, Group]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        last = int((record.time.timestamp() - monday) // slide * slide) + monday
        for start in range(last, last - size, -slide):
            found[start][key(record.fields)].append(record.fields)
    return {datetime.fromtimestamp(start, UTC): found[start] for start in sorted(found)}


def rows_of(
    windows: dict[datetime, dict[Any, Group]],
    finish: Callable[[Any, Group], Row | None],
    order: Callable[[Row], Any] = lambda row: 0,
    limit: int | None = None,
) -> list[Row]:
    rows: list[Row] = []
    for start, groups in windows.items():
        found = [row for key, group in groups.items() if (row := finish(key, group)) is not None]
        rows += [{"window_start": start} | row for row in sorted(found, key=order)[:limit]]
    return rows


def everything(_: Any) -> None:
    """The key of jobs without GROUP BY."""


def utc(text: str, form: str | None = None) -> datetime:
    time = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def lines(path: str) -> list[str]:
    content = Path(path).read_bytes()
    text = (gzip.decompress(content) if path.endswith(".gz") else content).decode()
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


def json_records(path: str, time: str) -> list[Record]:
    return [Record(utc(row[time]), row) for row in map(json.loads, lines(path))]


def csv_records(path: str, time: Callable[[dict[str, str]], datetime]) -> Iterator[Record]:
    return (Record(time(row), row) for row in csv.DictReader(lines(path)))


def matched(
    path: str, pattern: str, time: Callable[[re.Match[str]], datetime]
) -> tuple[list[Record], int]:
    """Records of the lines that match, and how many do not."""
    matches = [re.match(pattern, line) for line in lines(path)]
    return [Record(time(m), m) for m in matches if m], matches.count(None)


def distinct(values: Iterable[Any]) -> int:
    return len({value for value in values if value is not None})


def cars() -> Expected:
    golden = [json.loads(line) for line in lines("data/cars/hourly_by_event_type.json")]
    rows = [
        {"window_start": utc(r["hour"]), "event_type": r["event_type"], "rides": r["count"]}
        for r in golden
    ]
    rows.sort(key=lambda row: (row["window_start"], row["event_type"]))
    return Expected(rows, len(lines("data/cars/cars.json.gz")))


def wikipedia() -> Expected:
    records = json_records("data/wikipedia/wikiticker-2015-09-12-sampled.json.gz", "time")

    def finish(channel: str, group: Group) -> Row:
        robots = sum(edit["isRobot"] for edit in group)
        return {
            "channel": channel,
            "edits": len(group),
            "robot_share": robots / len(group),
            "people": distinct(edit["user"] for edit in group if not edit["isRobot"]),
            "characters_gained": sum(edit["delta"] for edit in group),
        }

    windows = grouped(records, lambda edit: edit["channel"], HOUR, 10 * MINUTE)
    rows = rows_of(windows, finish, lambda row: (-row["edits"], row["channel"]), 5)
    return Expected(rows, 39244)


def wikipedia_pulse() -> Expected:
    path = "data/wikipedia/wikiticker-2015-09-12-sampled.json.gz"
    people = [r for r in json_records(path, "time") if not r.fields["isRobot"]]
    kinds = {
        "10 minutes": (10 * MINUTE, 10 * MINUTE),
        "1 hour every 10 minutes": (HOUR, 10 * MINUTE),
        "1 day every 1 hour": (DAY, HOUR),
    }
    rows = []
    for number, (name, (size, every)) in enumerate(kinds.items()):
        for start, groups in grouped(people, everything, size, every).items():
            (group,) = groups.values()
            end = start + timedelta(seconds=size)
            row = {
                "window_name": name,
                "window_start": start,
                "window_end": end,
                "edits": len(group),
                "characters_gained": sum(edit["delta"] for edit in group),
                "pages": distinct(edit["page"] for edit in group),
            }
            rows.append((end, number, row))
    return Expected([row for *_, row in sorted(rows, key=lambda item: item[:2])], 39244)


def zeek_dns() -> Expected:
    records = json_records("data/zeek/dns.json.gz", "ts")

    def finish(client: str, group: Group) -> Row | None:
        unknown = [request for request in group if request.get("rcode_name") == "NXDOMAIN"]
        times = [request["rtt"] for request in group if "rtt" in request]
        row = {
            "client": client,
            "requests": len(group),
            "unknown": len(unknown),
            "names": distinct(request.get("query") for request in unknown),
            "median_ms": median(times) * 1000 if times else None,
        }
        return row if unknown else None

    windows = grouped(records, lambda request: request["id.orig_h"], 5 * MINUTE)
    rows = rows_of(windows, finish, lambda row: (-row["unknown"], row["client"]), 10)
    return Expected(rows, 53615)


def zeek_weird() -> Expected:
    records = json_records("data/zeek/weird.json.gz", "ts")

    def finish(key: tuple[str, str], group: Group) -> Row:
        machines = Counter(event["id.orig_h"] for event in group if "id.orig_h" in event)
        loudest = min(machines, key=lambda name: (-machines[name], name), default=None)
        return {
            "name": key[0],
            "analyzer": key[1],
            "events": len(group),
            "machines": len(machines),
            "loudest": loudest,
        }

    windows = grouped(records, lambda e: (e["name"], e.get("source", "unknown")), MINUTE)
    order = lambda row: (-row["events"], row["name"], row["analyzer"])  # noqa: E731
    return Expected(rows_of(windows, finish, order, 5), 24202)


def apache() -> Expected:
    pattern = r'(\S+) \S+ \S+ \[(.*?)\] "[^"]*" (\d+) (\S+) "[^"]*" "[^"]*"'
    form = "%d/%b/%Y:%H:%M:%S %z"
    records, bad = matched("data/apache/apache_logs.gz", pattern, lambda m: utc(m[2], form))

    def finish(_: None, group: Group) -> Row:
        statuses = [int(m[3]) for m in group]
        return {
            "requests": len(group),
            "visitors": distinct(m[1] for m in group),
            "bytes": sum(int(m[4]) for m in group if m[4] != "-"),
            "refused_share": sum(400 <= status < 500 for status in statuses) / len(group),
            "server_errors": sum(status >= 500 for status in statuses),
        }

    assert bad == 1
    return Expected(rows_of(grouped(records, everything, HOUR), finish), 9999, bad)


def kafka() -> Expected:
    records: list[Record] = []
    bad = 0
    for path in Path("data/kafka").glob("*/logs/server.log*"):
        for line in lines(str(path)):
            if line.startswith("[2016-"):
                time, level, message = re.split("] | ", line[1:], maxsplit=3)[1:]
                at = utc(f"{line[1:11]} {time.replace(',', '.')}")
                records.append(Record(at, (path.parts[2], at, level, message)))
            else:
                bad += 1

    def finish(broker: str, group: Group) -> Row | None:
        levels = Counter(level for _, _, level, _ in group)
        told = [(at, message) for _, at, level, message in group if level != "INFO"]
        row = {
            "broker": broker,
            "lines": len(group),
            "warnings": levels["WARN"],
            "errors": levels["ERROR"] + levels["FATAL"],
            "latest": max(told)[1] if told else None,
        }
        return row if told else None

    windows = grouped(records, lambda fields: fields[0], HOUR)
    order = lambda row: (-row["errors"], -row["warnings"], row["broker"])  # noqa: E731
    return Expected(rows_of(windows, finish, order), len(records), bad)


def nasa() -> Expected:
    fields = [line.split("\t") for line in lines("data/nasa/nasa_19950701.tsv.gz")[1:]]
    records = [Record(datetime.fromtimestamp(int(f[2]), UTC), f) for f in fields]
    pictures = (".gif", ".jpg", ".jpeg", ".xbm", ".mpg", ".wav")
    pages = [r for r in records if r.fields[5] == "200" and not r.fields[4].endswith(pictures)]

    def finish(url: str, group: Group) -> Row:
        return {
            "url": url,
            "hits": len(group),
            "readers": distinct(f[0] for f in group),
            "bytes": sum(int(f[6]) for f in group),
        }

    windows = grouped(pages, lambda f: f[4], 30 * MINUTE, 10 * MINUTE)
    rows = rows_of(windows, finish, lambda row: (-row["hits"], row["url"]), 10)
    return Expected(rows, len(records))


def taxi() -> Expected:
    paths = sorted(map(str, Path("data/taxi").glob("*.csv.gz")))
    trips = [r for p in paths for r in csv_records(p, lambda row: utc(row["pickup_datetime"]))]
    hours = timedelta(hours=1)

    def speed(trip: dict[str, str]) -> float | None:
        took = utc(trip["dropoff_datetime"]) - utc(trip["pickup_datetime"])
        timed = timedelta(minutes=1) <= took <= 6 * hours
        return float(trip["trip_distance"]) / (took / hours) if timed else None

    def finish(paid_by: str, group: Group) -> Row:
        speeds = sorted(mph for trip in group if (mph := speed(trip)) is not None)
        return {
            "paid_by": paid_by,
            "trips": len(group),
            "dollars": sum(float(trip["total_amount"]) for trip in group),
            "tip_share": sum(float(trip["tip_amount"]) for trip in group)
            / sum(float(trip["fare_amount"]) for trip in group),
            "median_mph": speeds[ceil(len(speeds) / 2) - 1] if speeds else None,
        }

    by = {"1": "card", "2": "cash"}
    windows = grouped(trips, lambda trip: by.get(trip["payment_type"], "other"), 7 * DAY)
    return Expected(rows_of(windows, finish, lambda row: row["paid_by"]), 60000)


def retail() -> Expected:
    rows: list[Row] = []
    lines_: list[Record] = []
    for path in sorted(map(str, Path("data/retail").glob("*.csv"))):
        lines_ += csv_records(path, lambda row: utc(row["InvoiceDate"]))
    sales = [
        Record(r.time, (r.fields, int(r.fields["Quantity"]), Decimal(r.fields["UnitPrice"])))
        for r in lines_
        if not r.fields["InvoiceNo"].startswith("C") and float(r.fields["UnitPrice"]) > 0
    ]
    windows = grouped(sales, lambda sale: sale[0]["StockCode"], 7 * DAY, DAY)
    for start, products in windows.items():
        earned = {name: sum(n * price for _, n, price in products[name]) for name in products}
        for name in sorted(earned, key=lambda name: (-earned[name], name))[:10]:
            group = products[name]
            rows.append(
                {
                    "window_start": start,
                    "product": name,
                    "description": min(s["Description"] for s, _, _ in group if s["Description"]),
                    "sold": sum(n for _, n, _ in group),
                    "pounds": earned[name],
                    "invoices": distinct(s["InvoiceNo"] for s, _, _ in group),
                }
            )
    return Expected(rows, len(lines_))


def loans() -> Expected:
    def clock(loan: dict[str, str]) -> datetime:
        month = utc(f"01-{loan['issue_month']}", "%d-%b-%Y")
        return month + timedelta(days=int(loan["total_credit_limit"]) % 28)

    def finish(grade: str, group: Group) -> Row:
        lent = sum(int(loan["loan_amount"]) for loan in group)
        owed = sum(int(loan["loan_amount"]) * float(loan["interest_rate"]) for loan in group)
        states = [loan["loan_status"] for loan in group]
        return {
            "grade": grade,
            "loans": len(group),
            "lent": lent,
            "mean_rate": owed / lent,
            "in_trouble": sum(s.startswith("Late") or s == "Charged Off" for s in states),
        }

    records = csv_records("data/loans/loans_full_schema.csv.gz", clock)
    windows = grouped(records, lambda loan: loan["grade"], 7 * DAY)
    return Expected(rows_of(windows, finish, lambda row: row["grade"]), 10000)


def azure() -> Expected:
    path = "data/azure/AzureLLMInferenceTrace_code.csv"
    records = list(csv_records(path, lambda row: utc(row["TIMESTAMP"][:26])))

    def finish(_: None, group: Group) -> Row:
        prompts = sorted(int(request["ContextTokens"]) for request in group)
        return {
            "requests": len(group),
            "tokens_read": sum(prompts),
            "tokens_written": sum(int(request["GeneratedTokens"]) for request in group),
            "p99_prompt": float(prompts[ceil(len(prompts) * 0.99) - 1]),
        }

    return Expected(rows_of(grouped(records, everything, MINUTE, 10), finish), 8819)


def azure_latest() -> Expected:
    path = "data/azure/AzureLLMInferenceTrace_code.csv"
    requests = [r.fields for r in csv_records(path, lambda row: utc(row["TIMESTAMP"][:26]))]
    rows = []
    for start in range(-750, len(requests), 250):
        inside = requests[max(0, start) : start + 1000]
        rows.append(
            {
                "window_start": start,
                "window_end": start + 1000,
                "requests": len(inside),
                "prompt": sum(int(r["ContextTokens"]) for r in inside) / len(inside),
                "reply": median(int(r["GeneratedTokens"]) for r in inside),
                "until": utc(inside[-1]["TIMESTAMP"][:26]),
            }
        )
    return Expected(rows, 8819)


def loghub_apache() -> Expected:
    pattern = r"\[(.*?)\] \[(\w+)\] (.*)"
    form = "%a %b %d %H:%M:%S %Y"
    records, bad = matched("data/loghub/Apache_2k.log", pattern, lambda m: utc(m[1], form))
    errors = [record for record in records if record.fields[2] == "error"]
    windows = grouped(errors, lambda m: re.sub(r"-?\d+(\.\d+)*", "#", m[3]), HOUR)
    rows = rows_of(
        windows,
        lambda kind, group: {"kind": kind, "times": len(group)},
        lambda row: (-row["times"], row["kind"]),
        5,
    )
    return Expected(rows, 2000, bad)


def loghub_hdfs() -> Expected:
    form = "%y%m%d %H%M%S"
    records, bad = matched(
        "data/loghub/HDFS_2k.log", r"(\d{6} \d{6}) .*?: (.*)", lambda m: utc(m[1], form)
    )

    def finish(_: None, group: Group) -> Row:
        received = [m[2] for m in group if m[2].startswith("Received block ")]
        sizes = (re.search(r" of size (\d+)", message) for message in received)
        return {
            "blocks_received": len(received),
            "bytes_received": sum(int(size[1]) for size in sizes if size),
            "blocks_served": sum("Served block " in m[2] for m in group),
            "failures": sum("exception while serving" in m[2] for m in group),
        }

    return Expected(rows_of(grouped(records, everything, HOUR), finish), 2000, bad)


def loghub_openssh() -> Expected:
    form = "%Y %b %d %H:%M:%S"
    records, bad = matched(
        "data/loghub/OpenSSH_2k.log",
        r"(\w+ \d+ \S+) .*?: (?:Failed password for (?:invalid user )?(.*) from (\S+) port)?",
        lambda m: utc(f"2017 {m[1]}", form),
    )
    guesses = [record for record in records if record.fields[3]]

    def finish(address: str, group: Group) -> Row | None:
        names = distinct(m[2] for m in group)
        row = {"address": address, "failures": len(group), "names": names}
        return row if len(group) >= 5 else None

    windows = grouped(guesses, lambda m: m[3], 10 * MINUTE, MINUTE)
    rows = rows_of(windows, finish, lambda row: (-row["failures"], row["address"]))
    return Expected(rows, 2000, bad)


def loghub_spark() -> Expected:
    form = "%y/%m/%d %H:%M:%S"
    records, bad = matched(
        "data/loghub/Spark_2k.log", r"(\S+ \S+) \w+ \S+: (.*)", lambda m: utc(m[1], form)
    )

    def finish(_: None, group: Group) -> Row:
        messages = [m[2] for m in group]
        sent = (re.search(r"(\d+) bytes result", message) for message in messages)
        return {
            "finished": sum(message.startswith("Finished task ") for message in messages),
            "result_bytes": sum(int(size[1]) for size in sent if size),
            "cache_hits": sum(message.startswith("Found block rdd") for message in messages),
            "cache_misses": sum(message.startswith("Partition rdd") for message in messages),
        }

    return Expected(rows_of(grouped(records, everything, 5), finish), 2000, bad)


def loghub_zookeeper() -> Expected:
    records, bad = matched(
        "data/loghub/Zookeeper_2k.log",
        r"(\S+ \S+) - (\w+) .*?(?: - Connection broken for id (\d+).*)?$",
        lambda m: utc(m[1].replace(",", ".")),
    )

    def finish(_: None, group: Group) -> Row:
        levels = Counter(m[2] for m in group)
        return {
            "warnings": levels["WARN"],
            "errors": levels["ERROR"],
            "broken": sum(m[3] is not None for m in group),
            "peers": distinct(m[3] for m in group),
        }

    return Expected(rows_of(grouped(records, everything, DAY), finish), 2000, bad)


ORACLES: dict[str, Callable[[], Expected]] = {
    oracle.__name__: oracle
    for oracle in (
        apache,
        azure,
        azure_latest,
        cars,
        kafka,
        loans,
        loghub_apache,
        loghub_hdfs,
        loghub_openssh,
        loghub_spark,
        loghub_zookeeper,
        nasa,
        retail,
        taxi,
        wikipedia,
        wikipedia_pulse,
        zeek_dns,
        zeek_weird,
    )
}
