"""Bodies come back as they went in, whatever they were spliced from, and conversations stay small."""

import hashlib
import json
import random

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.store.bodies import MAX_DEPTH, BodyEncoder, Stored, splice


def digest_of(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def decode(stored: dict[bytes, Stored], digest: bytes) -> bytes:
    body = stored[digest]
    new = zstandard.ZstdDecompressor().decompress(body.data)
    if body.base is None:
        return new
    return splice(decode(stored, body.base), body.prefix_bytes, new, body.suffix_bytes)


def encode_all(encoder: BodyEncoder, bodies: list[bytes]) -> dict[bytes, Stored]:
    stored: dict[bytes, Stored] = {}
    for body in bodies:
        if digest_of(body) not in stored:
            stored[digest_of(body)] = encoder.encode(body, digest_of(body))
    return stored


def conversation(turns: int, words: random.Random) -> list[bytes]:
    messages: list[str] = []
    bodies = []
    for _ in range(turns):
        messages.append(" ".join(f"{words.getrandbits(40):x}" for _ in range(80)))
        bodies.append(json.dumps({"model": "m", "input": messages, "tools": ["t" * 200, "u" * 300]}).encode())
    return bodies


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=3000), st.binary(max_size=200)), max_size=12))
def test_every_body_comes_back_as_it_was(parts: list[tuple[int, bytes, bytes]]) -> None:
    bodies = [bytes([kind]) * 2500 + middle + end for kind, middle, end in parts]
    stored = encode_all(BodyEncoder(), bodies)
    assert [decode(stored, digest_of(body)) for body in bodies] == bodies


def test_a_turn_costs_what_is_new_in_it() -> None:
    bodies = conversation(30, random.Random(1))
    stored = encode_all(BodyEncoder(), bodies)
    written = sum(len(body.data) for body in stored.values())
    new_in_all = len(bodies[-1])
    assert written < new_in_all < sum(map(len, bodies)) / 10


def test_conversations_that_begin_alike_are_told_apart() -> None:
    """Two histories that share their first kilobytes and alternate are each stored against their own."""
    shared = "s" * 1500
    one, other = (conversation(12, random.Random(seed)) for seed in (2, 3))
    bodies = [body.replace(b"{", b"{" + shared.encode(), 1) for pair in zip(one, other, strict=True) for body in pair]
    written = sum(len(body.data) for body in encode_all(BodyEncoder(), bodies).values())
    assert written < 3 * len(bodies[-1])


def test_chains_are_bounded() -> None:
    stored = encode_all(BodyEncoder(), conversation(3 * MAX_DEPTH, random.Random(4)))

    def depth(digest: bytes) -> int:
        base = stored[digest].base
        return 0 if base is None else 1 + depth(base)

    assert max(map(depth, stored)) == MAX_DEPTH


def test_memory_is_bounded_and_what_was_forgotten_is_no_predecessor() -> None:
    encoder = BodyEncoder(memory_bytes=10_000)
    bodies = [bytes([65 + number]) * 4000 for number in range(10)]
    stored = encode_all(encoder, bodies)
    first = bodies[0] + b"x"
    assert encoder.encode(first, digest_of(first)).base is None
    assert all(body.base is None for body in stored.values())


def test_forgetting_starts_anew() -> None:
    encoder = BodyEncoder()
    encode_all(encoder, [b"a" * 5000])
    encoder.forget()
    assert encode_all(encoder, [b"a" * 5000 + b"b"]).popitem()[1].base is None
