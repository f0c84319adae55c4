"""A miniature Gym in processes of its own, and a provider that it calls."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gymtap.proxy.store import Capture
from gymtap.proxy.tap import TapSettings
from gymtap.proxy.wiring.environment import Parts
from gymtap.proxy.wiring.wrap import Wrapping, wrap

MINIATURE = Path(__file__).parent.parent / "data" / "miniature_gym"


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test's own, and a server's TLS settings with a certificate of it for localhost."""

    ca_file: Path
    server: ssl.SSLContext


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _certificate("Test authority", key, "Test authority", key, is_ca=True)
    leaf = _certificate("localhost", server_key, "Test authority", key, is_ca=False)
    pem = serialization.Encoding.PEM
    ca_file, chain = tmp_path / "ca.pem", tmp_path / "server.pem"
    ca_file.write_bytes(ca.public_bytes(pem))
    secret = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain.write_bytes(leaf.public_bytes(pem) + secret)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    return Authority(ca_file, context)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey, *, is_ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if not is_ca:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@dataclass
class Provider:
    """What lies outside Gym: it answers with the header names that it saw, and counts its requests."""

    url: str
    seen: list[dict[str, str]] = field(default_factory=list)


async def _start(provider_tls: ssl.SSLContext | None) -> tuple[TestServer, Provider]:
    provider = Provider("")

    async def answer(request: web.Request) -> web.Response:
        provider.seen.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({"headers": sorted(name.lower() for name in request.headers)})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app, scheme="https" if provider_tls else "http")
    await server.start_server(ssl=provider_tls)
    provider.url = f"{'https' if provider_tls else 'http'}://localhost:{server.port}"
    return server, provider


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """A provider that speaks http."""
    server, provider = await _start(None)
    yield provider
    await server.close()


@pytest.fixture
async def secure_provider(authority: Authority) -> AsyncIterator[Provider]:
    """A provider that speaks https, with a certificate of the test's own authority."""
    server, provider = await _start(authority.server)
    yield provider
    await server.close()


@dataclass
class Ended:
    """A process that has ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the miniature's main process printed: one answer for each row."""
        return [json.loads(line) for line in self.out.splitlines()]


class Process:
    """A started process. Whatever a test does, it does not outlive it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self) -> str:
        """The next line of its stdout."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    async def err_line(self, wanted: str) -> str:
        """The next line of its stderr that has `wanted` in it; what comes before is passed over."""
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode():
            if wanted in line:
                return line
        raise AssertionError(f"stderr ended without {wanted!r}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> Ended:
        """Wait for its end."""
        out, err = await self._process.communicate()
        assert self._process.returncode is not None
        return Ended(self._process.returncode, out.decode(), err.decode())

    async def kill(self) -> None:
        """End it, and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.communicate()


type Spawn = Callable[..., Any]


@pytest.fixture
async def spawn(tmp_path: Path) -> AsyncIterator[Spawn]:
    """Start a process with pipes, and its captures in the test's own directory."""
    started: list[Process] = []

    async def start(*command: str, variables: Mapping[str, str] | None = None) -> Process:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMTAP_")}
        environment |= {"GYMTAP_HOME": str(tmp_path / "captures"), **(variables or {})}
        pipe = asyncio.subprocess.PIPE
        process = Process(
            await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        )
        started.append(process)
        return process

    yield start
    for process in started:
        await process.kill()


@dataclass
class Miniature:
    """A configuration for `tests/data/miniature_gym`; change `config` before use."""

    config: dict[str, Any]
    variables_extra: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What Gym's main process, or a test in its place, gives a server; the name of the server is to be added."""
        return {
            "PYTHONPATH": str(MINIATURE),
            "NEMO_GYM_CONFIG_DICT": json.dumps(self.config),
            **self.variables_extra,
        }

    def entry(self, name: str) -> dict[str, Any]:
        (implementations,) = self.config[name].values()
        (entry,) = implementations.values()
        assert isinstance(entry, dict)
        return entry

    def port(self, name: str) -> int:
        return int(self.entry(name)["port"])

    def only_calling(self, url: str) -> None:
        """Leave the model server alone, and let each row call what lies outside at once."""
        self.config = {name: self.config[name] for name in ("head_server", "policy")}
        entry = self.entry("policy")
        entry["base_url"], entry["calls"] = f"{url}/v1", {"/run": [f"{url}/v1/chat/completions"]}

    def main(self, rows: int, status: int = 0) -> list[str]:
        """The command of its main process."""
        return [sys.executable, str(MINIATURE / "run.py"), str(rows), str(status)]

    serve = (sys.executable, str(MINIATURE / "serve.py"))


type Wrapped = Callable[..., Any]


@pytest.fixture
def wrapped(miniature: Miniature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wrapped:
    """`gymtap run` around the miniature, in this process: its status, its capture, and what it said."""

    async def run(
        rows: int, status: int = 0, parts: Parts | None = None, **settings: Any
    ) -> tuple[int, Capture, list[str]]:
        for name, value in miniature.variables.items():
            monkeypatch.setenv(name, value)
        said: list[str] = []
        tap = TapSettings(capture=tmp_path / "capture", **settings)
        ended = await wrap(Wrapping(miniature.main(rows, status), tap, parts or Parts()), said.append)
        return ended, Capture(tmp_path / "capture"), said

    return run


@pytest.fixture
def miniature(unused_tcp_port_factory: Callable[[], int], provider: Provider) -> Miniature:
    """Agent, resources and model servers that call one another as Gym's do, and the provider."""
    agent, resources, model, head = (unused_tcp_port_factory() for _ in range(4))

    def local(port: int, path: str) -> str:
        return f"http://127.0.0.1:{port}{path}"

    agent_calls = {
        "/run": [local(resources, "/seed_session"), local(agent, "/v1/responses"), local(resources, "/verify")],
        "/v1/responses": [local(model, "/v1/responses")],
    }
    model_calls = {"/v1/responses": [f"{provider.url}/v1/chat/completions"]}
    return Miniature(
        {
            "head_server": {"host": "127.0.0.1", "port": head},
            "agent": {"responses_api_agents": {"mini": {"host": "127.0.0.1", "port": agent, "calls": agent_calls}}},
            "resources": {"resources_servers": {"mini": {"host": "localhost", "port": resources}}},
            "policy": {
                "responses_api_models": {
                    "mini": {
                        "host": "127.0.0.1",
                        "port": model,
                        "base_url": f"{provider.url}/v1",
                        "calls": model_calls,
                    }
                }
            },
        }
    )
