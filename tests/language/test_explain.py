"""What `muntin explain` prints."""

from __future__ import annotations

from muntin.kernel.consolidate import Algorithm, consolidate_sql
from muntin.kernel.plan import plan_of
from muntin.kernel.statements import bounds_of, compute_sql, finish_sql, merge_sql, order_sql
from muntin.language.explain import explain, explain_plan, explain_stream
from muntin.language.layout import laid_out
from muntin.model.jobs import Job
from tests.language.cases import program

TEXT = """
CREATE STREAM clicks (ts TIMESTAMP, product VARCHAR, "user" VARCHAR, n INTEGER)
  FROM 'logs/{source}/*.csv', 'more/*' FORMAT csv (DELIMITER ';') TIMESTAMP ts SLACK 2 SECONDS;
CREATE JOB hot AS
  SELECT product, sum(n) AS clicks, count(DISTINCT "user") AS users
  FROM clicks WHERE n > 0 GROUP BY product ORDER BY clicks DESC LIMIT 10
  WINDOW 1 HOUR EVERY 10 MINUTES;
"""


def explain_job(job: Job) -> str:
    return explain_plan(plan_of(job, job.windows))


STREAM = """\
STREAM clicks
  files      logs/{source}/*.csv, more/*
  format     csv with header, delimiter ';'
  timestamp  "ts"
  slack      2 seconds
  bad rows   skip
  columns
    ts       TIMESTAMP
    product  VARCHAR
    user     VARCHAR
    n        INTEGER
    source   VARCHAR
"""
JOB = """\
JOB hot on clicks
  pane     10 minutes
  windows
    1 hour every 10 minutes  6 panes, the next 1 pane later  remove: what enters is added, \
what leaves removed; share, where one is due alone
  errors   100 are allowed; one more stops the job
  sharing  shared partials: decided anew while running, by what is measured
  filter   "n" > 0
  keys
    k0  VARCHAR  = "product"
  cells of a key
    c0  BIGINT         SUM  of count(*)
    c1  DECIMAL(38,0)  SUM  of sum("n")
  cells of a key and s1
    s1 VARCHAR = "user"
    where ("user" IS NOT NULL)
    c2  BIGINT  SUM  of count(*)
  columns
    product  VARCHAR  = p0.k0
    clicks   BIGINT   = p0.a0
    users    BIGINT   = coalesce(p1.a1, 0)

  compute: records to blocks, where records are read
"""


def test_stream_in_words() -> None:
    assert explain_stream(program(TEXT).streams["clicks"]) == STREAM


def test_job_in_words() -> None:
    assert explain_job(program(TEXT).jobs["hot"]).startswith(JOB)


def test_job_in_sql() -> None:
    job = program(TEXT).jobs["hot"]
    shown = explain_job(job)
    for sql in (
        compute_sql(job.shape, job.windows, marked=False),
        merge_sql(job.shape),
        finish_sql(
            job,
            consolidate_sql(job.shape, job.windows[0], Algorithm.REMOVE),
            bounds_of(job.shape, job.windows[0]),
        ),
        order_sql(job),
    ):
        assert "\n".join(laid_out(sql, indent=4)) in shown


def test_other_formats_and_no_slack() -> None:
    text = """
    CREATE STREAM r FROM 'x' FORMAT regex '(?P<ts>.*)' TIMESTAMP ts;
    CREATE STREAM c (time TIMESTAMP) FROM 'x' FORMAT combined;
    """
    shown = explain(program(text))
    assert "format     regex (?P<ts>.*)" in shown
    assert "format     combined" in shown
    assert "slack      none: nothing is late on finite input" in shown


def test_a_program_is_its_streams_and_then_its_jobs() -> None:
    titles = [line for line in explain(program(TEXT)).split("\n") if line[:1].isalpha()]
    assert titles == ["STREAM shop", "STREAM clicks", "JOB hot on clicks"]


def test_several_windows_and_bounds() -> None:
    clause = "5 MINUTES, 1 HOUR EVERY 5 MINUTES FROM '2026-01-01 00:00:30' BEGIN '2026-01-01'"
    jobs = program(
        f"CREATE JOB timed AS SELECT sum(clicks) FROM shop WINDOW {clause} EXTENT 1 DAY;"
        f"CREATE JOB counted AS SELECT max(ms) FROM shop WINDOW 500 OF id EVERY 100 BEGIN 1000"
    ).jobs
    shown = explain_job(jobs["timed"])
    assert SEVERAL in shown
    assert shown.count("  finish: blocks to rows of ") == 2
    assert COUNTED in explain_job(jobs["counted"])


SEVERAL = """
  pane     30 seconds
  windows
    5 minutes                               10 panes, the next 10 panes later   share: the panes \
and smaller windows with the fewest rows
    1 hour every 5 minutes from 30 seconds  120 panes, the next 10 panes later  remove: what \
enters is added, what leaves removed; share, where one is due alone
  bounds   from 2026-01-01 00:00:00 on, before 2026-01-02 00:00:00
"""
COUNTED = """
  pane     100 of id
  windows
    500 of id every 100  5 panes, the next 1 pane later  stacks: two running merges, as \
cells cannot be removed; share, where one is due alone
  bounds   from 1000 on
"""


def test_jobs_in_python_tell_their_methods() -> None:
    text = (
        "CREATE STREAM clicks (ts TIMESTAMP, n INTEGER) FROM 'x' FORMAT csv TIMESTAMP ts;"
        "CREATE JOB removed AS PYTHON 'tests.python_jobs:Removed' FROM clicks WHERE n > 0 "
        "WINDOW 1 HOUR EVERY 10 MINUTES, 10 MINUTES;"
    )
    text = text.replace("n INTEGER", "n INTEGER, k VARCHAR, s VARCHAR")
    told = explain_job(program(text).jobs["removed"])
    assert told.startswith(
        """\
JOB removed on clicks
  python   tests.python_jobs:Removed, sent to workers by value
  methods  mapper, combiner, uncombiner, reducer
  given    k, s, n, source
  filter   "n" > 0
  pane     10 minutes
"""
    )
    assert "remove: what enters is added, what leaves removed" in told
    assert "panes: a window is one pane" in told


def test_a_finish_is_shown_after_the_core() -> None:
    groups = "SELECT product AS p, count(*) AS n FROM shop GROUP BY 1"
    text = f"CREATE JOB j AS SELECT p, rank() OVER (ORDER BY n) AS r FROM ({groups}) WINDOW 1 DAY"
    shown = explain_job(program(text).jobs["j"])
    assert "  core, for the finish\n    __c0_0  product\n    __c0_1  count(*)\n" in shown
    names = ["compute", "merge", "core", "order", "finish"]
    places = [shown.index(f"\n  {name}: ") for name in names]
    assert places == sorted(places)
    assert "  finish: rows of the core to results, window by window, where results are" in shown
    assert "rank() OVER (ORDER BY n) AS r" in shown


def test_explain_tells_who_shares_what() -> None:
    """Jobs of one form are merged together, and finished if they ask for the same of it."""
    stream = "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    query = "CREATE JOB {} AS SELECT k, sum(n) AS n FROM s WHERE n > {} GROUP BY k WINDOW {} us;"
    jobs = [query.format(f"j{number}", number, 4) for number in range(8)]
    jobs += [query.format("longer", 50, "8 us EVERY 4"), query.format("other", 60, 5)]
    jobs += ["CREATE JOB gaps AS SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW SESSION 5 us;"]
    told = explain(program(stream + "".join(jobs)))
    first = told.partition("JOB j0 on")[2].partition("JOB j1")[0]
    assert "with j1, j2, j3, j4, j5 and 4 others; equal conditions" in first
    assert "  merging  blocks of one form, by one statement: with j1, j2, j3, j4, j5 and 3" in first
    assert "  finish   the same windows of one form, too: with j1, j2, j3, j4, j5 and 2" in first
    longer = told.partition("JOB longer on")[2].partition("JOB other")[0]
    assert "by one statement: with j0" in longer
    assert "  finish   the same" not in longer
    assert "merging" not in told.partition("JOB gaps on")[2]


def test_explain_tells_of_equal_blocks_and_of_a_pass_that_is_not_worth_it() -> None:
    """Equal blocks are more than one form; and where no pass is shared, it says why."""
    stream = "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    query = "CREATE JOB {} AS SELECT k, {} AS n FROM s WHERE n > {} GROUP BY k WINDOW {} us;"
    jobs = [query.format("a", "sum(n)", 5, 10), query.format("b", "sum(n)", 5, 20)]
    jobs += [query.format("c", "sum(n)", 6, 10), query.format("d", "mode(n)", 7, 10)]
    told = explain(program(stream + "".join(jobs)))
    a, b, c, d = (part.partition("\n\n")[0] for part in told.split("\nJOB ")[1:])
    assert "  blocks   computed and kept once, with b: the filter, keys" in a
    assert "  blocks   computed and kept once, with a: the filter, keys" in b
    assert "  merging  blocks of one form, by one statement: with c" in a
    assert "blocks   " not in c + d
    own = "  pass     a statement of its own over records that are parsed once for all jobs:\n"
    for each in (a, b, c):
        assert f"{own}           of queries that could share one there are 2, and 4 are" in each
    assert f"{own}           its keys and cells are none that arrays hold" in d
    alone = explain(program(stream + jobs[0] + jobs[1]))
    assert "pass   " not in alone


def test_panes_that_are_kept_for_less_than_a_window_are_told() -> None:
    stream = "CREATE STREAM s (t TIMESTAMP) FROM 'x' FORMAT json TIMESTAMP t;"
    job = "CREATE JOB j AS SELECT count(*) AS n FROM s WINDOW 1 HOUR RETAIN {};"
    told = explain(program(stream + job.format("1 MINUTE")))
    assert "note: job 'j': RETAIN 1 MINUTE is shorter than its windows, so no question" in told
    assert "note:" not in explain(program(stream + job.format("1 HOUR")))
