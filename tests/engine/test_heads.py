"""aiohttp's reader and the lenient one agree wherever both can read."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp.http import HttpProcessingError, HttpRequestParser, HttpResponseParser
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.http1 import MalformedError, read_request, read_response
from gymtap.proxy.engine.heads import HeadReader

NAME = st.text("abcXYZ-09_!", min_size=1, max_size=12).map(str.encode)
VALUE = st.text('abc ,;=\t\xe9"\\', max_size=20).map(lambda text: text.encode("latin-1"))
SPACE = st.sampled_from([b"", b" ", b"\t ", b"  "])
FIELDS = st.lists(st.builds(lambda n, a, v, b: n + b":" + a + v + b + b"\r\n", NAME, SPACE, VALUE, SPACE), max_size=8)
METHODS = st.sampled_from([b"GET", b"POST", b"PATCH", b"OPTIONS", b"FETCH"])
TARGETS = st.sampled_from([b"/", b"//a%2Fb?", b"/x?y=%20#z", b"*", b"http://h:1/a?b", b"/\xc3\xa9"])


@pytest.fixture(scope="module")
def reader():
    loop = asyncio.new_event_loop()
    yield HeadReader(loop)
    loop.close()


@given(METHODS, TARGETS, st.sampled_from([b"1.0", b"1.1"]), FIELDS)
def test_requests(reader, method, target, version, fields):
    raw = b"%b %b HTTP/%b\r\nHost: h\r\n%b\r\n" % (method, target, version, b"".join(fields))
    assert reader.request(raw) == read_request(raw)


@given(st.integers(100, 999), st.sampled_from([b"", b" ", b" OK", b" \xe9 b "]), FIELDS)
def test_responses(reader, status, reason, fields):
    raw = b"HTTP/1.1 %d%b\r\n%b\r\n" % (status, reason, b"".join(fields))
    assert reader.response(raw) == read_response(raw)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_head_are_refused_in_one_way_only(reader, junk):
    """With MalformedError: nothing of aiohttp's comes through."""
    raw = junk + b"\r\n\r\n"
    for read in (reader.request, reader.response):
        with suppress(MalformedError):
            assert read(raw).raw == raw


def test_a_refusal_of_the_strict_reader_is_not_the_last_word(reader):
    """llhttp wants a Host, a method that it knows, one length; the two peers may not."""
    raw = b"FETCH / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(HttpProcessingError):
        HttpRequestParser(reader._protocol, reader._loop, 2**16).feed_data(raw)
    assert reader.request(raw).method == "FETCH"
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n"
    with pytest.raises(HttpProcessingError):
        HttpResponseParser(reader._protocol, reader._loop, 2**16).feed_data(raw)
    assert reader.response(raw).status == 200
