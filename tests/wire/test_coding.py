"""Types are worked out by one thread at a time, however many ask for them first."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass

import msgspec
import pytest

from muntin.wire.coding import from_json, from_msgpack


@dataclass(frozen=True)
class Pair:
    name: str
    numbers: tuple[int, ...] = ()


def test_values_come_back() -> None:
    pair = Pair("a", (1, 2))
    assert from_json(msgspec.json.encode(pair), Pair) == pair
    assert from_msgpack(msgspec.msgpack.encode(pair), Pair) == pair
    with pytest.raises(msgspec.ValidationError):
        from_json(b'{"name": 1}', Pair)
    with pytest.raises(msgspec.ValidationError):
        from_msgpack(msgspec.msgpack.encode({"numbers": []}), Pair)


def test_threads_that_meet_a_type_at_once_do_not_end_the_process() -> None:
    code = """
        import sys, threading
        from muntin.wire.coding import from_json, from_msgpack
        from muntin.wire.messages import Exchange, Fetch, Heard, Parcel, Plan
        sys.setswitchinterval(1e-6)
        begin = threading.Barrier(8)

        def meet(number):
            begin.wait()
            for kind in (Exchange, Plan, Heard, Fetch, Parcel)[number % 3:]:
                for decode in (from_json, from_msgpack):
                    try:
                        decode(b"{}", kind)
                    except Exception:
                        pass

        threads = [threading.Thread(target=meet, args=(n,)) for n in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        print("done")
    """
    for _ in range(5):
        words = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == "done\n"
