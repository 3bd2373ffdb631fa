"""On object storage, one program at a time: by a lease, and where that is over, by commits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from muntin.errors import StateError
from muntin.store import lease
from muntin.store.checkpoint import Checkpoint
from muntin.store.hold import StateHold, locked, require_free
from muntin.store.holder import Holder
from muntin.store.lease import SECONDS, Lease
from muntin.store.objects import ObjectStorage
from muntin.store.requests import Tag
from tests.store.test_checkpoint import advanced, block, first
from tests.waiting import wait_for


class Elsewhere(Lease):
    """As if it were held by a process of another machine."""

    def _told(self, is_over: bool = False) -> bytes:
        told = json.loads(super()._told(is_over))
        told["holder"] |= {"host": "web-7", "process": 4711, "machine": "another"}
        return json.dumps(told).encode()


def test_another_program_is_refused_until_the_lease_is_over(url: str) -> None:
    storage, now = ObjectStorage(url), [1000.0]
    lease = Elsewhere(storage, lambda: now[0], alone=True)
    told = "in use by process 4711 on web-7, whose lease ends at 00:17:10 UTC unless it is renewed"
    with pytest.raises(StateError, match=told):
        Lease(storage, lambda: now[0], alone=True)
    now[0] += SECONDS - 1
    lease.renew()
    now[0] += SECONDS - 1
    with pytest.raises(StateError, match="in use by process 4711 on web-7"):
        Lease(storage, lambda: now[0], alone=True)
    now[0] += 2
    other = Lease(storage, lambda: now[0], alone=True)
    lease.require_there()  # it does not know yet
    lease.renew()
    with pytest.raises(StateError, match=rf"is now used by {Holder.own()}: the lease of this run"):
        lease.require_there()
    lease.close()  # changes nothing for the other
    other.renew()
    other.require_there()
    other.close()
    Lease(storage, lambda: now[0], alone=True).close()


def test_a_killed_process_of_this_machine_holds_nothing(url: str) -> None:
    code = (
        "import os, sys; from muntin.store.hold import StateHold\n"
        "StateHold(sys.argv[1]); print(os.getpid(), flush=True); input()"
    )
    command = [sys.executable, "-c", code, url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for use in (require_free, StateHold):
            with pytest.raises(StateError, match=rf"in use by process {process.pid} on .*stop it"):
                use(url)
        process.kill()
    with locked(url):
        with pytest.raises(StateError, match="in use by process"):
            require_free(url)
        with pytest.raises(StateError, match="in use by process"), locked(url):
            pass
    require_free(url)
    first, second = StateHold(url), StateHold(url)  # as queries of one process do
    first.release()
    second.release()


def test_of_two_who_take_a_lease_that_is_over_one_has_it(url: str) -> None:
    storage = ObjectStorage(url)
    Elsewhere(storage, lambda: 0.0, alone=True)
    real, other = storage.tagged, list[Lease]()

    class Slow(ObjectStorage):
        def tagged(self, name: str) -> tuple[bytes, Tag] | None:
            found = real(name)
            if not other:
                other.append(Elsewhere(storage, lambda: 1000.0, alone=True))
            return found

    with pytest.raises(StateError, match="in use by process 4711 on web-7, which has just begun"):
        Lease(Slow(url), lambda: 1000.0, alone=True)


def test_a_lease_is_renewed_while_what_others_left_is_swept(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SECONDS", 0.3)
    storage = ObjectStorage(url)

    class Slow(ObjectStorage):
        def sweep(self, folders: Sequence[str], before: float) -> None:
            taken = storage.tagged("lease")
            wait_for(lambda: storage.tagged("lease") != taken)

    held = Lease(Slow(url))
    held.require_there()
    held.close()


def test_a_lease_is_let_go_where_what_others_left_cannot_be_swept(url: str) -> None:
    class Refusing(ObjectStorage):
        def sweep(self, folders: Sequence[str], before: float) -> None:
            raise StateError("it cannot be listed")

    for alone in (True, False):
        with pytest.raises(StateError, match="it cannot be listed"):
            Lease(Refusing(url), alone=alone)
        require_free(url)
    assert "muntin-lease" not in {thread.name for thread in threading.enumerate()}


def test_commits_of_one_whose_state_was_taken_over_are_refused(url: str) -> None:
    old, saved = Checkpoint(url, "logs"), first()
    assert old.load() is None
    old.save(advanced(saved, 1), whole=False)
    old.save(advanced(saved, 2), whole=False)
    new = Checkpoint(url, "logs")
    found = new.load()
    assert found is not None
    told = rf"was taken over by {Holder.own()}, so this run stops"
    for whole in (False, True):
        with pytest.raises(StateError, match=told):
            old.save(advanced(saved, 3), whole=whole, anew=whole)
    new.save(replace(advanced(found, 4), batch=3), whole=True)
    again = Checkpoint(url, "logs")
    state = again.load()
    assert state is not None
    assert sorted(tally.pane for tally in state.progress.ledger) == [1, 2, 4]
    assert list(again.blocks.every({"shape"})) == [block("shape", 4)]


def test_one_that_wakes_up_after_its_commit_removes_nothing_of_the_next(url: str) -> None:
    old, saved = Checkpoint(url, "logs"), first()
    old.load()
    old.save(advanced(saved, 1), whole=False)
    tidy = old._tidy
    old._tidy = lambda: None  # type: ignore[method-assign]
    old.save(advanced(saved, 2), whole=True)
    new = Checkpoint(url, "logs")
    found = new.load()
    assert found is not None
    new.save(advanced(found, 3), whole=True)
    for late in (tidy, lambda: old.save(advanced(saved, 4), whole=False)):
        with pytest.raises(StateError, match="was taken over"):
            late()
    again = Checkpoint(url, "logs")
    assert again.load() is not None
    assert list(again.blocks.every({"shape"})) == [block("shape", 3)]


def test_every_state_comes_back_from_objects(url: str) -> None:
    checkpoint, saved = Checkpoint(url, "logs"), first()
    checkpoint.load()
    numbers: list[int] = []
    for second in range(1, 13):
        saved = advanced(saved, second)
        whole = second == 7
        checkpoint.save(saved, whole=whole, anew=second % 5 == 0)
        numbers = [second] if whole else [*numbers, second]
        if second in (1, 5, 6, 7, 12):
            glance = Checkpoint(url, "logs").peek()
            assert glance is not None
            assert glance.batch == second
    again = Checkpoint(url, "logs")
    found = again.load()
    assert found is not None
    assert [n for b in again.blocks.every({"shape"}) for n in b.table()["n"].to_pylist()] == numbers
    assert set(found.progress.ledger) == set(saved.progress.ledger)
    found.progress.ledger = saved.progress.ledger
    assert found == replace(saved, blocks={})
    assert len(ObjectStorage(url).sizes("streams/logs")) <= 20


def test_a_renewal_whose_answer_was_lost_counts(url: str) -> None:
    storage = ObjectStorage(url)
    lease = Lease(storage, lambda: 0.0, alone=True)
    tag = lease._tag
    lease.renew()
    lease._tag = tag  # as if it had not been heard that the lease is longer
    lease.renew()
    lease.require_there()
    lease.renew()
    lease.require_there()
    lease.close()
