"""Word count over servers that do not all use the same words.

Ten servers write text. Most words of a server are its own, so that no server alone, and no sample
of servers, tells how often a word is used. Windows are the last 20 kilobytes of every server.

    python examples/python/word_count.py
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import muntin as mt

SERVERS = 10
WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "ne", "pu") for b in ("ra", "si", "to", "vu", "xe")]


class WordCount(mt.MapReduce):
    window = "20 KILOBYTES"
    columns = {"word": "VARCHAR", "n": "BIGINT"}

    def mapper(self, _: None, line: str) -> Iterator[tuple[str, int]]:
        for word in line.split():
            yield word, 1

    def combiner(self, word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield word, sum(counts)

    reducer = combiner


def write_logs(folder: Path, lines: int = 1000, seed: int = 1) -> None:
    """A word is the likelier on a server the nearer its number is to the server's."""
    random_ = random.Random(seed)
    for server in range(SERVERS):
        near = [1 / (1 + abs(n * SERVERS / len(WORDS) - server)) ** 2 for n in range(len(WORDS))]
        text = "".join(" ".join(random_.choices(WORDS, near, k=8)) + "\n" for _ in range(lines))
        (folder / f"server-{server}.txt").write_text(text)


def program(folder: Path) -> mt.Program:
    stream = f"CREATE STREAM text FROM '{folder}/{{source}}.txt' FORMAT text TIMESTAMP 0"
    return mt.with_job(mt.sql(stream), "words", WordCount, stream="text")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder))
        for result in mt.run(program(Path(folder))):
            top = sorted(result.rows.to_pylist(), key=lambda row: -row["n"])[:5]
            told = ", ".join(f"{row['word']} {row['n']}" for row in top)
            print(f"bytes {result.start:,} to {result.end:,} of every server: {told}")


if __name__ == "__main__":
    main()
