"""A desk keeps deliveries until they are final, and keeps nobody waiting."""

from __future__ import annotations

import time
from threading import Thread

from muntin.agent.desk import PROMPT, Desk, Standing
from muntin.model.records import POSITION
from muntin.wire.messages import Departed, Exchange, Known
from tests.wire.test_messages import plan


def test_deliveries_are_numbered_and_kept_until_they_are_final() -> None:
    desk = Desk("p", plan(), Known(7))
    for data in (b"8", b"9", b"ten"):
        desk.deliver(data)
    assert (desk.last, desk.released, desk.waiting_bytes) == (10, 7, 5)
    assert desk.fetch(7, 9) == [b"8", b"9"]
    desk.tell(Exchange("p", "logs", "d", departed={"s": Departed(1)}), Known(9))
    assert (desk.last, desk.released, desk.waiting_bytes) == (10, 9, 3)
    assert desk.fetch(0, 10) == [b"ten"]
    assert desk.orders.plan == plan()
    assert (desk.orders.known, desk.orders.departed) == (Known(9), {"s": Departed(1)})


def test_news_tell_an_age_and_not_a_time() -> None:
    """Clocks of servers differ."""
    desk = Desk("p", plan(), Known(0))
    assert desk.news("web", 100.0).age is None
    assert desk.news("web", 100.0).unread
    desk.stand(Standing(unread=False, seen_at=90.0), desk.orders)
    news = desk.news("web", 100.0)
    assert (news.age, news.unread, news.digest) == (10.0, False, plan().digest)
    assert desk.news("web", 80.0).age == 0.0  # the clock was put back
    desk.fail("why")
    assert desk.news("web", 100.0).trouble == "why"


def told(desk: Desk, wanted: int) -> float:
    """How long it takes to tell what is wanted."""
    started = time.monotonic()
    if desk.tell(Exchange("p", "logs", "d", wanted={POSITION: wanted}), Known(0)):
        desk.await_obedience()
    return time.monotonic() - started


def test_what_was_obeyed_is_nothing_new() -> None:
    desk = Desk("p", plan(), Known(0))
    same = Exchange("p", "logs", "d", wanted={POSITION: 7})
    assert desk.tell(same, Known(0))
    assert desk.tell(same, Known(0))  # nobody has looked at it yet
    desk.stand(Standing(), desk.orders)
    assert not desk.tell(same, Known(0))
    assert desk.tell(same, Known(1))


def test_only_panes_that_are_open_are_awaited_and_not_for_long() -> None:
    desk = Desk("p", plan(), Known(0))
    desk.stand(Standing(opens={POSITION: 50}), desk.orders)
    assert told(desk, 49) < PROMPT / 2
    assert PROMPT <= told(desk, 50) < 10 * PROMPT

    def read() -> None:
        time.sleep(PROMPT / 4)
        desk.stand(Standing(), desk.orders)

    reading = Thread(target=read)
    reading.start()
    assert told(desk, 50) < PROMPT
    reading.join()
