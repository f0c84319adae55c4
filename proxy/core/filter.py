r"""The filter language for rows: a line of terms, all of which must hold, read by a parser of its own.

    filter  = [ term { " " term } ]            an empty filter lets every row through
    term    = [ "-" ] ( compare | text )       "-" turns a term round
    compare = FIELD ":" value { "," value }    any of the values
            | FIELD ( ">" | ">=" | "<" | "<=" | "=" | "!=" ) value
    text    = [ "~" ] value                    occurs somewhere in the row's words, in any case
    value   = bare word | '"' anything, with \" and \\ '"'

A field that a row does not have (a reward of None, a layer not known yet) never compares, so that `-reward>0` holds
for it and `reward<=0` does not. What a field's values mean is in FIELDS.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from gymtap.proxy.core.errors import UsageError
from gymtap.schemas import Call, Layer, RowState, ServerKind


class Subject(Protocol):
    """A row, as a filter asks about it; None is not known, or not there."""

    @property
    def label(self) -> str: ...  # as RowKey.label
    @property
    def run(self) -> int: ...  # as RowKey.run
    @property
    def task(self) -> int | None: ...  # as RowKey.task
    @property
    def rollout(self) -> int | None: ...  # as RowKey.rollout
    @property
    def attempt(self) -> int: ...  # as RowKey.attempt
    @property
    def agent(self) -> str | None: ...  # as RowKey.agent
    @property
    def state(self) -> str: ...  # as Row.state
    @property
    def status(self) -> int | None: ...  # as Row.status
    @property
    def reward(self) -> float | None: ...  # as Row.reward
    @property
    def duration_ms(self) -> float | None: ...  # as Row.duration_ms
    @property
    def exchanges(self) -> int: ...  # as Row.exchanges
    @property
    def failed(self) -> int: ...  # as Row.failed_exchanges
    @property
    def began_ns(self) -> int: ...  # as Row.started_ns
    @property
    def open_at(self) -> Collection[str]: ...  # calls and server kinds that are open now
    @property
    def failed_at(self) -> Collection[str]: ...  # calls and server kinds that failed
    @property
    def layer(self) -> str | None: ...  # the diagnosis's layer
    @property
    def cause(self) -> str | None: ...  # the diagnosis's fingerprint
    @property
    def words(self) -> str: ...  # what `~` looks through
    @property
    def marked(self) -> bool: ...  # whether a person marked it


class FilterError(UsageError):
    """Text that is no filter; `position` is the character (from 0) at which it stops being one.

    The hint is the text with a caret under that place.
    """

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(f"{message} (column {position + 1})", pointed(text, position))
        self.position = position


def pointed(text: str, position: int) -> str:
    """The text on one line, and on the next a caret under a place in it."""
    shown = "".join(" " if letter.isspace() else letter for letter in text)
    cells = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shown[:position])
    return f"{shown}\n{' ' * cells}^"


type Test = Callable[[Subject], bool]

FIELDS: Mapping[str, str] = {
    "row": "a label, as in 12.3, 12.3a1 or r2:12.3",
    "task": "the task index, or a range of them: 12, 10-19",
    "rollout": "the rollout index, or a range of them",
    "attempt": "0 for the first",
    "run": "the collector's Nth run",
    "agent": "part of the agent's name",
    "state": "running, done or failed",
    "status": "500, or a class of them: 5xx; none where there is none",
    "reward": "a number; none where there is none",
    "layer": "the failing layer: infra, model_serving, config, …; none for a healthy row",
    "cause": "a cause's fingerprint",
    "boundary": "a call or a server kind with a failed exchange: verify, provider, tool, …",
    "open": "a call or a server kind with an exchange that is open now",
    "began": "when it began, in UTC: 2026-01-31T12:00, 2026-01-31T12:00:03.5",
    "dur": "how long it took: 500ms, 2s, 1.5m, 1h",
    "hops": "how many exchanges it has",
    "failed": "how many of them failed",
    "is": "marked; undiagnosed, of a failed row; or a state",
}

_NAME = re.compile(r"([a-z]+)(:|>=|<=|!=|>|<|=)")
_BARE = re.compile(r'[^\s",]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNIT_MS = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0, None: 1000.0}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_RANGE = re.compile(r"(\d+)-(\d+)")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,9}))?Z?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATUS_CLASS = re.compile(r"([1-9])xx", re.IGNORECASE)

_COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
}

_NUMBERS: Mapping[str, Callable[[Subject], float | None]] = {
    "task": lambda row: row.task,
    "rollout": lambda row: row.rollout,
    "attempt": lambda row: row.attempt,
    "run": lambda row: row.run,
    "status": lambda row: row.status,
    "reward": lambda row: row.reward,
    "began": lambda row: row.began_ns,
    "dur": lambda row: row.duration_ms,
    "hops": lambda row: row.exchanges,
    "failed": lambda row: row.failed,
}

_WORDS: Mapping[str, Callable[[Subject], str | None]] = {
    "row": lambda row: row.label,
    "state": lambda row: row.state,
    "layer": lambda row: row.layer,
    "cause": lambda row: row.cause,
}

_BOUNDARIES = tuple(dict.fromkeys([*map(str, Call), *map(str, ServerKind)]))
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "state": tuple(RowState),
    "layer": tuple(Layer),
    "boundary": _BOUNDARIES,
    "open": _BOUNDARIES,
}
"""Fields whose values are known: another is a slip of the pen, not a filter that finds nothing."""


@dataclass(frozen=True)
class Filter:
    """A filter that was understood. `knows`: whether it asks for what only a diagnosis says."""

    text: str
    tests: tuple[Test, ...]
    knows: bool

    def __call__(self, row: Subject) -> bool:
        """Whether the row passes."""
        for test in self.tests:  # noqa: SIM110  # `all` takes twice as long, of a hundred thousand rows
            if not test(row):
                return False
        return True


def parse(text: str) -> Filter:
    """Read a filter. Raises FilterError, with the position where it is none."""
    try:
        return _read(text)
    except _Wrong as wrong:
        raise FilterError(str(wrong), text, wrong.position) from None


class _Wrong(Exception):  # noqa: N818  # it becomes a FilterError
    """Why, and at which character."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def _read(text: str) -> Filter:
    tests: list[Test] = []
    knows = False
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        negated = text[at] == "-"
        named = _NAME.match(text, at + negated)
        test, at, asks = _compare(text, named) if named else _text(text, at + negated)
        tests.append(_not(test) if negated else test)
        knows = knows or asks
    return Filter(text, tuple(tests), knows)


def _not(test: Test) -> Test:
    return lambda row: not test(row)


def _text(text: str, at: int) -> tuple[Test, int, bool]:
    value, at = _value(text, at + (text[at : at + 1] == "~"))
    wanted = value.casefold()
    return lambda row: wanted in row.words.casefold(), at, True


def _compare(text: str, named: re.Match[str]) -> tuple[Test, int, bool]:
    field, operator = named.groups()
    if field not in FIELDS:
        raise _Wrong(f"there is no field {field!r}: {', '.join(FIELDS)}", named.start())
    values, at = [], named.end()
    while True:
        start = at
        value, at = _value(text, at)
        values.append(_equal(field, value, start) if operator == ":" else _ordered(field, operator, value, start))
        if text[at : at + 1] != "," or operator != ":":
            break
        at += 1
    if text[at : at + 1] not in {"", " ", "\t", "\n"} and not text[at].isspace():
        raise _Wrong(f"after {text[named.start() : at]!r} there must be a space", at)
    return (values[0] if len(values) == 1 else _any(values)), at, field in {"layer", "cause"}


def _any(tests: list[Test]) -> Test:
    return lambda row: any(test(row) for test in tests)


def _value(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] == '"':
        quoted = _QUOTED.match(text, at)
        if quoted is None:
            raise _Wrong("a quote is not closed", at)
        return _ESCAPED.sub(r"\1", quoted[1]), quoted.end()
    bare = _BARE.match(text, at)
    if bare is None:
        raise _Wrong("a value is missing", at)
    return bare[0], bare.end()


def _equal(field: str, value: str, at: int) -> Test:
    if field in _KNOWN and value not in _KNOWN[field]:
        raise _Wrong(f"there is no {field} {value!r}: {', '.join(_KNOWN[field])}", at)
    if field == "boundary":
        return lambda row: value in row.failed_at
    if field == "open":
        return lambda row: value in row.open_at
    if field == "agent":
        part = value.casefold()
        return lambda row: row.agent is not None and part in row.agent.casefold()
    if field == "is":
        return _is(value, at)
    if field in _WORDS:
        word = _WORDS[field]
        return lambda row: word(row) == value
    number = _NUMBERS[field]
    if value == "none":
        return lambda row: number(row) is None
    if span := _span(field, value):
        low, high = span
        return lambda row: (found := number(row)) is not None and low <= found <= high
    return _ordered(field, "=", value, at)


def _is(value: str, at: int) -> Test:
    if value == "marked":
        return lambda row: row.marked
    if value == "undiagnosed":
        return lambda row: row.state == "failed" and row.layer is None
    if value not in _KNOWN["state"]:
        raise _Wrong(f"a row is marked, undiagnosed, running, done or failed, not {value!r}", at)
    return lambda row: row.state == value


def _span(field: str, value: str) -> tuple[float, float] | None:
    """`5xx` of a status, `10-19` of an index."""
    if field == "status" and (of_class := _STATUS_CLASS.fullmatch(value)):
        low = int(of_class[1]) * 100
        return low, low + 99
    if field in {"task", "rollout", "attempt", "run"} and (span := _RANGE.fullmatch(value)):
        return int(span[1]), int(span[2])
    return None


def _ordered(field: str, operator: str, value: str, at: int) -> Test:
    if field not in _NUMBERS:
        raise _Wrong(f"{field} has no order: write {field}:{value}", at)
    number, compare, wanted = _NUMBERS[field], _COMPARES[operator], _amount(field, value, at)
    return lambda row: (found := number(row)) is not None and compare(found, wanted)


def _amount(field: str, value: str, at: int) -> float:
    if field == "began":
        return _instant_ns(value, at)
    if field == "dur":
        time = _DURATION.fullmatch(value)
        if time is None:
            raise _Wrong(f"{value!r} is no duration, as in 500ms, 2s, 1.5m", at)
        return float(time[1]) * _UNIT_MS[time[2]]
    if _NUMBER.fullmatch(value) is None:
        raise _Wrong(f"{value!r} is no number", at)
    return float(value)


def _instant_ns(value: str, at: int) -> int:
    """Nanoseconds since the epoch."""
    wrong = f"{value!r} is no time, as in 2026-01-31T12:00, 2026-01-31T12:00:03.5 (UTC)"
    found = _INSTANT.fullmatch(value)
    if found is None:
        raise _Wrong(wrong, at)
    try:
        began = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    except ValueError:
        raise _Wrong(wrong, at) from None
    return int((began - _EPOCH).total_seconds()) * 10**9 + int((found[2] or "").ljust(9, "0"))


def instant(at_ns: int) -> str:
    """A time since the epoch as `began` reads it, to the nanosecond."""
    seconds, rest = divmod(at_ns, 10**9)
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{fraction}"


def quoted(value: str) -> str:
    """A value as it has to be written in a filter, whatever is in it."""
    if _BARE.fullmatch(value) and value[0] not in "-~" and not _NAME.match(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
