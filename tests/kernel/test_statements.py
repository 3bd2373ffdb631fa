"""The arithmetic of panes and windows in SQL, against the same in Python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.engine import run
from muntin.kernel.statements import ends_sql, floor_div_sql, key_group_sql, spec_id
from muntin.language.program import sql
from muntin.model.shapes import Shape
from muntin.windows.spec import WindowSpec

specs = st.builds(
    lambda slide, times, shift: WindowSpec(slide * times, slide, shift % slide, 1),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(0, 100),
)


@given(position=st.integers(-(10**15), 10**15), size=st.integers(1, 10**9))
def test_panes_are_found_by_rounding_down(position: int, size: int) -> None:
    statement = f"SELECT {floor_div_sql(f'({position})::BIGINT', size)} AS pane"
    assert run(statement, {}, "dividing")["pane"].to_pylist() == [position // size]


@given(spec=specs, pane=st.integers(-200, 200))
def test_every_window_that_holds_a_pane_is_found(spec: WindowSpec, pane: int) -> None:
    found = run(f"SELECT {ends_sql(spec, str(pane))} AS w", {}, "asking")["w"].to_pylist()
    assert sorted(found) == [
        end
        for end in range(pane + 1, pane + spec.length + 1)
        if (end - spec.length - spec.shift) % spec.stride == 0
    ]


def test_kinds_of_windows_have_names_that_are_no_pane() -> None:
    names = {spec_id(WindowSpec(60 * n, 60)) for n in range(1, 1000)}
    assert len(names) == 999
    assert 0 not in names


def shape(keys: str) -> Shape:
    text = "CREATE STREAM s (t BIGINT, k VARCHAR, x DOUBLE) FROM 'x' FORMAT json TIMESTAMP t;"
    by = f"GROUP BY {keys}" if keys else ""
    return (
        sql(f"{text} CREATE JOB j AS SELECT count(*) FROM s {by} WINDOW 1 MINUTE").jobs["j"].shape
    )


def groups_of(keys: str, rows: str, groups: int) -> list[int]:
    statement = f"SELECT {key_group_sql(shape(keys), groups)} AS g FROM ({rows})"
    found: list[int] = run(statement, {}, "hashing")["g"].to_pylist()
    return found


def test_key_groups_depend_on_keys_alone_and_are_all_used() -> None:
    rows = "SELECT 'key ' || i AS k0 FROM range(2000) t(i)"
    found = groups_of("k", rows, 8)
    assert set(found) == set(range(8))
    assert found == groups_of("k", rows, 8)
    # Fewer groups are made of neighbouring ones, so that nothing else moves.
    assert groups_of("k", rows, 4) == [group // 2 for group in found]
    assert groups_of("", "SELECT 1", 8) == [0]


def test_keys_that_are_equal_are_in_one_group() -> None:
    zeros = groups_of("x", "SELECT unnest([0.0, -0.0])::DOUBLE AS k0", 256)
    assert zeros[0] == zeros[1]
    (null,) = groups_of("k", "SELECT NULL::VARCHAR AS k0", 256)
    assert 0 <= null < 256
