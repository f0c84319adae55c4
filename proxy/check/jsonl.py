"""One line of JSON Lines: its value, and everything that is wrong with it as text.

orjson decides, as it does in Gym: it refuses NaN and lone surrogates, which Python's own parser lets through.
Only a line that it refuses, or that has more keys than its value, is read a second time, slowly, for the place.
Columns count characters from 1, as editors do.
"""

import json
import re
from typing import Any, NamedTuple

import orjson

from gymtap.schemas import Finding, Severity

BOM = b"\xef\xbb\xbf"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONSTANT = re.compile(r"-?\b(?:NaN|Infinity)\b")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_AROUND = 30
_MAX_RECORDS = 1000


class Line(NamedTuple):
    """`value` is None when the line is not JSON; `findings` say why, or what else is odd."""

    value: Any
    findings: tuple[Finding, ...]


def parse_line(line: bytes, *, first: bool = False, last: bool = False) -> Line:
    """Read one line, with or without its newline; `first` and `last` are of the file. An empty line has no value."""
    findings: list[Finding] = []
    if first and line.startswith(BOM):
        line = line[len(BOM) :]
        findings.append(
            _finding("rows.bom", Severity.ERROR, "the file starts with a byte order mark, which Gym refuses (column 1)",
                     fix="Write it as UTF-8 without BOM.")
        )  # fmt: skip
    cut = last and not line.endswith(b"\n")
    if line.endswith(b"\r\n"):
        findings.append(_finding("rows.crlf", Severity.NOTE, "lines end in CR LF; Gym reads them"))
    text = line.strip()
    if not text:
        findings.append(
            _finding("rows.empty_line", Severity.ERROR, "an empty line, at which Gym refuses the whole file",
                     fix="Remove the line.")
        )  # fmt: skip
        return Line(None, tuple(findings))
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return Line(None, (*findings, _reason(text, error, cut=cut)))
    if _keys_missing(text, value):
        findings += _duplicate_keys(text)
    return Line(value, tuple(findings))


_FORMATS = {
    b"\x1f\x8b": ("compressed (gzip)", "gunzip it"),
    b"\x28\xb5\x2f\xfd": ("compressed (zstd)", "unzstd it"),
    b"BZh": ("compressed (bzip2)", "bunzip2 it"),
    b"\xfd7zXZ": ("compressed (xz)", "unxz it"),
    b"PK\x03\x04": ("a zip archive", "unzip it"),
    b"PAR1": ("Parquet", "write its rows as JSON Lines"),
    b"SQLite format 3": ("an SQLite database", "write its rows as JSON Lines"),
    b"version https://git-lfs": ("a Git LFS pointer", "git lfs pull"),
    b"\xff\xfe": ("UTF-16", "write it as UTF-8"),
    b"\xfe\xff": ("UTF-16", "write it as UTF-8"),
}


def other_format(head: bytes) -> Finding | None:
    """What a file is that begins so and is not JSON Lines, so that it is said once and not of every line."""
    kind = next((said for magic, said in _FORMATS.items() if head.startswith(magic)), None)
    first, _, rest = head.removeprefix(BOM).lstrip().partition(b"\n")
    if kind is None and (first.startswith(b"[") or (first.strip() == b"{" and rest[:1] in (b" ", b"\t", b'"'))):
        kind = ("one JSON document", "write each row on a line of its own, as jq -c does")
    if kind is None:
        return None
    message = f"the file is {kind[0]}; Gym reads JSON Lines, in UTF-8"
    return _finding("rows.format", Severity.ERROR, message, fix=f"{kind[1][0].upper()}{kind[1][1:]}.")


def _finding(rule: str, severity: Severity, message: str, **more: str) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, **more)


def _reason(data: bytes, error: orjson.JSONDecodeError, *, cut: bool) -> Finding:
    try:
        text = data.decode()
    except UnicodeDecodeError as wrong:
        column = len(data[: wrong.start].decode(errors="replace")) + 1
        message = f"not UTF-8 at column {column} (byte 0x{data[wrong.start]:02x})"
        return _finding("rows.encoding", Severity.ERROR, message, fix="Write the file as UTF-8.")
    try:
        json.loads(text)
    except json.JSONDecodeError as wrong:
        return _syntax(text, wrong, cut=cut)
    except RecursionError:
        return _finding("rows.json", Severity.ERROR, "nested too deeply to be read")
    return _lenient_only(text, error)


def _syntax(text: str, error: json.JSONDecodeError, *, cut: bool) -> Finding:
    column = error.pos + 1
    if error.msg == "Extra data" and text[error.pos] in "{[":
        return _fused(text, column)
    if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
        where = f"the record ends in the middle, at column {len(text) + 1}"
        end = " (the file was cut there)" if cut else ""
        return _finding(
            "rows.truncated", Severity.ERROR, where + end, found=_near(text, len(text)),
            fix="Write the record again, or drop the line.",
        )  # fmt: skip
    message = f"not JSON: {error.msg.removesuffix(' at')} at column {column}"
    return _finding("rows.json", Severity.ERROR, message, found=_near(text, error.pos))


def _fused(text: str, column: int) -> Finding:
    """Several records on one line: how many of them can be read decides what to do."""
    decoder, at, count = json.JSONDecoder(), 0, 0
    try:
        while at < len(text) and count < _MAX_RECORDS:
            _value, at = decoder.raw_decode(text, at)
            at += len(text[at:]) - len(text[at:].lstrip())
            count += 1
        whole = f"{count} whole objects"
    except json.JSONDecodeError:
        whole = f"{count} whole objects and a broken one"
    return _finding(
        "rows.fused",
        Severity.ERROR,
        f"Extra data at column {column}: {whole} on one line",
        found=_near(text, column - 1),
        fix=f"Put a newline before column {column}.",
    )


def _lenient_only(text: str, error: orjson.JSONDecodeError) -> Finding:
    """Python's parser takes it and orjson, Gym's, does not."""
    bare = _STRING.sub(lambda match: b" " * len(match[0].decode()), text.encode()).decode()
    if constant := _CONSTANT.search(bare):
        column = constant.start() + 1
        message = (
            f"{constant[0]} at column {column} is not JSON; a server that echoes it in an error answers a bare 500"
        )
        return _finding(
            "rows.nan", Severity.ERROR, message, found=_near(text, column - 1), fix="Write null, or drop it."
        )
    if surrogate := _lone_surrogate(text):
        message = f"a lone surrogate at column {surrogate.start() + 1} is no character"
        return _finding("rows.surrogate", Severity.ERROR, message, found=surrogate[0])
    return _finding("rows.json", Severity.ERROR, f"not JSON: {error.msg}", found=_near(text, error.pos))


def _lone_surrogate(text: str) -> re.Match[str] | None:
    high: re.Match[str] | None = None  # one that waits for its low half
    for match in _SURROGATE.finditer(text):
        is_low = match[0][3] in "cdefCDEF"
        if is_low and high is not None and high.end() == match.start():
            high = None
        elif is_low or high is not None:
            return high or match
        else:
            high = match
    return high


def _near(text: str, at: int) -> str:
    return text[max(0, at - _AROUND) : at + _AROUND]


def _keys_missing(text: bytes, value: Any) -> bool:
    """Whether the text may have more keys than its value: both are written with as many `":` when it has not."""
    return text.count(b'":') != orjson.dumps(value).count(b'":')


def _duplicate_keys(data: bytes) -> list[Finding]:
    doubled: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: set[str] = set()
        doubled.extend(key for key, _value in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None, as wanted
        return dict(items)

    json.loads(data, object_pairs_hook=pairs)
    return [
        _finding(
            "rows.duplicate_key", Severity.WARNING, f"the key {key!r} occurs twice in one object: the last one wins"
        )
        for key in doubled[:3]
    ]
