"""Messages mean the same on both sides, and what is no message is refused and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import BlockError, WireError
from muntin.fidelity.losses import Loss
from muntin.kernel.reading import Reading
from muntin.language.program import sql
from muntin.model.counts import Fault, Tally
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.wire.messages import (
    Departed,
    Exchange,
    Fetch,
    Heard,
    Known,
    News,
    Parcel,
    Plan,
    Range,
    decode,
    encode,
    encoded_for,
    pack,
    unpack,
)
from tests.effort import examples

PROGRAM = sql("""
CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM AGENTS 'a:1' FORMAT json TIMESTAMP t;
CREATE JOB many AS SELECT k, sum(n) AS s, approx_count_distinct(n) AS d, quantile_cont(n, 0.5) AS q
FROM logs WHERE n > 1 GROUP BY k WINDOW 10 SECONDS EVERY 5 SECONDS WITHIN 3 SECONDS;
CREATE JOB visits AS SELECT k, max(n) AS m FROM logs GROUP BY k WINDOW SESSION 5 SECONDS;
""")


def plan() -> Plan:
    catalog = Catalog.of(PROGRAM.streams["logs"], PROGRAM.jobs.values())
    return Plan(catalog.stream, catalog.recipes, 5)


def test_what_is_sent_is_what_arrives() -> None:
    known = {"web": Known(7, {POSITION: 4})}
    told = Exchange(
        "p", "logs", "d", known, plan(), {"s": Departed(1, None)}, {POSITION: 5}, ("r",)
    )
    arrived = decode(encode(told), Exchange)
    assert arrived == told
    assert arrived.plan is not None
    assert arrived.plan.digest == plan().digest
    ids = [recipe.shape.id for recipe in arrived.plan.recipes]
    assert ids == [recipe.shape.id for recipe in plan().recipes]
    heard = Heard(
        (
            News(
                "web",
                "d",
                3,
                age=0.5,
                unreadable=(Loss("web", "a.log", "why"),),
                trouble="t",
                via=("a:1", "b:2"),
            ),
        ),
        {"c:3": "why"},
    )
    fetch = Fetch("p", "s", "d", (Range("web", 1, 2, 30, ("b:2",)),), 0.5)
    for message in (heard, fetch):
        assert decode(encode(message), type(message)) == message


def test_a_reading_arrives_whole() -> None:
    reading = Reading(
        "web",
        3,
        (Tally("web", POSITION, 5, 1, None, 2, 0, 9),),
        records=2,
        bad=1,
        first={POSITION: 1},
        reached={POSITION: 9},
        faults=(Fault("j", "map", "x", "why"),),
        changed={"s": frozenset([1, 2])},
    )
    assert unpack(pack(Parcel({"web": 3}, (reading,), {}))) == Parcel({"web": 3}, (reading,), {})


def test_damage_is_seen() -> None:
    data = pack(Parcel({"web": 3}, (Reading("web", 3, records=5),), {}))
    for at in range(len(data)):
        with pytest.raises(WireError):
            unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(WireError):
            unpack(data[:at])


def test_a_block_that_is_none_is_refused() -> None:
    with pytest.raises(BlockError):
        unpack(pack(Parcel({"web": 1}, (), {"shape": b"no block"})))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@examples(200)
@given(junk)
def test_other_values_are_no_messages(value: object) -> None:
    for kind in (Exchange, Fetch, Plan, News, Range):
        with pytest.raises(WireError, match="this is no"):
            decode(encode(value), kind)


def test_damaged_messages_are_messages_or_refused() -> None:
    """A hundred thousand of them; whatever is understood has the types that it says."""
    whole, chance = encode(Exchange("p", "logs", "d", {"web": Known(7)}, plan())), random.Random(5)
    understood = 0
    for _ in range(100_000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        try:
            arrived = decode(bytes(data), Exchange)
        except WireError:
            continue
        understood += 1
        assert all(isinstance(known.final, int) for known in arrived.known.values())
        assert arrived.plan is None or isinstance(arrived.plan.recipes, tuple)
    assert 0 < understood < 50_000


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b"[" * 1_000_000, Exchange)
    with pytest.raises(WireError):
        decode(b'{"plan":' * 100_000, Exchange)


def test_an_exchange_is_encoded_once_for_all() -> None:
    told = Exchange('a "known":{} b', "logs", "d", {"x": Known(1)}, plan(), wanted={"known": 1})
    encoded = encoded_for(told)
    for mine in ({}, {"x": Known(3)}, {"y": Known(0, {"__position": 7}), "z": Known(1)}):
        assert encoded(mine) == encode(replace(told, known=mine))
