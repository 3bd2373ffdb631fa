"""Where times lie in the log of one source, from a few lines here and there: what need not be read.

SLACK says how far out of order records may be. So a line tells of all lines before it that they are
not later by more than that, and of all lines after it that they are not earlier by more. Places are
taken only where every line that was looked at agrees, so that one wrong time makes more be read,
not less.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from muntin.logs.chunks import Piece, WorkOrder, csv_names, split
from muntin.logs.files import open_same
from muntin.logs.formats import Wanted
from muntin.logs.gunzip import Gunzip, is_gzip
from muntin.logs.records import parse_fields
from muntin.model.records import NOWHERE, POSITION
from muntin.model.streams import Format, Stream

Numbers = NDArray[np.int64]
Ranges = list[tuple[int, int]]
STRIDES = 32 << 10, 512 << 10  # bytes from one look to the next, at least and at most
LOOK = 4 << 10  # bytes that are looked at
LOOKS = 1000  # in a file that is not too short or too long
_LOOKS_AT_ONCE = 1000
FIRST_BYTES = 1 << 20  # in which some line has a time
_NONE = 1 << 62


@dataclass(frozen=True)
class TimeIndex:
    """Looks at the log of a source, in its order: where each is, and the times of its lines.

    A look without a time has a `low` above its `high`. What lies between two looks belongs to the
    first of them.
    """

    orders: Sequence[WorkOrder]
    file: Numbers  # by look, the number of the order
    offset: Numbers
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, orders: Sequence[WorkOrder], stream: Stream, most: int = LOOKS) -> TimeIndex:
        """Looks at the files of a source, of which each is one order, about so often at most."""
        looks = (
            (number, piece)
            for number, order in enumerate(orders)
            for piece in _looks(order, stream.format, most)
        )
        rows: list[tuple[int, int, int, int]] = []
        for _, same in groupby(looks, lambda look: look[1].names):
            while some := list(islice(same, _LOOKS_AT_ONCE)):
                pieces = [piece for _, piece in some]
                for (number, piece), times in zip(some, _times(pieces, stream), strict=True):
                    low, high = times.min(initial=_NONE), times.max(initial=-_NONE)
                    rows.append((number, piece.start, int(low), int(high)))
        file, offset, low, high = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(orders, file, offset, low, high)

    @property
    def first(self) -> int | None:
        """The lowest time of the first lines that have one."""
        known = self.low <= self.high
        return int(self.low[known][0]) if known.any() else None

    @property
    def last(self) -> int:
        return int(self.high.max(initial=-_NONE))

    def kept(self, stretches: Numbers, slack_us: int) -> Mapping[str, Ranges]:
        """By path, the bytes in which records of some stretches of time may be."""
        known = np.flatnonzero(self.low <= self.high)
        if not len(known):
            return self._ranges(np.ones(len(self.low), bool))
        # Before a look all is earlier than this, and behind it all is later than that.
        before = np.maximum.accumulate(self.high[known]) + slack_us
        behind = np.minimum.accumulate(self.low[known][::-1])[::-1] - slack_us
        starts = np.searchsorted(before, stretches[:, 0]) - 1
        stops = np.searchsorted(behind, stretches[:, 1])
        begin = np.where(starts < 0, 0, known[np.maximum(starts, 0)])
        end = np.append(known, len(self.low))[stops]
        needed = np.zeros(len(self.low) + 1, np.int64)
        np.add.at(needed, begin, 1)
        np.add.at(needed, np.maximum(begin, end), -1)
        return self._ranges(np.cumsum(needed[:-1]) > 0)

    def _ranges(self, needed: NDArray[np.bool_]) -> dict[str, Ranges]:
        kept: dict[str, Ranges] = {}
        for number, order in enumerate(self.orders):
            mine = np.flatnonzero(self.file == number)
            ends = [*self.offset[mine].tolist(), order.end]
            ranges: Ranges = []
            for (start, stop), is_needed in zip(pairwise(ends), needed[mine], strict=True):
                if is_needed and ranges and ranges[-1][1] == start:
                    ranges[-1] = ranges[-1][0], stop
                elif is_needed:
                    ranges.append((start, stop))
            kept[order.path] = ranges
        return kept


def first_time(order: WorkOrder, stream: Stream) -> int | None:
    """The lowest time of the first lines of a file that have one, if some of the first do."""
    format_ = stream.format
    with open_same(Path(order.path), order.fingerprint) as file:
        names = tuple(csv_names(file, order.path, format_)) if format_.kind == "csv" else None
        packed = is_gzip(order.path)
        file.seek(order.start)
        text = io.BufferedReader(Gunzip(file, order.start, order.end)) if packed else file
        for size in (LOOK, *[FIRST_BYTES // 4] * 4):
            lines = text.read(size if packed else min(size, order.end - file.tell()))
            lines += text.readline()
            piece = Piece(order.start, lines, b"", names)
            times = next(_times([piece], stream)) if lines else np.array([], np.int64)
            if len(times) or not lines:
                return int(times.min()) if len(times) else None
    return None


def _looks(order: WorkOrder, format_: Format, most: int) -> Iterator[Piece]:
    """Some whole lines here and there; of a compressed file only the first ones."""
    with open_same(Path(order.path), order.fingerprint) as file:
        names = tuple(csv_names(file, order.path, format_)) if format_.kind == "csv" else None
        if is_gzip(order.path):
            unpacked = io.BufferedReader(Gunzip(file, order.start, order.end))
            yield _whole_lines(order.start, unpacked.read(LOOK), names, True)
            return
        stride = int(np.clip((order.end - order.start) // most, *STRIDES))
        for at in range(order.start, order.end, stride):
            is_first = at == order.start
            file.seek(at if is_first else at - 1)  # a line may begin right here
            text = file.read(min(LOOK, order.end - file.tell()))
            yield _whole_lines(at, text, names, is_first)


def _whole_lines(at: int, text: bytes, names: tuple[str, ...] | None, is_first: bool) -> Piece:
    begin = 0 if is_first else text.find(b"\n") + 1
    end = text.rfind(b"\n") + 1
    return Piece(at, text[begin:end] if begin < end else b"", b"", names)


def _times(pieces: Sequence[Piece], stream: Stream) -> Iterator[Numbers]:
    """The times of the lines of each piece that have one."""
    bundle = split(pieces, stream.format, False)
    records = parse_fields(bundle.fields, stream, Wanted(()), "some lines", torn=True)
    times = np.asarray(records.column(POSITION).combine_chunks().fill_null(NOWHERE), np.int64)
    for start, stop in pairwise(accumulate(bundle.rows, initial=0)):
        mine = times[start:stop]
        yield mine[mine != NOWHERE]
