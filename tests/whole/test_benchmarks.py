"""The benchmark's logs: the same bytes for the same seed, and Muntin's answers from them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from benchmarks.growth import Costs, Fleet, first_to_give_in
from benchmarks.load import highest
from benchmarks.python_jobs import contest, write_text
from benchmarks.questions import QUESTIONS, Question, checksum, muntin_sql, panes_sql, windows_sql
from benchmarks.shop import COLUMNS, FILE, Shop, write_shop
from muntin.language.program import sql
from muntin.run.inline import windows_inline

SMALL = Shop(records=4000, servers=3, products=50, hours=0.2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[datetime, datetime, str, int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder, SMALL)
    return folder


def texts(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob(f"*/{FILE}")}


def test_equal_seeds_give_equal_logs(folder: Path, tmp_path: Path) -> None:
    size = write_shop(tmp_path / "again", SMALL)
    write_shop(tmp_path / "other", Shop(**vars(SMALL) | {"seed": 8}))
    assert texts(tmp_path / "again") == texts(folder)
    assert texts(tmp_path / "other") != texts(folder)
    assert size == sum(len(text) for text in texts(folder).values())


def test_records_are_whole_and_spread_over_all_servers(folder: Path) -> None:
    records = [json.loads(line) for text in texts(folder).values() for line in text.splitlines()]
    assert len(records) == SMALL.records
    assert {tuple(record) for record in records} == {tuple(COLUMNS)}
    assert {record["server"] for record in records} == set(texts(folder))
    clicks = Counter(record["product"] for record in records)
    (_, most), *_, (_, least) = clicks.most_common()
    assert most > 10 * least


def brute_force(folder: Path, question: Question) -> list[Row]:
    """Every record added to each window that holds it, one at a time."""
    windows: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for text in texts(folder).values():
        for line in text.splitlines():
            record = json.loads(line)
            if question.store not in (None, record["store"]):
                continue
            at = (datetime.fromisoformat(record["ts"]) - EPOCH) // timedelta(microseconds=1)
            last = at - at % question.slide_us
            for start in range(last, at - question.range_us, -question.slide_us):
                windows[start][record["product"]] += record["clicks"]
    rows = []
    for start, clicks in sorted(windows.items()):
        lower, upper = (
            EPOCH + timedelta(microseconds=at) for at in (start, start + question.range_us)
        )
        ranked = sorted(clicks.items(), key=lambda item: (-item[1], item[0]))[: question.top]
        rows += [(lower, upper, product, count) for product, count in ranked]
    return rows


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_muntin_and_the_oracle_equal_brute_force(folder: Path, question: Question) -> None:
    expected = brute_force(folder, question)
    (windows,) = windows_inline(sql(muntin_sql(question, folder)))
    found = windows.table().select(["window_start", "window_end", "product", "clicks"])
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected)

    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE panes AS {panes_sql(question, folder)}")
    con.register("found", found)
    answer = checksum(con, windows_sql(question, "panes"))
    assert answer == checksum(con, "SELECT * FROM found")
    assert answer.rows == len(expected)


def test_words_are_counted_alike_by_mrjob_and_both_ways_in_python(tmp_path: Path) -> None:
    pytest.importorskip("mrjob")
    write_text(tmp_path / "words.txt", megabytes=0.1, vocabulary=500)
    first, *others = (entry.counts for entry in contest(tmp_path / "words.txt").values())
    expected = Counter((tmp_path / "words.txt").read_text().split())
    assert first == expected
    assert others == [first, first]


@pytest.mark.parametrize("most", [900, 8000, 8001, 30_000, 361_000])
def test_the_search_comes_close_to_the_highest_rate(most: int) -> None:
    tried: list[int] = []

    def holds(rate: int) -> bool:
        tried.append(rate)
        return rate <= most

    found = highest(holds, 8000)
    assert most / 1.12 <= found <= most
    assert len(tried) <= 14


def test_the_search_ends_where_all_or_nothing_is_held() -> None:
    assert highest(lambda rate: False, 8000) == 0
    assert highest(lambda rate: True, 8000) > 500_000


@pytest.mark.parametrize(
    ("way", "part", "nodes"),
    [
        ("read_by_tasks", "reading in tasks", 560),
        ("by_agents", "asking all agents", 652),
        ("by_relays", "deciding, by source", 4000),
    ],
)
def test_the_model_tells_what_gives_in_first(way: str, part: str, nodes: int) -> None:
    """As docs/cluster.md says."""
    fleet = Fleet(1000, 1e6, keys=1000, cores=8)
    first, at = first_to_give_in(fleet, list(getattr(fleet, way)(Costs())))
    assert first.name == part
    assert at == pytest.approx(nodes, rel=0.01)
