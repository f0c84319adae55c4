"""HTTP/1.1 framing, as pure functions: where a head ends, where a body ends, what a tap edits in between.

The non-obvious decision: messages are relayed as the bytes that came. A head is edited line by line, only
where a hop-by-hop or causality field asks for it, and a body's bytes are never re-framed: scanners find its
end and undo the transfer coding for the record, so chunk sizes, extensions and trailers pass as they are.
"""

import re
from dataclasses import dataclass, field
from typing import Protocol

type RawHeaders = tuple[tuple[bytes, bytes], ...]

MAX_HEAD_BYTES = 16 * 2**20
"""A head that has not ended by then is taken for something else than HTTP/1.1."""
MAX_CHUNK_LINE_BYTES = 64 * 2**10
"""The longest chunk-size or trailer line (RFC 9112, 7.1.1 asks recipients to have a limit)."""

# RFC 9110, 7.6.1: to be removed even where Connection does not name them. Transfer-Encoding is on that list
# too, and stays: the coding is relayed as it is. Trailer stays for the same reason.
_HOP_BY_HOP = frozenset({b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
_CONNECTION = b"connection"
_EDITED = _HOP_BY_HOP | {_CONNECTION}
# Options that the tap itself honours towards the other side, because it pairs the two connections.
_OWN_OPTIONS = frozenset({b"close", b"keep-alive", b"upgrade"})
# A Connection option may not remove what frames or routes the message.
_PROTECTED = frozenset({b"content-length", b"transfer-encoding", b"host", b"trailer"})

_HEAD_END = re.compile(rb"\n\r?\n")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^ \r\n]+) HTTP/(1\.\d)\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/(1\.\d) (\d{3})(?: ([^\r\n]*))?\r?\n")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*:[ \t]*(.*?)[ \t]*", re.DOTALL)
_FOLD = re.compile(rb"\r?\n[ \t]+")
_DIGITS = re.compile(rb"[0-9]+")
_HEX = re.compile(rb"[0-9A-Fa-f]+")


class MalformedError(Exception):
    """The bytes are not HTTP/1.1. `str(error)` is one line."""


@dataclass(slots=True)
class Head:
    """A message's head. `raw` is all of it, blank line included; `names` are its fields' in lower case."""

    raw: bytes
    version: str
    headers: RawHeaders
    names: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.names = frozenset([name.lower() for name, _ in self.headers])

    def values(self, name: bytes) -> list[bytes]:
        """The values of a field (its name in lower case), in order."""
        if name not in self.names:
            return []
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(slots=True)
class RequestHead(Head):
    """A request's head; `target` is as sent."""

    method: str
    target: str


@dataclass(slots=True)
class ResponseHead(Head):
    """A response's head."""

    status: int
    reason: str


def head_end(data: bytes, start: int = 0) -> int:
    """Where the head in `data` ends (just after its blank line), or -1. Bytes before `start` were looked at before."""
    match = _HEAD_END.search(data, max(0, start - 2))
    return match.end() if match else -1


def check_start(data: bytes, *, response: bool) -> None:
    """Refuse early what cannot become a head, so that nobody waits for the end of one. Raises MalformedError."""
    line_end = data.find(b"\n") + 1
    if line_end:
        pattern = _STATUS_LINE if response else _REQUEST_LINE
        if not pattern.fullmatch(data, 0, line_end):
            raise MalformedError(f"not the first line of an HTTP/1.1 message: {data[: min(line_end, 80)]!r}")
    elif response and b"HTTP/1."[: len(data)] != data[:7]:
        raise MalformedError(f"not a status line: {data[:40]!r}")
    elif not response and not _may_be_request(data):
        raise MalformedError(f"not a request line: {data[:40]!r}")
    if len(data) > MAX_HEAD_BYTES:
        raise MalformedError(f"a head without an end in {MAX_HEAD_BYTES} bytes")


def _may_be_request(data: bytes) -> bool:
    return _FIELD.match(data.partition(b" ")[0][:32] + b":") is not None


def read_request(raw: bytes) -> RequestHead:
    """Read a head more leniently than a server would: what two peers may agree on, a tap must not refuse.

    Raises MalformedError for what is no head at all.
    """
    match = _REQUEST_LINE.match(raw)
    if match is None:
        raise MalformedError(f"not a request line: {raw[:80]!r}")
    method, target, version = (part.decode("latin-1") for part in match.groups())
    return RequestHead(raw, version, _fields(raw[match.end() :]), method, target)


def read_response(raw: bytes) -> ResponseHead:
    """Read a response's head leniently; see `read_request`."""
    match = _STATUS_LINE.match(raw)
    if match is None:
        raise MalformedError(f"not a status line: {raw[:80]!r}")
    version, status, reason = match.groups(b"")
    fields = _fields(raw[match.end() :])
    return ResponseHead(raw, version.decode(), fields, int(status), reason.decode("latin-1"))


def _fields(block: bytes) -> RawHeaders:
    fields = []
    for line in _lines(block):
        match = _FIELD.fullmatch(line.rstrip(b"\r\n"))
        if match is None:
            raise MalformedError(f"not a header field: {line[:80]!r}")
        fields.append((match[1], _FOLD.sub(b" ", match[2])))
    return tuple(fields)


def _lines(block: bytes) -> list[bytes]:
    """The block's field lines with their ends; a folded line stays with its first; the blank line is left out."""
    lines: list[bytes] = []
    for text in block.split(b"\n")[:-1]:
        line = text + b"\n"
        if text in {b"\r", b""}:
            continue
        if line[:1] in {b" ", b"\t"} and lines:
            lines[-1] += line
        else:
            lines.append(line)
    return lines


def relay_head(head: Head, *, header: bytes = b"", value: bytes | None = None) -> bytes:
    """The head as it goes on: without hop-by-hop fields (RFC 9110, 7.6.1), otherwise byte for byte.

    `header`, in lower case, names a field to take out; with `value` it is put in (in place, or last) instead.
    """
    raw = head.raw
    if head.names.isdisjoint(_EDITED) and header not in head.names:
        if value is None:
            return raw
        blank = raw.rindex(b"\n", 0, -1) + 1
        return raw[:blank] + header + b": " + value + b"\r\n" + raw[blank:]
    drop = _hop_by_hop(head)
    first_end = raw.index(b"\n") + 1
    out = [raw[:first_end]]
    for line in _lines(raw[first_end:]):
        name = line.partition(b":")[0].rstrip().lower()
        if name == header:
            if value is not None:
                out.append(line.partition(b":")[0] + b": " + value + b"\r\n")
                value = None
        elif name == _CONNECTION:
            out.append(_own_options(line))
        elif name not in drop:
            out.append(line)
    if value is not None:
        out.append(header + b": " + value + b"\r\n")
    return b"".join(out) + b"\r\n"


def _hop_by_hop(head: Head) -> frozenset[bytes]:
    named = {option for value in head.values(_CONNECTION) for option in _tokens(value)}
    drop = (_HOP_BY_HOP | named) - _PROTECTED
    return drop - {b"upgrade"} if b"upgrade" in named else drop


def _own_options(line: bytes) -> bytes:
    name, _, value = line.partition(b":")
    tokens = [token for token in _tokens(value) if token]
    if all(token in _OWN_OPTIONS for token in tokens):
        return line
    own = b", ".join(token for token in tokens if token in _OWN_OPTIONS)
    return name + b": " + own + b"\r\n" if own else b""


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip().lower() for token in value.split(b",")]


def without_header(raw: bytes, header: bytes) -> bytes:
    """Take a field out of bytes that could not be read as a head."""
    return re.sub(rb"(?im)^" + re.escape(header) + rb"[ \t]*:[^\n]*\n", b"", raw)


class Body(Protocol):
    """Finds a body's end. One scanner reads one body."""

    def scan(self, data: bytes) -> tuple[int, list[bytes], bool]:
        """Take the next bytes: how many of them are the body's, its content in them, and whether it is whole.

        Raises MalformedError; what came before the fault in the same call is not reported.
        """


class LengthBody:
    """`Content-Length` bytes."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    def scan(self, data: bytes) -> tuple[int, list[bytes], bool]:
        """See `Body.scan`."""
        size = len(data)
        if size <= self._left:
            self._left -= size
            return size, [data] if size else [], self._left == 0
        size, self._left = self._left, 0
        return size, [data[:size]] if size else [], True


class UntilCloseBody:
    """All that comes until the connection ends."""

    __slots__ = ()

    def scan(self, data: bytes) -> tuple[int, list[bytes], bool]:
        """See `Body.scan`; never whole before the connection's end."""
        return len(data), [data] if data else [], False


class ChunkedBody:
    """The chunked coding (RFC 9112, 7.1): its content without sizes, extensions and trailers."""

    __slots__ = ("_left", "_line", "_state")

    def __init__(self) -> None:
        self._state = "size"
        self._line = b""
        self._left = 0

    def scan(self, data: bytes) -> tuple[int, list[bytes], bool]:
        """See `Body.scan`."""
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size and self._state != "done":
            if self._state == "data":
                piece = data[at : at + self._left] if at or size > self._left else data
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = "data_end"
                continue
            end = data.find(b"\n", at) + 1 or size
            self._line += data[at:end]
            at = end
            if self._line.endswith(b"\n"):
                self._line_read()
            elif len(self._line) > MAX_CHUNK_LINE_BYTES:
                raise MalformedError("a chunk-size or trailer line without an end")
        return at, pieces, self._state == "done"

    def _line_read(self) -> None:
        line, self._line = self._line.rstrip(b"\r\n"), b""
        if self._state == "size":
            digits = line.partition(b";")[0].strip(b" \t")
            if not _HEX.fullmatch(digits):
                raise MalformedError(f"not a chunk size: {line[:40]!r}")
            self._left = int(digits, 16)
            self._state = "data" if self._left else "trailer"
        elif self._state == "data_end":
            if line:
                raise MalformedError(f"bytes after a chunk's end: {line[:40]!r}")
            self._state = "size"
        elif not line:
            self._state = "done"


def request_body(head: RequestHead) -> Body | None:
    """How the request's body is framed (RFC 9112, 6.3); None where there is none. Raises MalformedError."""
    codings, length = _framing(head)
    if codings:
        if codings[-1] != b"chunked":
            raise MalformedError("a request whose last transfer coding is not chunked has no end")
        return ChunkedBody()
    return LengthBody(length) if length else None


def response_body(head: ResponseHead, method: str) -> Body | None:
    """How the body of a final response to `method` is framed (RFC 9112, 6.3); None where there is none.

    Raises MalformedError.
    """
    if method == "HEAD" or head.status in {204, 304} or (method == "CONNECT" and 200 <= head.status < 300):
        return None
    codings, length = _framing(head)
    if codings:
        return ChunkedBody() if codings[-1] == b"chunked" else UntilCloseBody()
    if length is None:
        return UntilCloseBody()
    return LengthBody(length) if length else None


def _framing(head: Head) -> tuple[list[bytes], int | None]:
    """Transfer codings, which win over a length beside them, and the length."""
    codings = [token for value in head.values(b"transfer-encoding") for token in _tokens(value) if token]
    lengths = {token for value in head.values(b"content-length") for token in _tokens(value)}
    if codings or not lengths:
        return codings, None
    length = lengths.pop()
    if lengths or not _DIGITS.fullmatch(length):
        raise MalformedError("Content-Length is not one number")
    return codings, int(length)
