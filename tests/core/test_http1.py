"""Framing as properties: any cutting of the bytes gives the same content and the same end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.http1 import (
    ChunkedBody,
    LengthBody,
    MalformedError,
    UntilCloseBody,
    check_start,
    head_end,
    read_request,
    read_response,
    relay_head,
    request_body,
    response_body,
    without_header,
)

TOKEN = st.text("abcXYZ-09_", min_size=1, max_size=12).map(str.encode)
VALUE = st.text("abc ,;=\t\xe9", max_size=20).map(lambda text: text.encode("latin-1").strip(b" \t"))
FIELDS = st.lists(st.tuples(TOKEN, VALUE), max_size=8)
CHUNKS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"%x", b"%X", b"000%x", b"%x;a=b", b"%x ; q"])),
    max_size=6,
)


def pieces(data, cuts):
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


def scan_all(body, parts):
    """Content, bytes used, and whether the body was whole after them."""
    content, used, whole = b"", 0, False
    for part in parts:
        taken, got, whole = body.scan(part)
        content += b"".join(got)
        used += taken
        if whole:
            break
    return content, used, whole


def head(method=b"GET", fields=(), version=b"1.1"):
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return b"%b /x HTTP/%b\r\n%b\r\n" % (method, version, lines)


def response(status=200, fields=()):
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return read_response(b"HTTP/1.1 %d OK\r\n%b\r\n" % (status, lines))


@given(CHUNKS, FIELDS, st.lists(st.integers(0, 10**4), max_size=12), st.binary(max_size=20))
def test_any_cutting_of_a_chunked_body_gives_its_content_and_its_end(chunks, trailers, cuts, after):
    data = b"".join(form % len(chunk) + b"\r\n" + chunk + b"\r\n" for chunk, form in chunks)
    data += b"0\r\n" + b"".join(b"%b: %b\r\n" % trailer for trailer in trailers) + b"\r\n"
    content = b"".join(chunk for chunk, _ in chunks)
    assert scan_all(ChunkedBody(), pieces(data + after, cuts)) == (content, len(data), True)


@given(st.binary(max_size=200), st.lists(st.integers(0, 10**4), max_size=12))
def test_any_cutting_of_any_bytes_is_read_alike(data, cuts):
    """Also where they are not a chunked body: the fault is found, and at the same place or later."""

    def outcome(parts):
        try:
            return scan_all(ChunkedBody(), parts)
        except MalformedError as error:
            return str(error)

    assert outcome(pieces(data, cuts)) == outcome([data] if data else [])


@given(st.binary(max_size=50), st.binary(max_size=20), st.lists(st.integers(0, 100), max_size=8))
def test_a_length_is_kept_to_the_byte(content, after, cuts):
    if content:
        scanned = scan_all(LengthBody(len(content)), pieces(content + after, cuts))
        assert scanned == (content, len(content), True)


def test_a_body_until_close_is_never_whole():
    assert UntilCloseBody().scan(b"abc") == (3, [b"abc"], False)


@pytest.mark.parametrize(
    "data", [b"\r\n", b"-1\r\n", b"0x5\r\n", b"g\r\n", b"+5\r\n", b"1\r\nab\r\n", b"5_0\r\n", b"1" * 70_000]
)
def test_what_is_not_chunked_is_refused(data):
    with pytest.raises(MalformedError):
        ChunkedBody().scan(data)


@given(FIELDS, st.binary(max_size=20), st.integers(0, 200))
def test_a_heads_end_is_found_wherever_the_search_starts_before_it(fields, after, seen):
    raw = head(fields=fields)
    assert head_end(raw + after, min(seen, len(raw) - 1)) == len(raw)
    assert head_end(raw[:-1]) == -1


@given(FIELDS, st.integers(0, 10**4))
def test_no_beginning_of_a_head_is_refused(fields, cut):
    raw = head(fields=fields)
    check_start(raw[: cut % len(raw)] or raw[:1], response=False)
    raw = b"HTTP/1.1 200 OK\r\n\r\n"
    check_start(raw[: cut % len(raw)] or raw[:1], response=True)


@given(FIELDS)
def test_fields_are_read_as_they_are(fields):
    """Order, case, repetition and latin-1 bytes; only the space around a value is not part of it."""
    assert read_request(head(fields=fields)).headers == tuple(fields)


def test_a_folded_value_is_one_value():
    raw = b"HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\nD: e\r\n\r\n"
    assert read_response(raw).headers == ((b"A", b"b c"), (b"D", b"e"))


@pytest.mark.parametrize(
    "raw", [b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1\r\nA b\r\n\r\n", b"\0\r\n\r\n"]
)
def test_what_is_no_head_is_refused(raw):
    with pytest.raises(MalformedError):
        read_request(raw)


HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"}


@given(FIELDS.map(lambda fields: [field for field in fields if field[0].lower() not in HOP]))
def test_a_head_without_hop_by_hop_fields_is_relayed_byte_for_byte(fields):
    read = read_request(head(fields=fields))
    assert relay_head(read) is read.raw


@given(FIELDS, st.sampled_from([None, b"a7"]), st.booleans())
def test_only_the_named_header_changes(fields, value, present):
    fields = [field for field in fields if field[0].lower() not in HOP]
    given_fields = [*fields, (b"X-P", b"old")] if present else fields
    relayed = read_request(relay_head(read_request(head(fields=given_fields)), header=b"x-p", value=value))
    assert [field for field in relayed.headers if field[0].lower() != b"x-p"] == fields
    assert relayed.values(b"x-p") == ([] if value is None else [value])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (((b"Connection", b"close"),), ((b"Connection", b"close"),)),
        (((b"Connection", b"Keep-Alive, x"), (b"X", b"1")), ((b"Connection", b"keep-alive"),)),
        (((b"Connection", b"x"), (b"X", b"1"), (b"x", b"2"), (b"Y", b"3")), ((b"Y", b"3"),)),
        (((b"TE", b"trailers"), (b"Keep-Alive", b"5"), (b"Proxy-Connection", b"close")), ()),
        (((b"Connection", b"Upgrade"), (b"Upgrade", b"h2c")), ((b"Connection", b"Upgrade"), (b"Upgrade", b"h2c"))),
        (((b"Upgrade", b"h2c"),), ()),
        (((b"Connection", b"content-length"), (b"Content-Length", b"2")), ((b"Content-Length", b"2"),)),
        (
            ((b"Transfer-Encoding", b"chunked"), (b"Trailer", b"x")),
            ((b"Transfer-Encoding", b"chunked"), (b"Trailer", b"x")),
        ),
    ],
)
def test_hop_by_hop_fields_are_for_one_connection(before, after):
    """RFC 9110, 7.6.1."""
    assert read_request(relay_head(read_request(head(fields=before)))).headers == after


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ((), None),
        (((b"Content-Length", b"0"),), None),
        (((b"content-length", b"3"),), LengthBody),
        (((b"Content-Length", b"3, 3"), (b"Content-Length", b"3")), LengthBody),
        (((b"Transfer-Encoding", b"Chunked"),), ChunkedBody),
        (((b"Transfer-Encoding", b"gzip"), (b"transfer-encoding", b"chunked")), ChunkedBody),
        (((b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked")), ChunkedBody),
    ],
)
def test_a_requests_framing(fields, kind):
    body = request_body(read_request(head(b"POST", fields)))
    assert kind is None if body is None else type(body) is kind


@pytest.mark.parametrize(
    "fields", [((b"Content-Length", b"1, 2"),), ((b"Content-Length", b"-1"),), ((b"Transfer-Encoding", b"gzip"),)]
)
def test_a_request_without_a_knowable_end_is_refused(fields):
    with pytest.raises(MalformedError):
        request_body(read_request(head(b"POST", fields)))


@pytest.mark.parametrize(
    ("method", "status", "fields", "kind"),
    [
        ("GET", 200, (), UntilCloseBody),
        ("GET", 200, ((b"Content-Length", b"0"),), None),
        ("GET", 200, ((b"Content-Length", b"5"),), LengthBody),
        ("GET", 200, ((b"Transfer-Encoding", b"chunked"),), ChunkedBody),
        ("GET", 200, ((b"Transfer-Encoding", b"gzip"),), UntilCloseBody),
        ("HEAD", 200, ((b"Content-Length", b"5"),), None),
        ("HEAD", 200, ((b"Transfer-Encoding", b"chunked"),), None),
        ("GET", 204, (), None),
        ("GET", 304, ((b"Content-Length", b"5"),), None),
        ("CONNECT", 200, (), None),
        ("CONNECT", 403, (), UntilCloseBody),
    ],
)
def test_a_responses_framing(method, status, fields, kind):
    body = response_body(response(status, fields), method)
    assert kind is None if body is None else type(body) is kind


def test_a_header_leaves_bytes_that_are_no_head():
    assert without_header(b"GET\r\nX-P: 1\r\nx-p : 2\r\nA: x-p: 3\r\n", b"x-p") == b"GET\r\nA: x-p: 3\r\n"
