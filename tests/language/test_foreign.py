"""Queries as other systems have them: refused, with our way of each, which is understood."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.units import describe_window
from tests.language.cases import program

CASES = [
    (
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW TUMBLE(ts, INTERVAL 1 HOUR)",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 1 HOUR",
    ),
    (
        "SELECT window_start, window_end, product, count(*) AS n FROM TABLE(TUMBLE(TABLE shop, "
        "DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, product",
        "SELECT window_start, window_end, product, count(*) AS n FROM shop GROUP BY product "
        "WINDOW 10 MINUTES",
    ),
    (
        "SELECT product, count(*) FROM TABLE(HOP(TABLE shop, DESCRIPTOR(ts), INTERVAL '5' MINUTE, "
        "INTERVAL '1' HOUR)) GROUP BY window_start, window_end, product",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 1 HOUR EVERY 5 MINUTES",
    ),
    (
        "SELECT product, count(*) FROM TUMBLE(shop, ts, INTERVAL '10 MINUTES') GROUP BY product",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 10 MINUTES",
    ),
    (
        "SELECT product, count(*) FROM HOP(shop, ts, INTERVAL '1' MINUTE, INTERVAL '2 MINUTES') "
        "GROUP BY product, window_start",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 2 MINUTES EVERY 1 MINUTE",
    ),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) AS day_of, product, sum(ms) FROM shop "
        "GROUP BY TUMBLE(ts, INTERVAL '1' DAY), product",
        "SELECT window_start AS day_of, product, sum(ms) FROM shop GROUP BY product WINDOW 1 DAY",
    ),
    (
        "SELECT window.start AS begins, product, count(*) FROM shop "
        "GROUP BY window(ts, '10 minutes', '5 minutes'), product ORDER BY product",
        "SELECT window_start AS begins, product, count(*) FROM shop GROUP BY product "
        "ORDER BY product WINDOW 10 MINUTES EVERY 5 MINUTES",
    ),
    (
        "SELECT product, count(*) FROM shop GROUP BY session_window(ts, '5 minutes'), product",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW SESSION 5 MINUTES",
    ),
    (
        "SELECT product, count(*) AS n FROM shop WINDOW TUMBLING (SIZE 1 HOUR) WHERE ok "
        "GROUP BY product EMIT CHANGES",
        "SELECT product, count(*) AS n FROM shop WHERE ok GROUP BY product "
        "WINDOW 1 HOUR EMIT CHANGES",
    ),
    (
        "SELECT product, count(*) FROM shop WINDOW HOPPING (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS)"
        " GROUP BY product EMIT FINAL",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 30 SECONDS EVERY 10 SECONDS",
    ),
    (
        "SELECT product, count(*) FROM shop WINDOW SESSION (60 SECONDS) GROUP BY product",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW SESSION 60 SECONDS",
    ),
    (
        "SELECT product, count(*) FROM shop GROUP BY product EMIT CHANGES",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 1 HOUR EMIT CHANGES",
    ),
    (
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 1 HOUR EMIT ON WINDOW CLOSE",
        "SELECT product, count(*) FROM shop GROUP BY product WINDOW 1 HOUR",
    ),
    (
        "SELECT date_bin('15 minutes', ts, TIMESTAMP '2001-01-01') AS bin, avg(ms) FROM shop "
        "GROUP BY bin",
        "SELECT window_start AS bin, avg(ms) FROM shop GROUP BY bin WINDOW 15 MINUTES",
    ),
    (
        "SELECT time_bucket(INTERVAL '1 hour', ts) AS t, store, max(ms) FROM shop "
        "GROUP BY t, store",
        "SELECT window_start AS t, store, max(ms) FROM shop GROUP BY t, store WINDOW 1 HOUR",
    ),
    (
        "SELECT date_trunc('hour', ts), count(*) FROM shop GROUP BY date_trunc('hour', ts)",
        "SELECT window_start, count(*) FROM shop WINDOW 1 HOUR",
    ),
    (
        "SELECT store, count(*) FROM shop GROUP BY store, TumblingWindow(minute, 10)",
        "SELECT store, count(*) FROM shop GROUP BY store WINDOW 10 MINUTES",
    ),
    (
        "SELECT store, count(*) FROM shop GROUP BY store, HoppingWindow(second, 10, 5)",
        "SELECT store, count(*) FROM shop GROUP BY store WINDOW 10 SECONDS EVERY 5 SECONDS",
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), CASES)
def test_another_systems_query_is_shown_in_our_way(theirs: str, ours: str) -> None:
    with pytest.raises(LanguageError) as raised:
        program(f"CREATE JOB j AS {theirs};")
    said, _, query = raised.value.message.partition(": ")
    assert said
    assert query == f"CREATE JOB j AS {ours}"
    assert program(query).jobs


@pytest.mark.parametrize(
    "head",
    [
        "CREATE MATERIALIZED VIEW v AS",
        "CREATE TABLE v AS",
        "CREATE STREAM v WITH (kafka_topic='x') AS",
        "CREATE OR REPLACE VIEW v AS",
    ],
)
def test_a_standing_query_is_a_job(head: str) -> None:
    with pytest.raises(LanguageError) as raised:
        program(f"{head} SELECT product, count(*) FROM shop WINDOW TUMBLING (SIZE 5 MINUTES)\n"
                "GROUP BY product EMIT CHANGES;")  # fmt: skip
    assert raised.value.message == (
        "a standing query is a job here: CREATE JOB v AS SELECT product, count(*) FROM shop "
        "GROUP BY product WINDOW 5 MINUTES EMIT CHANGES"
    )


def test_the_place_is_that_of_the_words_of_the_other_system() -> None:
    text = "CREATE JOB a AS SELECT count(*) FROM shop WINDOW 1 DAY;\n" + (
        "CREATE JOB b AS SELECT count(*) FROM shop\nGROUP BY TUMBLE(ts, INTERVAL '1' DAY);"
    )
    with pytest.raises(LanguageError) as raised:
        program(text)
    assert (raised.value.line, raised.value.column) == (3, 10)


def test_what_is_understood_stays_as_it_is() -> None:
    text = """CREATE JOB j AS SELECT date_trunc('hour', ts) AS h, count(*) FROM shop GROUP BY h
    WINDOW 1 DAY"""
    (job,) = program(text).jobs.values()
    assert describe_window(job.shape.axis, job.windows[0]) == "1 day"
    assert len(job.shape.keys) == 1


def test_other_mistakes_are_told_as_they_are() -> None:
    text = "CREATE JOB j AS SELECT date_trunc('hour', tss), count(*) FROM shop WINDOW 1 DAY"
    with pytest.raises(LanguageError, match="no column 'tss'"):
        program(text)
