"""Any exchange, out in each format that comes back, and in again."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.recorded import Foreign, Kept, LeftOut
from gymtap.proxy.export.flows import write_flows
from gymtap.proxy.export.har import har
from gymtap.proxy.export.lines import exchange_document
from gymtap.proxy.imports import read
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Finding,
    Headers,
    Method,
    Request,
    Response,
    RowKey,
    Server,
    ServerKind,
    Severity,
    State,
    TransportError,
    TransportErrorKind,
)

SERVER = Server(name="model", kind=ServerKind.MODEL, listen="http://127.0.0.1:1", upstream="https://host.example:9443")
names = st.from_regex(r"[A-Za-z][A-Za-z-]{0,10}", fullmatch=True)
latin = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=10).map(str.strip)
headers = st.lists(st.tuples(names, latin) | st.just(("X-Twice", "1")), max_size=5).map(tuple)
targets = st.from_regex(r"/[!-~]{0,20}", fullmatch=True) | st.sampled_from(
    ["*", "http://else.example/x?y", "//x", "/a#b?c", "/%2F?q=%00&q", "/a b", "/\\xff", "host:443", "/[", "//[x/y"]
)
contents = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode) | st.just(b"data: {}\n\ndata: [DO")
milliseconds = st.floats(0, 1e7)


def body_of(content: bytes | None, present: bool) -> Body | None:
    if not content:
        return Body(digest=None, size_bytes=7, missing_bytes=7) if present else None
    return Body(digest="0" * 64, size_bytes=len(content))


@st.composite
def exchanges(draw: st.DrawFn, number: int = 1) -> Kept:
    """Whole, failed or open; answered or not; with bodies that are whole, lost, binary, or none."""
    state = draw(st.sampled_from(State))
    answered = state is State.DONE or draw(st.booleans())
    asked, said = draw(contents), draw(contents) if answered else None
    ended_ms = None if state is State.OPEN else draw(milliseconds)
    error = TransportError(kind=draw(st.sampled_from(TransportErrorKind)), message=draw(latin))
    key = RowKey(task=draw(st.integers(0, 9)), rollout=1, agent=draw(st.none() | st.just("agent")))
    exchange = Exchange(
        id=f"a{number}",
        server="model",
        kind=ServerKind.MODEL,
        call=draw(st.sampled_from(Call)),
        state=state,
        started_ns=draw(st.integers(10**18, 2 * 10**18)),
        request=Request(
            method=draw(st.sampled_from(["GET", "POST", "WEIRD-1"])),
            target=draw(targets),
            headers=draw(headers),
            http_version=draw(st.sampled_from(["1.1", "1.0", "2.0"])),
            body=body_of(asked, present=draw(st.booleans())),
        ),
        response=Response(
            status=draw(st.integers(100, 599)),
            reason=draw(latin),
            headers=draw(headers),
            body=body_of(said, present=draw(st.booleans())),
            first_byte_ms=0.0 if ended_ms is None else ended_ms / 2,
            ended_ms=ended_ms if state is State.DONE else None,
        )
        if answered
        else None,
        error=error if state is State.FAILED else None,
        duration_ms=ended_ms,
        parent=draw(st.none() | st.just("a0")),
        caller=draw(st.none() | st.just("agent")),
        attempt=draw(st.integers(0, 3)),
        attribution=draw(
            st.just(Attribution())
            | st.builds(Attribution, row=st.just(key), method=st.sampled_from(Method), evidence=latin)
            | st.just(Attribution(confidence=Confidence.AMBIGUOUS, candidates=(key, key)))
        ),
    )
    finding = Finding(rule="x", severity=Severity.NOTE, message=draw(latin), exchange=exchange.id)
    return Kept(exchange, SERVER, asked or None, said or None, draw(st.sampled_from([(), (finding,)])))


several = st.integers(1, 2).flatmap(lambda count: st.tuples(*(exchanges(number) for number in range(1, count + 1))))


def as_lines(kept: Iterable[Kept], file: Path) -> None:
    file.write_bytes(b"".join(orjson.dumps(exchange_document(one)) + b"\n" for one in kept))


def as_flows(kept: Iterable[Kept], file: Path) -> None:
    with file.open("wb") as out:
        write_flows(kept, out)


def items(file: Path) -> list[object]:
    return [item for recording in read(file) for item in recording.items]


@pytest.mark.parametrize("write", [as_lines, as_flows], ids=["jsonl", "mitm"])
@settings(max_examples=40, deadline=None)
@given(kept=several)
def test_it_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, write: Callable[[Iterable[Kept], Path], None], kept: tuple[Kept, ...]
) -> None:
    """Every field, every byte, in any state."""
    file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}"
    write(kept, file)
    assert items(file) == list(kept)


def seen(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def lost(kept: Kept) -> list[Body]:
    """The bodies that there were, and that are not there."""
    answer = kept.exchange.response
    sides = (kept.exchange.request.body, kept.request_body), (answer.body if answer else None, kept.response_body)
    return [body for body, content in sides if body is not None and content is None]


@settings(max_examples=40, deadline=None)
@given(kept=several)
def test_a_har_keeps_what_crossed_the_wire(tmp_path_factory: pytest.TempPathFactory, kept: tuple[Kept, ...]) -> None:
    """Method, target, version, headers in order and case, bodies, status, how it broke, and when.

    A body that the capture does not have is told of, and not taken for an empty one.
    """
    file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}.har"
    file.write_bytes(b"".join(har(kept, "1")))
    found = items(file)
    told = [item for item in found if isinstance(item, LeftOut)]
    assert len(told) == sum(len(lost(one)) for one in kept)
    for one, given_back in zip(kept, [item for item in found if item not in told], strict=True):
        assert isinstance(given_back, Foreign)
        asked, answer, error = one.exchange.request, one.exchange.response, one.exchange.error
        assert (given_back.method, given_back.target) == (asked.method, asked.target)
        assert (given_back.http_version, given_back.started_ns) == (asked.http_version, one.exchange.started_ns)
        assert given_back.request_headers == seen(asked.headers)
        assert given_back.request_body == (one.request_body or b"")
        assert given_back.status == (answer.status if answer else None)
        assert given_back.response_headers == seen(answer.headers if answer else ())
        assert given_back.response_body == (one.response_body or b"")
        assert given_back.error == error
        assert given_back.server == SERVER.model_copy(update={"listen": ""})
        assert (given_back.key, given_back.parent) == (one.exchange.id, one.exchange.parent)


@pytest.mark.parametrize("write", [as_lines, as_flows], ids=["jsonl", "mitm"])
@settings(max_examples=40, deadline=None)
@given(kept=st.tuples(exchanges(1), exchanges(2)), data=st.data())
def test_what_is_spoiled_costs_no_more_than_itself(
    tmp_path_factory: pytest.TempPathFactory,
    write: Callable[[Iterable[Kept], Path], None],
    kept: tuple[Kept, ...],
    data: st.DataObject,
) -> None:
    """Whatever is in the place of the last one, or however much of it is there, those before it come back equal."""
    file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}"
    write(kept[-1:], file)
    last = file.read_bytes()
    write(kept[:-1], file)
    kept_bytes = data.draw(st.integers(0, len(last) - 2))
    spoiled = last[:kept_bytes] + data.draw(st.sampled_from([b"", b"\xff\n", b"}\n", b"0:~", b"9:"]))
    with file.open("ab") as out:
        out.write(spoiled)
    found = items(file)
    assert found[: len(kept) - 1] == list(kept[:-1])
    rest = found[len(kept) - 1 :]
    assert rest == [kept[-1]] or all(isinstance(one, LeftOut) for one in rest)
