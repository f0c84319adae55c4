"""mitmproxy's modes, each with a real client: what passes is recorded, its server known, and its bodies equal."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mitm.conftest import LISTENS, said_until

from gymtap.proxy.core.errors import GymtapError, ListenError, UsageError
from gymtap.proxy.mitm.engine import MitmEngine
from gymtap.proxy.mitm.local import REDIRECTOR, _descends, _is_cgroup2, _processes, check_local
from gymtap.proxy.mitm.modes import fixed_routes, parse_mode
from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import GAPS_EXIT_CODE, Tap, TapSettings
from gymtap.schemas import State, TransportErrorKind

BODY = bytes(range(256)) * 300
HERE = Path(__file__).parent
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def passed(standing: Any, server: str) -> None:
    """The body went to that server and back, and is recorded so."""
    found = await standing.until(lambda exchange: exchange.state is State.DONE)
    assert (found.server, found.request.target) == (server, "/echo")
    assert standing.bodies(found) == (BODY, BODY)
    assert not standing.capture().gaps()


async def curl(*options: str, folder: Path) -> tuple[bytes, str, int | None]:
    """What curl got for the body, what it complained of, and its exit status."""
    (folder / "body").write_bytes(BODY)
    command = ["curl", "--silent", "--show-error", "--data-binary", f"@{folder / 'body'}", *options]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = await child.communicate()
    return out, errors.decode(), child.returncode


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_regular(stand: Any, upstream: Any, scheme: str) -> None:
    standing = await stand("regular@0")
    port = upstream.port if scheme == "https" else upstream.plain_port
    async with httpx.AsyncClient(proxy=standing.url, verify=standing.trust(), timeout=None) as http:
        answer = await http.post(f"{scheme}://127.0.0.1:{port}/echo", content=BODY)
    assert answer.content == BODY
    await passed(standing, f"127.0.0.1:{port}")


async def test_what_a_client_has_to_give(stand: Any, upstream: Any) -> None:
    """Without it the proxy refuses, which is recorded; with it, what was given does not go on to the server."""
    standing = await stand("regular@0", proxy_auth="user:word")
    url = f"http://127.0.0.1:{upstream.plain_port}/echo"
    async with httpx.AsyncClient(proxy=standing.url) as http:
        assert (await http.post(url, content=BODY)).status_code == 407
        with pytest.raises(httpx.ProxyError, match="407"):
            await http.post(f"https://127.0.0.1:{upstream.port}/echo", content=BODY)
    await standing.until(lambda exchange: exchange.request.method == "CONNECT" and exchange.response is not None)
    assert [found.response.status for found in tap_exchanges(standing)] == [407, 407]
    async with httpx.AsyncClient(proxy=standing.url.replace("//", "//user:word@")) as http:
        assert (await http.post(url, content=BODY)).content == BODY
    found = await standing.until(lambda exchange: exchange.response is not None and exchange.response.status == 200)
    assert "proxy-authorization" not in {name.lower() for name, _ in found.request.headers}
    assert all(b"word" not in file.read_bytes() for file in standing.tap.capture.iterdir())


@asynccontextmanager
async def mitmdump(confdir: Path, *options: str) -> AsyncIterator[str]:
    """Another proxy, which passes TLS on untouched; its URL."""
    command = [str(Path(sys.executable).with_name("mitmdump")), "--listen-host", "127.0.0.1", "--listen-port", "0"]
    command += ["--set", f"confdir={confdir}", "--ignore-hosts", ".*", *options]
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    child = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
    )
    log = await said_until(child.stdout, LISTENS)
    try:
        yield f"http://{re.findall(LISTENS, log)[0]}"
    finally:
        child.send_signal(signal.SIGINT)
        await child.communicate()


async def test_upstream(tmp_path: Path, confdir: Path, certificate: Any, upstream: Any, standing_of: Any) -> None:
    """Through another proxy that asks who comes: refused without, HTTP and HTTPS with; the answer is not recorded."""
    async with mitmdump(confdir, "--proxyauth", "user:word") as url:
        for auth in ("", "user:word"):
            async with Tap(TapSettings(capture=tmp_path / f"capture{auth}")) as tap:
                settings = MitmSettings((f"upstream:{url}@0",), confdir, certificate.file, upstream_auth=auth)
                async with MitmEngine(settings, tap.source(), lambda line: None) as engine:
                    standing = standing_of(tap, engine)
                    plain = f"http://127.0.0.1:{upstream.plain_port}/echo"
                    async with httpx.AsyncClient(proxy=standing.url, verify=standing.trust(), timeout=None) as http:
                        first = await http.post(plain, content=BODY)
                        assert first.status_code == (200 if auth else 407)
                        if not auth:
                            continue
                        secure = await http.post(f"https://127.0.0.1:{upstream.port}/echo", content=BODY)
                    assert (first.content, secure.content) == (BODY, BODY)
                    await passed(standing, f"127.0.0.1:{upstream.plain_port}")
                    await standing.until(lambda exchange: exchange.server == f"127.0.0.1:{upstream.port}")
                    sent = [name.lower() for each in tap_exchanges(standing) for name, _ in each.request.headers]
                    assert "proxy-authorization" not in sent


def tap_exchanges(standing: Any) -> list[Any]:
    return list(standing.capture().exchanges())


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_reverse(stand: Any, upstream: Any, scheme: str) -> None:
    port = upstream.port if scheme == "https" else upstream.plain_port
    standing = await stand(f"reverse:{scheme}://127.0.0.1:{port}@0")
    async with httpx.AsyncClient(timeout=None) as http:
        answer = await http.post(f"{standing.url}/echo", content=BODY)
    assert answer.content == BODY
    await passed(standing, f"127.0.0.1:{port}")


async def test_reverse_with_http2(stand: Any, http2: int) -> None:
    """To a client that offers it, over TLS; the upstream is spoken to in the same."""
    standing = await stand(f"reverse:https://127.0.0.1:{http2}@0")
    async with httpx.AsyncClient(http2=True, verify=standing.trust(), timeout=None) as http:
        answer = await http.post(f"{standing.url.replace('http:', 'https:')}/echo", content=BODY)
    assert (answer.content, answer.http_version) == (BODY, "HTTP/2")
    await passed(standing, f"127.0.0.1:{http2}")


@needs_curl
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("auth", ["", "user:word"])
async def test_socks5(stand: Any, upstream: Any, tmp_path: Path, scheme: str, auth: str) -> None:
    standing = await stand("socks5@0", proxy_auth=auth)
    port = upstream.port if scheme == "https" else upstream.plain_port
    address = standing.url.removeprefix("http://")
    url, trust = f"{scheme}://localhost:{port}/echo", ("--cacert", str(standing.engine.ca))
    if auth:
        _, errors, status = await curl("--socks5-hostname", address, *trust, url, folder=tmp_path)
        assert status == 97, errors  # curl's own: the SOCKS proxy refused
    login = f"{auth}@{address}" if auth else address
    out, errors, status = await curl("--proxy", f"socks5h://{login}", *trust, url, folder=tmp_path)
    assert (status, errors) == (0, "")
    assert out == BODY
    await passed(standing, f"localhost:{port}")


@needs_curl
async def test_several_modes_at_once(stand: Any, upstream: Any, tmp_path: Path) -> None:
    """They feed one capture."""
    url = f"http://127.0.0.1:{upstream.plain_port}"
    standing = await stand("regular@0", f"socks5@{free_port()}", f"reverse:{url}@{free_port()}")
    regular, socks, reverse = (f"{host}:{port}" for host, port in standing.engine.addresses)
    asked = f"{url}/echo"
    for options in (("--proxy", regular, asked), ("--socks5", socks, asked), (f"http://{reverse}/echo",)):
        assert (await curl(*options, folder=tmp_path))[0] == BODY
    await standing.until(lambda exchange: standing.capture().count() == 3)
    assert {exchange.server for exchange in tap_exchanges(standing)} == {f"127.0.0.1:{upstream.plain_port}"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["wireguard", "tun"])
def test_a_tunnel(tmp_path: Path, confdir: Path, mode: str) -> None:
    """A client whose only way out is the tunnel, set up by what the tap said, is captured."""
    programs = ["ip", "unshare", "nsenter", *(["wireguard-go", "wg"] if mode == "wireguard" else [])]
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not Path("/dev/net/tun").exists():
        pytest.skip(f"needs root, /dev/net/tun, and {', '.join(programs)}")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be had here")
    command = ["unshare", "--net", sys.executable, str(HERE / "tunnel_scene.py"), mode, str(tmp_path)]
    environ = os.environ | {"HOME": str(confdir), "GYMTAP_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (0, "x" * 5000 + "\n"), done.stderr
    capture = Capture(tmp_path / "capture")
    (found,) = capture.exchanges()
    assert (found.server, found.request.target, found.state) == ("10.9.9.9:8000", "/hello", State.DONE)
    assert found.request.body is not None
    assert capture.body(found.request.body) == b"x" * 5000


@needs_curl
@pytest.mark.timeout(180)
async def test_local(tmp_path: Path, confdir: Path, upstream: Any) -> None:
    """A program of a name is captured, whatever it is told of proxies. When the redirector ends, that is a gap."""
    if os.geteuid() != 0 or sys.platform != "linux" or shutil.which("sudo") is None:
        pytest.skip("needs Linux, root, sudo, and a cgroup file system of version 2")
    mount = "mount -t cgroup2 none /sys/fs/cgroup"
    if await (await asyncio.create_subprocess_exec("unshare", "--mount", "sh", "-c", mount)).wait():
        pytest.skip("no cgroup file system of version 2 can be mounted here")
    probe = f"gtprobe{os.getpid()}"
    shutil.copy(shutil.which("curl") or "", tmp_path / probe)
    tap = f"{sys.executable} -m gymtap up --engine mitm --mode local:{probe} --capture {tmp_path / 'capture'}"
    child = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", f"{mount} && exec {tap}"),
        env=os.environ | {"HOME": str(confdir), "GYMTAP_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    await said_until(child.stderr, "stop with Ctrl-C")
    reading = asyncio.create_task(child.stderr.read())
    url = f"http://127.0.0.1:{upstream.plain_port}/echo"
    capture = Capture(tmp_path / "capture")
    while not capture.count() and not reading.done():  # the programs of the kernel stand when they do
        asked = await asyncio.create_subprocess_exec(
            str(tmp_path / probe), "-s", "-d", "x", url, stdout=subprocess.PIPE
        )
        assert (await asked.communicate())[0] == b"x"
    if reading.done():
        pytest.skip(f"the kernel refuses mitmproxy's redirector: {(await reading).decode()[-500:]}")
    (redirector,) = [pid for pid, (name, _) in _processes() if name == REDIRECTOR and _descends(pid, child.pid)]
    os.kill(redirector, signal.SIGKILL)
    while not capture.gaps():  # noqa: ASYNC110 - it is another process's
        await asyncio.sleep(0)
    child.send_signal(signal.SIGINT)
    assert await child.wait() == GAPS_EXIT_CODE
    assert "redirector has ended" in (await reading).decode()
    found = next(iter(capture.exchanges()))
    assert (found.server, found.request.target) == (f"127.0.0.1:{upstream.plain_port}", "/echo")


def test_where_local_mode_cannot_work() -> None:
    """What counts is the file system that is seen, which is the one mounted last."""
    first, second = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    assert _is_cgroup2(first + second)
    assert not _is_cgroup2(second + first)
    assert not _is_cgroup2("cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")


async def test_local_mode_says_what_it_lacks(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything starts, with the way out."""
    if sys.platform != "linux":
        pytest.skip("elsewhere it needs other things")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GymtapError, match="needs sudo") as caught:
        await stand("local:curl")
    assert "gymtap run --proxy-env" in caught.value.hint


async def test_local_mode_beside_one_that_cannot_listen(stand: Any) -> None:
    """It ends at once, as without local mode, and says why."""
    try:
        check_local()
    except GymtapError as error:
        pytest.skip(str(error))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenError, match="cannot listen for regular"):
        await stand(f"regular@{taken.getsockname()[1]}", f"local:gtprobe{os.getpid()}")


async def answer_of(address: str) -> bytes:
    """All that comes back from there for a request until the connection ends: closed or reset, before it or after."""
    host, _, port = address.rpartition(":")
    came = b""
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY))
        while piece := await reader.read(1 << 16):
            came += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    return came


async def refused(standing: Any, port: int) -> None:
    """The capture says who refused."""
    found = await standing.until(lambda exchange: exchange.state is State.FAILED)
    assert (found.request.method, found.request.target) == ("CONNECT", f"127.0.0.1:{port}")
    assert found.error is not None
    assert found.error.kind is TransportErrorKind.REFUSED


async def test_a_server_that_refuses(stand: Any) -> None:
    """The client's connection ends, as it would have, instead of a 502 of ours."""
    port = free_port()
    standing = await stand(f"reverse:http://127.0.0.1:{port}@0")
    assert await answer_of(standing.url.removeprefix("http://")) == b""
    await refused(standing, port)


@needs_curl
async def test_a_server_that_refuses_who_came_by_socks(stand: Any, tmp_path: Path) -> None:
    port = free_port()
    standing = await stand("socks5@0")
    address = standing.url.removeprefix("http://")
    out, errors, status = await curl("--socks5", address, f"http://127.0.0.1:{port}/x", folder=tmp_path)
    assert (out, status) == (b"", 97), errors  # curl's own: the proxy could not connect
    await refused(standing, port)


async def test_a_circle(stand: Any) -> None:
    """Two modes that lead to each other, by a name that no check knows: it ends where it closes, and is recorded."""
    first, second = free_port(), free_port()
    standing = await stand(f"reverse:http://127.1:{second}@{first}", f"reverse:http://127.1:{first}@{second}")
    assert await answer_of(f"127.0.0.1:{first}") == b""
    await standing.until(lambda exchange: exchange.error is not None and "over and over" in exchange.error.message)
    assert standing.capture().count() <= 3


def test_modes_that_lead_to_one_upstream() -> None:
    """They are known before anything starts, so that a circle is."""
    modes = ["regular@8080", "reverse:https://h:9@8081", "upstream:http://127.0.0.1:8081@1"]
    assert list(fixed_routes(modes)) == [
        (modes[1], ("127.0.0.1", 8081), ("h", 9)),
        (modes[2], ("127.0.0.1", 1), ("127.0.0.1", 8081)),
    ]


async def test_a_port_that_is_taken(stand: Any, upstream: Any) -> None:
    """It names the mode, and the way out."""
    with pytest.raises(ListenError, match=f"regular@{upstream.port}") as caught:
        await stand(f"regular@{upstream.port}")
    assert caught.value.hint


async def test_one_port_for_two_modes(stand: Any) -> None:
    with pytest.raises(UsageError, match=r"same address: 127\.0\.0\.1:8099") as caught:
        await stand("regular@8099", "socks5@8099")
    assert "a port of its own" in caught.value.hint


async def test_what_others_could_reach(stand: Any) -> None:
    """Only what is asked for is open to other machines."""
    with pytest.raises(UsageError, match="where other machines reach it"):
        await stand("regular@0.0.0.0:0")


@pytest.mark.parametrize("mode", ["irregular", "reverse:", "regular@port", "reverse:h2://host", "upstream:socks5://x"])
def test_modes_that_are_none(mode: str) -> None:
    """What mitmproxy does not know is refused before anything starts."""
    with pytest.raises(UsageError, match=f"--mode {mode}"):
        parse_mode(mode)


@pytest.mark.parametrize("mode", ["dns", "reverse:dns://8.8.8.8", "reverse:tcp://127.0.0.1:1", "reverse:tls://h:1"])
def test_modes_without_http(mode: str) -> None:
    """Nothing of them could be captured, and that is said instead."""
    with pytest.raises(UsageError, match="passes no HTTP"):
        parse_mode(mode)


@pytest.mark.parametrize("what", ["proxy_auth", "upstream_auth"])
async def test_what_is_no_user_and_password(stand: Any, what: str) -> None:
    with pytest.raises(UsageError, match="auth specification") as caught:
        await stand("regular@0", **{what: "someone"})
    assert caught.value.hint == "write user:password"
