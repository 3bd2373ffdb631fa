"""A spam campaign is looked into, by one job that is changed while it runs.

At first it lists who publishes the most "sales". Then it is replaced by one that looks at these
suspects alone, which are in its own newest result, and tells from where they publish; and then by
one that looks at those with few followers, of whom the number is a parameter.

    python examples/live/spam.py [FOLDER]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import answered, running, show, write

SQL = Path(__file__).with_suffix(".sql")
START = 1_767_225_600  # 2026-01-01, midnight
SERVERS = ("feed-1", "feed-2")
SPAMMERS = ("deals4u", "cheap_now", "best_buy_bot")
PLACES = ("Lagos", "Lima", "Oslo", "Pune")
MINUTE = 60

BY_LOCATION = """
CREATE JOB campaign AS
SELECT posts.publisher, location, count(*) AS posts
FROM posts JOIN LATEST(campaign) suspects USING (publisher)
WHERE label = 'sales'
GROUP BY posts.publisher, location ORDER BY posts DESC, posts.publisher, location LIMIT 5
WINDOW 1 MINUTE
"""
BY_FOLLOWERS = """
CREATE JOB campaign (few DEFAULT 100) AS
SELECT posts.publisher, location, count(*) AS posts, max(followers) AS followers
FROM posts JOIN LATEST(campaign) suspects USING (publisher, location)
WHERE label = 'sales' AND followers < $few
GROUP BY posts.publisher, location ORDER BY posts DESC, posts.publisher, location LIMIT 5
WINDOW 1 MINUTE
"""


def posts(first: int, last: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each server logs from one minute to another: a few publish the most, from few places."""
    for minute in range(first, last):
        chance = random.Random(minute)
        for second in range(MINUTE):
            for server in SERVERS:
                number = chance.randrange(3)
                spam = chance.random() < 0.5
                publisher = SPAMMERS[number] if spam else f"user{chance.randrange(100)}"
                record = {
                    "publisher": publisher,
                    "label": "sales" if spam or chance.random() < 0.2 else "news",
                    "location": PLACES[number] if spam else chance.choice(PLACES),
                    "followers": 10 + 60 * number if spam else 10 * chance.randrange(50),
                }
                yield server, {"ts": START + MINUTE * minute + second, **record}


def main(folder: Path) -> None:
    write(folder, posts(0, 3))
    with running(SQL, folder) as app:
        top = answered(app, "campaign", START + 2 * MINUTE)
        show("Who publishes the most sales:", top.rows)

        for text, first, last in ((BY_LOCATION, 3, 7), (BY_FOLLOWERS, 7, 11)):
            for change in app.replace("campaign", text):
                print(f"\n{change}")
            write(folder, posts(first, last))
            zoomed = answered(app, "campaign", START + (last - 1) * MINUTE)
            show(f"By version {zoomed.version}:", zoomed.rows)
            show("Suspects were those of:", zoomed.used)

        app.set("campaign", "few", 50)
        write(folder, posts(11, 15))
        fewest = answered(app, "campaign", START + 14 * MINUTE)
        show("With fewer than 50 followers:", fewest.rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="spam-") as made:
            main(Path(made))
