"""The second engine from the command line."""

import asyncio
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mitm.conftest import said_until

from gymtap.proxy.store import Capture

GYMTAP = [sys.executable, "-m", "gymtap"]


@pytest.fixture
def environ(confdir: Path, tmp_path: Path) -> dict[str, str]:
    """A home with a CA of its own."""
    return os.environ | {"HOME": str(confdir), "GYMTAP_HOME": str(tmp_path)}


async def test_up(upstream: Any, certificate: Any, tmp_path: Path, environ: dict[str, str]) -> None:
    """`gymtap up --engine mitm` says where it listens and where its CA is, captures, and ends well on SIGINT."""
    options = ["up", "--engine", "mitm", "--mode", "regular@0", "--upstream-ca", str(certificate.file)]
    child = await asyncio.create_subprocess_exec(
        *GYMTAP, *options, "--capture", str(tmp_path / "capture"), env=environ, stderr=subprocess.PIPE
    )
    said = await said_until(child.stderr, "stop with Ctrl-C")
    address, ca = re.search(r"listens at (\S+)", said), re.search(r"trust (\S+),", said)
    assert address
    assert ca
    trust = ssl.create_default_context(cafile=ca[1])
    async with httpx.AsyncClient(proxy=f"http://{address[1]}", verify=trust, timeout=None) as http:
        answer = await http.post(f"https://127.0.0.1:{upstream.port}/echo", content=b"x")
    assert answer.content == b"x"
    child.send_signal(signal.SIGINT)
    assert await child.wait() == 0
    (found,) = Capture(tmp_path / "capture").exchanges()
    assert found.server == f"127.0.0.1:{upstream.port}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_run_with_proxy_variables(
    upstream: Any, certificate: Any, tmp_path: Path, environ: dict[str, str]
) -> None:
    """What a child of `gymtap run --proxy-env` asks over HTTPS is captured; its exit status and output are its own."""
    ask = f"NO_PROXY= no_proxy= curl --silent --show-error --data hello https://127.0.0.1:{upstream.port}/echo; exit 3"
    options = ["run", "--proxy-env", "--upstream-ca", str(certificate.file), "--capture", str(tmp_path / "capture")]
    child = await asyncio.create_subprocess_exec(
        *GYMTAP, *options, "--", "sh", "-c", ask, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await child.communicate()
    assert (out, child.returncode) == (b"hello", 3), errors.decode()
    assert "its CA is" in errors.decode()
    (found,) = Capture(tmp_path / "capture").exchanges()
    assert found.request.target == "/echo"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_what_goes_direct(upstream: Any, tmp_path: Path, environ: dict[str, str]) -> None:
    """Loopback is left to the first engine, and what the user exempts stays so; what is not HTTPS goes through too."""
    url = f"http://127.0.0.1:{upstream.plain_port}/echo"
    ask = f"curl -s -d a {url}; no_proxy=$NO_PROXY,h.test curl -s -d b --connect-to ::{url[7:-5]} http://h.test/echo;"
    ask += f"no_proxy= NO_PROXY= curl -s -d c {url}; echo $NO_PROXY"
    child = await asyncio.create_subprocess_exec(
        *(*GYMTAP, "run", "--proxy-env", "--capture", str(tmp_path / "capture"), "--", "sh", "-c", ask),
        env=environ | {"NO_PROXY": "example.com"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, errors = await child.communicate()
    assert out.decode() == "abcexample.com,localhost,127.0.0.1,::1\n", errors.decode()
    capture = Capture(tmp_path / "capture")
    (found,) = capture.exchanges()
    assert found.request.body is not None
    assert capture.body(found.request.body) == b"c"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--mode", "regular@8080"], "add --engine mitm"),
        (["--engine", "mitm", "--mode", "irregular"], "--mode irregular"),
        (["--engine", "mitm", "--mode", "regular@0.0.0.0:0"], "add --expose"),
        (
            ["--engine", "mitm", "--mode", "reverse:http://localhost:9@10", "--map", "a=9->127.0.0.1:10"],
            "in a circle: a -> reverse:http://localhost:9@10 -> a",
        ),
    ],
)
async def test_what_cannot_be_meant(options: list[str], says: str, tmp_path: Path, environ: dict[str, str]) -> None:
    """It is said in words, with the way out, and nothing is left behind."""
    command = [*GYMTAP, "up", *options, "--capture", str(tmp_path / "capture")]
    child = await asyncio.create_subprocess_exec(*command, env=environ, stderr=subprocess.PIPE)
    _, errors = await child.communicate()
    assert child.returncode == 2
    assert says in errors.decode()
    assert "Traceback" not in errors.decode()
    assert not (tmp_path / "capture").exists()
