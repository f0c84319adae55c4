"""Secrets are planted wherever traffic can carry them; no file of the capture holds one, compressed or not."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from tests.recorder.conftest import BEGIN_NS, SERVER, Desk, opened, request, response

from gymtap.addons.redact import Redact
from gymtap.proxy.core.addon import Addon, Setup
from gymtap.proxy.core.events import Ended, RequestData, Unparsed
from gymtap.proxy.core.flow import INSPECT_MAX_BYTES, Flow
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.proxy.store.reader import _connect
from gymtap.schemas import (
    Attribution,
    Finding,
    Gap,
    GapKind,
    RowKey,
    Server,
    Severity,
    TransportError,
    TransportErrorKind,
)

CORE = "Zq9vX7Lm2Tr5Wb8Kc4"
YAML = f"policy_api_key: plain{CORE}\nports:\n  - password: '{CORE}'\nenv:\n  HF_TOKEN: hf_{CORE}\n"


def gym_error(inner: bytes) -> bytes:
    return json.dumps(f"Hit an exception in A___a calling an inner server: {inner!r}").encode()


def bodies() -> Iterator[bytes]:
    deep: object = {"api_key": f"plain{CORE}", "headers": {"Authorization": f"Bearer plain{CORE}"}}
    for _ in range(30):
        deep = {"deeper": [deep]}
    yield json.dumps(deep).encode()
    yield json.dumps({"a": json.dumps({"b": json.dumps({"client_secret": f"plain{CORE}"})})}).encode()
    yield json.dumps(YAML).encode()
    yield YAML.encode()
    error = json.dumps({"error": {"message": f"Incorrect API key: sk-{CORE}", "api_key": f"plain{CORE}"}}).encode()
    for _ in range(4):
        yield error
        error = gym_error(error)
    yield b"data: " + json.dumps({"delta": f"key sk-{CORE}"}).encode() + b"\n\n: ping\n\ndata: [DONE]\n\n"
    yield f"-----BEGIN EC PRIVATE KEY-----\n{CORE}\n-----END EC PRIVATE KEY-----\n".encode()
    yield json.dumps({"pem": f"-----BEGIN PRIVATE KEY-----\n{CORE}\n{CORE}\n-----END PRIVATE KEY-----\n"}).encode()
    yield (json.dumps({"filler": ["lorem ipsum"] * 40_000}) + f" sk-{CORE} " + "x, " * 50_000).encode()
    yield json.dumps({"tool_accesses": [{"base_url": f"http://u:{CORE}@127.0.0.1:1/?token={CORE}"}]}).encode()


CODINGS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"zstd": zstandard.compress,
}


def leaks(directory: Path) -> list[str]:
    """Where a secret is found: in the raw bytes of any file, or in any decompressed body or segment."""
    found = [path.name for path in directory.iterdir() if CORE.encode() in path.read_bytes()]
    for file in directory.glob("*.sqlite"):
        with closing(_connect(file)) as connection:
            blobs = connection.execute("SELECT data FROM bodies UNION ALL SELECT data FROM segments").fetchall()
        contents = [zstandard.decompress(blob) for (blob,) in blobs if blob is not None]
        found += [f"a body in {file.name}" for content in contents if CORE.encode() in content]
    capture = Capture(directory)
    for exchange in capture.exchanges():
        for body in (exchange.request.body, exchange.response.body if exchange.response else None):
            if CORE.encode() in (capture.body(body) or b""):
                found.append(f"a body of {exchange.id}")
    return found


class Talkative(Addon):
    """Puts secrets into everything that an addon can say."""

    def __init__(self, setup: Setup) -> None:
        self._sink = setup.sink

    def ended(self, flow: Flow) -> None:
        flow.attribution = Attribution(row=RowKey(task=1, rollout=0), evidence=f"api_key=plain{CORE}")
        self._sink.attribute(flow.id, flow.attribution, None, 0)
        self._sink.attribute("a1", flow.attribution, None, 0)
        finding = Finding(rule="x", severity=Severity.NOTE, message=f"sk-{CORE}", found=f'{{"password": "{CORE}"}}')
        self._sink.finding(finding)
        self._sink.gap(Gap(kind=GapKind.UNPARSED, at_ns=1, detail=f"Bearer plain{CORE}"))
        raise RuntimeError(f"password={CORE}")


def play_everything(desk: Desk) -> None:
    headers = (
        (b"Authorization", f"Bearer plain{CORE}".encode()),
        (b"X-Api-Key", CORE.encode()),
        (b"api-key", CORE.encode()),
        (b"Cookie", f"A___a=eyJzZXNzaW9uX2lkIjogIjEifQ==.aXYZ12.{CORE}{CORE}; other={CORE}".encode()),
        (b"X-Debug", f"sk-{CORE}".encode()),
    )
    answer = ((b"Set-Cookie", f"A___a=eyJzZXNzaW9uX2lkIjogIjEifQ==.aXYZ12.{CORE}{CORE}; path=/".encode()),)
    number = 0
    for body in bodies():
        for coding, encode in ((b"", bytes), *CODINGS.items()):
            number += 1
            coded = encode(body)
            pieces = [coded[at : at + 5000] for at in range(0, len(coded), 5000)]
            header = ((b"Content-Encoding", coding),) if coding else ()
            target = f"/v1/x?api_key={CORE}&key={CORE}&n=1"
            desk.play(*request(number, pieces, (*headers, *header), target))
            desk.play(*response(number, pieces, (*answer, *header), 500))
    refused = TransportError(kind=TransportErrorKind.TLS, message=f"cannot reach https://user:{CORE}@host")
    desk.play(*request(900), Ended(900, BEGIN_NS, refused))
    desk.play(opened(901, headers), RequestData(901, b'{"api_key": "' + CORE.encode()), *response(901)[:1])
    desk.play(Unparsed(SERVER, 1, f"GET /?token={CORE} HTTP/9"))
    server = Server(name="provider", listen="http://127.0.0.1:1", upstream=f"https://user:{CORE}@provider")
    desk.play(opened(902, (), "/", server))


def test_nothing_planted_is_found(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk()
    play_everything(desk)
    assert leaks(desk.directory) == []
    desk.recorder.close()
    assert leaks(desk.directory) == []
    assert len(list(Capture(desk.directory).exchanges())) > 50


def test_nothing_that_addons_say_or_break_lets_one_through(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "capture")
    setup = Setup(desk.writer)
    desk.recorder = Recorder(desk.tape, desk.writer, [Talkative(setup), Redact(setup, desk.writer.redactor)])
    play_everything(desk)
    assert leaks(desk.directory) == []
    desk.recorder.close()
    assert leaks(desk.directory) == []


@pytest.mark.parametrize("gap", [-33, -12, 3])
def test_nothing_slips_across_a_segments_border(tmp_path: Path, gap: int) -> None:
    """Long bodies, with a secret that lies across each border at which pieces or segments are cut."""
    line = b"abcdefghijklmn\n"
    body = bytearray(line * (INSPECT_MAX_BYTES // len(line) + 30_000))
    secret = f' sk-{CORE} "api_key": "plain{CORE}" '.encode()
    for border in range(2**20, len(body) - 100, 2**19):
        body[border + gap : border + gap + len(secret)] = secret
    pieces = [bytes(body[at : at + 2**18]) for at in range(0, len(body), 2**18)]
    desk = Desk(tmp_path / "capture")
    desk.play(*request(1, pieces))
    desk.recorder.close()
    assert leaks(desk.directory) == []
    asked = Capture(desk.directory).exchange("a1").request.body
    assert asked is not None
    assert asked.redacted == 2 * len(range(2**20, len(body) - 100, 2**19))


def test_the_command_is_clean(tmp_path: Path) -> None:
    command = ("gym", "eval", "--api-key", CORE, f"++policy_api_key={CORE}", f"sk-{CORE}", f"http://u:{CORE}@h")
    CaptureWriter.create(tmp_path / "c", command=command).close()
    assert leaks(tmp_path / "c") == []
    assert Capture(tmp_path / "c").info().command[:4] == ("gym", "eval", "--api-key", "<redacted>")
