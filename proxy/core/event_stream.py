"""Server-sent events (text/event-stream, WHATWG HTML 9.2), as providers stream answers: what is one, and its events.

A body is told by how it begins, not by its header, which recordings may lack.
"""

from collections.abc import Iterator

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_event_stream(data: bytes) -> bool:
    """Whether it begins with one of an event's fields, or with a comment, as routers keep a slow stream alive."""
    return data.lstrip().startswith(_FIELDS)


def blocks(data: bytes) -> Iterator[tuple[str, str]]:
    """Each event's type (empty where it has none) and data, as text; comments and the rest are passed over."""
    for block in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        fields = [line.partition(b":") for line in block.split(b"\n")]
        told = {b"event": list[bytes](), b"data": list[bytes]()}
        for name, _, value in fields:
            if name in told:
                told[name].append(value.removeprefix(b" "))
        if told[b"event"] or told[b"data"]:
            kind, text = b"".join(told[b"event"][-1:]), b"\n".join(told[b"data"])
            yield kind.decode("utf-8", "replace"), text.decode("utf-8", "replace")
