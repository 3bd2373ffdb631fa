"""Orders over several streams are done once, also where what one of them holds is lost halfway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from muntin.errors import LostError
from muntin.language.program import orders, sql
from muntin.model.streams import Stream
from muntin.run.inline import InlineRun
from muntin.run.loop import Loop, Rules
from muntin.run.steward import Steward


@dataclass
class Streams:
    loops: Sequence[Loop]

    def begin(self, stream: Stream) -> Loop:
        raise AssertionError(stream)


def test_what_one_stream_has_committed_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {
        name: f"JOB {name} AS SELECT count(*) AS n FROM s_{name} {{}} WINDOW 10 SECONDS;"
        for name in "ab"
    }
    streams = "".join(
        f"CREATE STREAM s_{name} (t BIGINT) FROM '{tmp_path}/{name}.jsonl' FORMAT json TIMESTAMP t;"
        for name in jobs
    )
    program = sql(streams + "".join("CREATE " + text.format("") for text in jobs.values()))
    loops = [
        InlineRun(stream, program.jobs_of(stream.name), Rules(follow=True)).loop
        for stream in program.streams.values()
    ]
    text = "".join("CREATE OR REPLACE " + text.format("WHERE t > 5") for text in jobs.values())
    ordered, steward = orders(text, program), Steward(Streams(loops))
    with monkeypatch.context() as patch:

        def lost(*_: object) -> None:
            raise LostError("an executor is gone", "")

        patch.setattr(loops[1], "obey", lost)
        with pytest.raises(LostError):
            steward.do(ordered)
    reply, (now, _) = steward.do(ordered)
    assert [(effect.job, effect.version) for effect in reply.effects] == [("a", 2), ("b", 2)]
    assert [now.jobs[name].edition.number for name in "ab"] == [2, 2]
    another, _ = steward.do(orders("DROP JOB a", now))
    assert [effect.job for effect in another.effects] == ["a"]
