"""The job that keeps the records of a stream."""

from __future__ import annotations

from muntin.kernel.keeper import keeper_of
from tests.language.test_keeper import DAY, kept


def test_the_keeper_counts_records_that_are_alike() -> None:
    program = kept("RETAIN 7 DAYS OF STREAM")
    keeper = keeper_of(program.streams["clicks"])
    assert keeper is not None
    assert (keeper.is_keeper, keeper.title, keeper.retain_us) == (True, "clicks", 7 * DAY)
    keys = [key.sql for key in keeper.shape.keys]
    assert keys[:3] == ['"ts"', '"product"', 'one_number("ms")']
    assert keys[4:6] == ['"source"', '"__position"']
    assert [cell.sql for part in keeper.shape.parts for cell in part.cells] == ["count(*)"]
    assert [(o.name, o.type) for o in keeper.outputs][3] == ("tags", "JSON[]")
    assert program.jobs == {}
    assert program.runs("clicks")
    assert not kept("").runs("clicks")
