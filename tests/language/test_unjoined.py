"""A join of records is refused with a query that is not, whose text is that of the user's own."""

from __future__ import annotations

import re

import pytest

from muntin.errors import LanguageError
from muntin.language.check import check
from muntin.model.jobs import Program
from muntin.model.records import Column
from muntin.model.streams import Stream

STREAMS = """
CREATE STREAM bids (t TIMESTAMP, auction BIGINT, price BIGINT, who VARCHAR) FROM 'b/{source}.log'
FORMAT json TIMESTAMP t;
CREATE STREAM asks (t TIMESTAMP, auction BIGINT, price DOUBLE, note VARCHAR) FROM 'a/{source}.log'
FORMAT json TIMESTAMP t;
CREATE STREAM remote (t TIMESTAMP, auction BIGINT) FROM AGENTS 'a:1' FORMAT json TIMESTAMP t;
CREATE STREAM spans (t TIMESTAMP, e TIMESTAMP, auction BIGINT) FROM 's/{source}.log'
FORMAT json TIMESTAMP t TO e BY TOUCH;
"""


def no_columns(stream: Stream) -> tuple[Column, ...]:
    return (Column("t", "TIMESTAMP"),)


def program(job: str, window: str = "WINDOW 1 MINUTE") -> Program:
    return check(f"{STREAMS}CREATE JOB j AS {job} {window}", no_columns)


def refused(job: str, window: str = "WINDOW 1 MINUTE") -> str:
    with pytest.raises(LanguageError) as raised:
        program(job, window)
    return raised.value.message


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "SELECT auction, count(*) AS bids, min(a.price) AS ask FROM bids b "
            "JOIN asks a USING (auction) GROUP BY auction",
            "SELECT auction, bids, ask FROM (SELECT auction, count(*) AS bids FROM bids GROUP BY "
            "ALL) b JOIN (SELECT auction, min(price) AS ask FROM asks GROUP BY ALL) a "
            "USING (auction)",
        ),
        (
            "SELECT b.auction, who, max(b.price) - min(a.price) AS gap FROM bids b, asks a "
            "WHERE b.auction = a.auction AND b.price > 3 AND note <> '' GROUP BY b.auction, who",
            "SELECT b.auction, who, max_price - min_price AS gap FROM (SELECT auction, who, "
            "max(price) AS max_price FROM bids WHERE price > 3 GROUP BY ALL) b JOIN (SELECT "
            "auction, min(price) AS min_price FROM asks WHERE note <> '' GROUP BY ALL) a "
            "ON b.auction = a.auction",
        ),
        (
            "SELECT b.auction, a.n FROM bids b LEFT JOIN (SELECT auction, count(*) AS n FROM asks "
            "GROUP BY auction) a USING (auction)",
            "SELECT b.auction, a.n FROM (SELECT auction FROM bids GROUP BY ALL) b LEFT JOIN "
            "(SELECT auction, count(*) AS n FROM asks GROUP BY auction) a USING (auction)",
        ),
        (
            "SELECT * FROM bids b JOIN asks ON b.auction = asks.auction",
            "SELECT b.auction, n_b, n_asks FROM (SELECT auction, count(*) AS n_b FROM bids GROUP "
            "BY ALL) b JOIN (SELECT auction, count(*) AS n_asks FROM asks GROUP BY ALL) asks "
            "ON b.auction = asks.auction",
        ),
        (
            "SELECT auction, count(*) AS c FROM bids GROUP BY auction JOIN asks USING (auction)",
            "SELECT bids.*, n_asks FROM (SELECT auction, count(*) AS c FROM bids GROUP BY auction) "
            "bids JOIN (SELECT auction, count(*) AS n_asks FROM asks GROUP BY auction) asks "
            "USING (auction) WINDOW 1 MINUTE",
        ),
        (
            "FROM bids GROUP BY auction LEFT JOIN asks ON bids.auction = asks.auction",
            "SELECT bids.*, n_asks FROM (SELECT auction, count(*) AS n_bids FROM bids GROUP BY "
            "auction) bids LEFT JOIN (SELECT auction, count(*) AS n_asks FROM asks GROUP BY "
            "auction) asks ON bids.auction = asks.auction WINDOW 1 MINUTE",
        ),
    ],
)
def test_what_is_shown_can_be_run(written: str, shown: str) -> None:
    message = refused(written)
    assert message.endswith(f": {shown}")
    window = "" if shown.endswith("MINUTE") else "WINDOW 1 MINUTE"
    (job,) = program(shown, window).jobs.values()
    assert job.stream == "asks+bids"


@pytest.mark.parametrize(
    "written",
    [
        "SELECT count(*) FROM bids b JOIN asks a ON b.auction < a.auction",
        "SELECT count(*) FROM bids b JOIN bids c ON b.auction = c.auction AND b.price < c.price",
        "SELECT count(*) FROM bids, asks",
    ],
)
def test_where_nothing_is_equal_a_sketch_is_shown(written: str) -> None:
    assert refused(written) == (
        "a join would need every record of stream 'bids', and a job keeps no records; aggregate "
        "it by the key first, as in JOIN (SELECT key, count(*) … GROUP BY key)"
    )


BOTH = "SELECT (SELECT count(*) FROM bids) AS b, (SELECT count(*) FROM {}) AS a"


def test_streams_that_one_job_cannot_read_are_refused() -> None:
    assert refused(BOTH.format("remote")).startswith("stream 'remote' comes from agents, which")
    assert refused(BOTH.format("spans")) == (
        "streams that are joined agree in what spans of records mean; 'bids' counts records by "
        "moments, 'spans' counts records by touch"
    )


@pytest.mark.parametrize("window", ["100 RECORDS", "1 MEGABYTE", "5 OF price", "1 DAY EVERY 1 KB"])
def test_windows_over_several_streams_are_of_time(window: str) -> None:
    message = refused(BOTH.format("asks"), f"WINDOW {window}")
    assert re.match("'asks' and 'bids' are counted apart, so .* windows of time", message)


def test_names_are_those_of_the_stream_that_is_read() -> None:
    told = refused("SELECT (SELECT max(prce) FROM asks) AS a, (SELECT count(*) FROM bids) AS b")
    assert told == "stream 'asks' has no column 'prce'; did you mean price?"
    program("SELECT (SELECT max(asks.note) FROM asks) AS a, (SELECT max(b.who) FROM bids b) AS b")


def test_jobs_of_the_same_streams_share_what_they_read() -> None:
    jobs = f"{BOTH.format('asks')} WINDOW 1 MINUTE; CREATE JOB k AS {BOTH.format('asks')}"
    found = program(jobs)
    assert {job.stream for job in found.jobs.values()} == {"asks+bids"}
    left = check("DROP JOB j; DROP JOB k", no_columns, found.streams, jobs=found.jobs)
    assert "asks+bids" not in left.streams
