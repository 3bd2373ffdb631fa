"""Three applications that use one another, and questions to them while they run.

Servers of a shop log clicks, likes and buys. `micro_promotion` finds what is clicked most,
`product_bundling` what is bought together, and `sale_prediction` joins the results of both for one
product: a question that is asked of another product while all of them run.

    python examples/live/shop.py [FOLDER]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import answered, running, shell, show, write

SQL = Path(__file__).with_suffix(".sql")
START = 1_767_225_600  # 2026-01-01, midnight
SERVERS = ("web-1", "web-2", "web-3")
FAMILIES = (
    ("angry birds", "bad piggies", "cut the rope"),
    ("chess", "go", "backgammon"),
    ("space shooter", "moon lander"),
)
MINUTE = 60


def events(first: int, last: int, seed: int = 1) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each server logs from one minute to another: visitors look at one family of products."""
    for minute in range(first, last):
        chance = random.Random(f"{seed} {minute}")
        for second in range(MINUTE):
            server = SERVERS[second % len(SERVERS)]
            visitor = f"v{chance.randrange(40)}"
            family = FAMILIES[int(visitor[1:]) % len(FAMILIES)]
            kind = chance.choices(("click", "like", "buy"), (6, 2, 1))[0]
            record = {"type": kind, "visitor": visitor, "product": chance.choice(family)}
            yield server, {"ts": START + MINUTE * minute + second, **record}


def main(folder: Path) -> None:
    write(folder, events(0, 17))
    with running(SQL, folder) as app:
        quarter = START + 15 * MINUTE
        promoted = answered(app, "micro_promotion", quarter)
        show("Discounts for what was clicked most:", promoted.rows)
        bundled = answered(app, "product_bundling", quarter)
        show("Often wanted by the same visitors:", bundled.rows[:5])
        write(folder, events(17, 19))  # what has left counts from here on
        predicted = answered(app, "sale_prediction", START + 18 * MINUTE)
        show("How peers of angry birds do:", predicted.rows)

        for change in app.set("sale_prediction", "product", "chess"):
            print(f"\n{change}")
        write(folder, events(19, 22))
        changed = answered(app, "sale_prediction", START + 21 * MINUTE)
        show("How peers of chess do:", changed.rows)
        show("Made with:", changed.used)

        question = (
            "SELECT p.product, p.clicks, b.peer, b.visitors FROM micro_promotion p "
            "JOIN product_bundling b ON b.product = p.product "
            "WHERE p.window_end = (SELECT max(window_end) FROM micro_promotion) "
            "AND b.window_end = p.window_end ORDER BY p.clicks DESC, b.visitors DESC LIMIT 5"
        )
        print("\nAnd from a shell beside it, muntin sql '…':")
        print(shell(folder, question))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="shop-") as made:
            main(Path(made))
