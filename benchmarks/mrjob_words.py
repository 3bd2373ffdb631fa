"""Word count as a job of mrjob: with a mapper, a combiner and a reducer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mrjob.job import MRJob


class Words(MRJob):  # type: ignore[misc]
    def mapper(self, _: None, line: str) -> Iterator[tuple[str, int]]:
        for word in line.lower().split(" "):
            yield word, 1

    def combiner(self, word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield word, sum(counts)

    def reducer(self, word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield word, sum(counts)
