"""Which range of the past a question is about: BETWEEN two times, or LAST so long.

A range stands behind the name of a job in FROM, or behind the other clauses of its SELECT, where it
is for every job that has none of its own. SQL has no such clause, and would take BETWEEN for an
operator; so ranges are found among the words of a text, and cut out of it before it is parsed:

    FROM job BETWEEN …                  behind a name in FROM, it is a range
    FROM job VERSION 2 …                so is this, of panes of one version of the job
    GROUP BY, ORDER BY, LIMIT … BETWEEN there it is one, too; an operator stands in parentheses
    WHERE … BETWEEN                     behind a value or IN (…); behind a column it is an operator
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sqlglot.tokenizer_core import Token, TokenType

from muntin.durations import microseconds
from muntin.errors import LanguageError
from muntin.language.dialect import Muntin

_DAY_US = 86_400_000_000
_VALUES = {TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE, TokenType.NULL}
_DAYS = {"TODAY": 0, "YESTERDAY": 1}


@dataclass(frozen=True)
class Asked:
    """A range as it is written, and where in the text."""

    place: tuple[int, int]
    bounds: tuple[str, str] | None = None  # as they are quoted
    last_us: int = 0
    ago_us: int = 0
    version: int | None = None  # of the job

    @property
    def is_whole(self) -> bool:
        """Whether it is all that there is."""
        return self.bounds is None and not self.last_us


@dataclass(frozen=True)
class Ranges:
    """A text without its ranges, and whose these are, by places in the text.

    The text is as long as before, so that places are the same.
    """

    text: str
    of_tables: Mapping[int, Asked] = field(default_factory=dict)  # by the end of the name
    of_selects: Mapping[int, Asked] = field(default_factory=dict)  # by the place of SELECT
    selects: Sequence[tuple[int, int]] = ()  # where words are, and to which SELECT they belong

    @property
    def every(self) -> tuple[Asked, ...]:
        return (*self.of_tables.values(), *self.of_selects.values())

    def of(self, start: int, *ends: int) -> Asked | None:
        """The range of a job whose name begins there, and ends there, as does what it is called."""
        said = self.behind(start, *ends)
        return replace(said[-1], version=said[0].version) if said else None

    def behind(self, start: int, *ends: int) -> list[Asked]:
        """What is said of its range: a version, and bounds behind that, or one of them."""
        inside = [select for at, select in self.selects if at <= start]
        places = [*(self.of_tables.get(end) for end in ends)]
        places += [self.of_selects.get(inside[-1])] if inside else []
        said: list[Asked] = []
        for asked in places:
            if asked is not None and (not said or (said[-1].is_whole and asked.version is None)):
                said.append(asked)
        return said


def taken_apart(text: str) -> Ranges:
    """The text and its ranges; a LanguageError where one is not as it has to be."""
    finder = _Finder(text, [*Muntin().tokenize(text)])
    return finder.found()


class _Finder:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._opened: list[tuple[int, str, bool]] = []  # SELECT and clause around, if behind IN
        self._select, self._clause = -1, ""
        self._closed_in = False  # whether the last parenthesis closed what follows IN

    def found(self) -> Ranges:
        of_tables: dict[int, Asked] = {}
        of_selects: dict[int, Asked] = {}
        selects: list[tuple[int, int]] = []
        cut, at, ended = list(self._text), 0, 0
        while at < len(self._tokens):
            token = self._tokens[at]
            self._look(at)
            selects.append((token.start, self._select))
            taken = self._taken(at)
            if taken is None:
                at += 1
                continue
            behind, follows = self._tokens[at - 1], at == ended
            asked, at = taken
            ended = at
            if follows and asked.version is not None:
                raise self._error("VERSION stands before the range", *asked.place)
            if follows:
                raise self._error("there is a range already", *asked.place)
            if self._clause in ("FROM", "JOIN"):
                of_tables[behind.end + 1] = asked
            elif self._select in of_selects:
                raise self._error("there is a range already", *asked.place)
            else:
                of_selects[self._select] = asked
            start, end = asked.place
            cut[start:end] = " " * (end - start)
        return Ranges("".join(cut), of_tables, of_selects, tuple(selects))

    def _look(self, at: int) -> None:
        """Follows the clauses of the text."""
        token = self._tokens[at]
        word = token.text.upper()
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            behind_in = at > 0 and self._tokens[at - 1].text.upper() == "IN"
            self._opened.append((self._select, self._clause, behind_in))
        elif kind is TokenType.R_PAREN and self._opened:
            self._select, self._clause, self._closed_in = self._opened.pop()
        elif kind is TokenType.SELECT:
            self._select, self._clause = token.start, "SELECT"
        elif kind is not TokenType.STRING and kind is not TokenType.IDENTIFIER:
            first = word.split()[0] if word else ""
            if first in ("FROM", "JOIN", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "ON",
                         "USING", "QUALIFY", "OFFSET"):  # fmt: skip
                self._clause = first

    def _taken(self, at: int) -> tuple[Asked, int] | None:
        """The range that begins with a word, if one does, and the number of the next word."""
        if at == 0 or self._select < 0:
            return None
        token, kind = self._tokens[at], self._tokens[at].token_type
        if kind is TokenType.BETWEEN and self._is_range(at):
            return self._between(at)
        number = self._at(at + 1)
        if self._clause in ("FROM", "JOIN") and token.text.upper() == "VERSION" and number:
            return self._version(at, number)
        if token.text.upper() == "LAST" and number and number.token_type is TokenType.NUMBER:
            length, end = self._length(at + 1)
            ago, end = self._ago(end)
            return Asked((token.start, self._tokens[end - 1].end + 1), None, length, ago), end
        return None

    def _version(self, at: int, number: Token) -> tuple[Asked, int] | None:
        """The version of a job, and its range if one follows."""
        if number.token_type is not TokenType.NUMBER:
            return None
        if not number.text.isdigit():
            message = "versions are whole numbers, as in VERSION 2"
            raise self._error(message, number.start, number.end + 1)
        asked, end = Asked((0, number.end + 1)), at + 2
        if self._at(end) is not None:
            asked, end = self._taken(end) or (asked, end)
        place = self._tokens[at].start, asked.place[1]
        return replace(asked, place=place, version=int(number.text)), end

    def _is_range(self, at: int) -> bool:
        before = self._tokens[at - 1]
        if before.text.upper() == "NOT":
            return False
        if self._clause in ("FROM", "JOIN", "GROUP", "ORDER", "LIMIT", "OFFSET", "USING"):
            return True
        if before.token_type is TokenType.R_PAREN:
            return self._closed_in
        return before.token_type in _VALUES

    def _between(self, at: int) -> tuple[Asked, int]:
        first, word, second = (self._at(at + i) for i in (1, 2, 3))
        for number, token in ((1, first), (3, second)):
            if token is None or token.token_type is not TokenType.STRING:
                place = token or self._tokens[min(at + number, len(self._tokens)) - 1]
                raise self._error(
                    "expected a quoted time, such as '10:00' or '2026-01-31 10:00'",
                    place.start, place.end + 1,
                )  # fmt: skip
            if number == 1 and (word is None or word.text.upper() != "AND"):
                place = word or token
                raise self._error("expected AND and a quoted time", place.start, place.end + 1)
        assert first is not None
        assert second is not None
        whole = self._tokens[at].start, second.end + 1
        return Asked(whole, (first.text, second.text)), at + 4

    def _length(self, at: int) -> tuple[int, int]:
        number, unit = self._tokens[at], self._at(at + 1)
        try:
            length = microseconds(number.text, "" if unit is None else unit.text)
        except ValueError as error:
            place = unit or number
            raise self._error(str(error), place.start, place.end + 1) from error
        if length <= 0:
            raise self._error("a range is longer than zero", number.start, number.end + 1)
        return length, at + 2

    def _ago(self, at: int) -> tuple[int, int]:
        """How long ago a range ends, where that is said."""
        number, word = self._at(at), self._at(at + 2)
        if number is None or number.token_type is not TokenType.NUMBER:
            return 0, at
        if word is None or word.text.upper() != "AGO":
            place = word or number
            raise self._error("expected AGO behind this length", place.start, place.end + 1)
        length, end = self._length(at)
        return length, end + 1

    def _at(self, index: int) -> Token | None:
        return self._tokens[index] if index < len(self._tokens) else None

    def _error(self, message: str, start: int, end: int) -> LanguageError:
        return LanguageError(message, self._text, start, end)


def positions_of(asked: Asked | None, began: int, until: int, text: str) -> tuple[int, int]:
    """Where a range begins and ends, as microseconds, of panes that lie between two positions.

    Times without a day are of the day on which the panes end. Without a range, it is all of them.
    """
    if asked is None or asked.is_whole:
        return began, until
    if asked.bounds is None:
        end = until - asked.ago_us
        return end - asked.last_us, end
    day = (until - 1) // _DAY_US * _DAY_US
    start, end = (_position(each, day, text, asked.place) for each in asked.bounds)
    if end <= start:
        message = f"'{asked.bounds[1]}' is not behind '{asked.bounds[0]}'"
        if all(":" in each and len(each) <= 8 for each in asked.bounds):
            message += "; a range over midnight has 'yesterday 23:00' or whole dates"
        raise LanguageError(message, text, *asked.place)
    return start, end


def _position(written: str, day: int, text: str, place: tuple[int, int]) -> int:
    words = written.strip()
    first, _, rest = words.partition(" ")
    if first.upper() in _DAYS:
        day -= _DAYS[first.upper()] * _DAY_US
        words = rest.strip() or "00:00"
    try:
        if words == "24:00":
            return day + _DAY_US
        if ":" in words and "-" not in words and len(words) <= 15:
            padded = words if len(words.partition(":")[0]) == 2 else f"0{words}"
            moment = datetime.fromisoformat(f"1970-01-01T{padded}").replace(tzinfo=UTC)
            return day + _us(moment)
        moment = datetime.fromisoformat(words)
    except ValueError as error:
        raise LanguageError(
            f"'{written}' is not a time; expected '10:00', 'yesterday 10:00' or "
            "'2026-01-31 10:00', in UTC unless it says otherwise",
            text,
            *place,
        ) from error
    return _us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
