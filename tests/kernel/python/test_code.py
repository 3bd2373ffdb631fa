"""The user's Python: found by its name, sent by value where others could not find it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from muntin.errors import CodeError
from muntin.kernel.python.code import (
    find,
    instance_of,
    loaded,
    payload_of,
    reference_of,
    target_of,
    version_of,
)
from muntin.model.shapes import Code


class Counts:
    def mapper(self, record: object) -> list[tuple[str, int]]:
        return [("all", 1)]


def test_a_name_stands_for_what_it_names() -> None:
    assert find("collections:Counter") is Counter
    assert find("collections:Counter.most_common") is Counter.most_common
    assert reference_of(Counts) == f"{__name__}:Counts"
    assert find(reference_of(Counts)) is Counts


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("collections", "'collections' names no Python; expected 'module:Class'"),
        (":Counter", "names no Python"),
        ("nowhere_at_all:X", "module 'nowhere_at_all' cannot be imported"),
        ("this_is:Good", "module 'this_is' has no 'Good'; it has Bad"),
    ],
)
def test_what_is_not_there_is_told(reference: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "this_is.py").write_text("import os\nclass Bad: pass\n")
    with pytest.raises(CodeError, match=message):
        find(reference, str(tmp_path))
    assert str(tmp_path) not in sys.path


def test_installed_code_is_sent_by_name_and_the_users_own_by_value() -> None:
    assert payload_of(Counter) is None
    payload = payload_of(Counts)
    assert payload is not None
    code = Code("j", reference_of(Counts), "pairs", "1", payload=payload)
    assert target_of(code) is Counts  # it was made in this process
    assert loaded(code) is loaded(code)


def test_another_process_has_the_code_without_its_file(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(payload_of(Counts) or b"")
    program = (
        "import cloudpickle, pathlib; payload = pathlib.Path('payload').read_bytes();"
        "print(cloudpickle.loads(payload)().mapper(None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[('all', 1)]"


def test_what_cannot_be_sent_is_told() -> None:
    class Holds:
        lines = (line for line in "text")

    with pytest.raises(CodeError, match=r"Holds cannot be sent to workers: .* has to be picklable"):
        payload_of(Holds)


def test_code_that_answers_otherwise_has_another_version() -> None:
    def counting(by: int) -> type:
        class Job:
            def mapper(self, record: object) -> int:
                return by

        return Job

    one, same, two = counting(1), counting(1), counting(2)
    versions = [version_of(job, payload_of(job)) for job in (one, same, two)]
    assert versions[0] == versions[1] != versions[2]
    assert version_of(Counter, None) == version_of(Counter, None)


def test_a_class_that_cannot_be_made_is_told_where_it_runs() -> None:
    class Needs:
        def __init__(self) -> None:
            raise OSError("no such file")

    code = Code("j", "m:Needs", "pairs", "1", payload=payload_of(Needs))
    with pytest.raises(CodeError, match=r"m:Needs cannot be loaded: OSError: no such file; what"):
        loaded(code)
    assert isinstance(instance_of(Counts), Counts)
