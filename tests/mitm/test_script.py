"""The script in a stock mitmdump of the locked version."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.mitm.conftest import LISTENS, said_until

from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Layer, RowState

SCRIPT = Path(__file__).parents[2] / "proxy/mitm/script.py"
RUN = {"_ng_task_index": 4, "_ng_rollout_index": 2, "agent_ref": {"name": "agent"}, "responses_create_params": {}}
WITNESS = """
import json
flows = []

def requestheaders(flow):
    flows.append(flow)

def done():
    said = [[flow.request.path, flow.comment, flow.marked, flow.response.raw_content.decode()] for flow in flows]
    open({file!r}, "w").write(json.dumps(said))
"""


@pytest.fixture
async def agent() -> AsyncIterator[dict[str, Any]]:
    """An agent whose /run asks a provider, through the proxy, and wraps its refusal in a 500, as Gym does."""
    state: dict[str, Any] = {}

    async def run(request: web.Request) -> web.Response:
        await request.read()
        async with httpx.AsyncClient(proxy=state["proxy"], timeout=None) as http:
            url = f"http://127.0.0.1:{state['provider']}/v1/chat/completions"
            answer = await http.post(url, json={"model": "m"}, headers={"Authorization": "Bearer x"})
        return web.json_response(
            f"Hit an exception in Agent___agent calling an inner server: {answer.content!r}", status=500
        )

    async def refuse(request: web.Request) -> web.Response:
        message = {
            "message": "Incorrect API key provided: x",
            "type": "invalid_request_error",
            "code": "invalid_api_key",
        }
        return web.json_response({"error": message}, status=401)

    runners = []
    for name, route in (("port", web.post("/run", run)), ("provider", web.post("/v1/chat/completions", refuse))):
        app = web.Application()
        app.add_routes([route])
        runners.append(web.AppRunner(app, shutdown_timeout=0.1))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        state[name] = runners[-1].addresses[0][1]
    yield state
    for runner in runners:
        await runner.cleanup()


async def test_a_stock_mitmdump_says_row_layer_and_cause(tmp_path: Path, confdir: Path, agent: dict[str, Any]) -> None:
    """Its flows carry row, layer and cause, failed ones are marked, and a capture is written beside."""
    script = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "gymtap", "addon-path"], capture_output=True, text=True, check=True
    )
    (tmp_path / "witness.py").write_text(WITNESS.format(file=str(tmp_path / "said.json")))
    command = [str(Path(sys.executable).with_name("mitmdump")), "--listen-host", "127.0.0.1", "--listen-port", "0"]
    command += ["--set", f"confdir={confdir}", "--set", f"gymtap_capture={tmp_path / 'capture'}"]
    command += ["-s", script.stdout.strip(), "-s", str(tmp_path / "witness.py")]
    dump = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    log = await said_until(dump.stdout, LISTENS)
    agent["proxy"] = f"http://{re.findall(LISTENS, log)[0]}"
    async with httpx.AsyncClient(proxy=agent["proxy"], timeout=None) as http:
        answer = await http.post(f"http://127.0.0.1:{agent['port']}/run", json=RUN)
    dump.send_signal(signal.SIGINT)
    rest, _ = await dump.communicate()
    log += rest.decode()
    assert answer.status_code == 500
    assert "Traceback" not in log, log

    capture = Capture(tmp_path / "capture")
    (row,) = capture.rows()
    assert (row.key.label, row.state) == ("4.2", RowState.FAILED)
    assert [exchange.call for exchange in capture.exchanges()] == [Call.RUN, Call.PROVIDER]
    diagnosis = diagnose_row(capture, row, now_ns=0)
    assert diagnosis.layer is Layer.CONFIG
    for path, comment, marked, body in json.loads((tmp_path / "said.json").read_text()):
        assert path in {"/run", "/v1/chat/completions"}
        assert comment.startswith("row 4.2 · ")
        assert f"{diagnosis.layer}: {diagnosis.cause}" in comment
        assert marked == ":red_circle:"
        assert "Incorrect API key" in body


async def test_a_capture_that_cannot_be_kept(tmp_path: Path, confdir: Path) -> None:
    """It is said in one line, and mitmproxy goes on without."""
    (tmp_path / "file").write_text("")
    command = [str(Path(sys.executable).with_name("mitmdump")), "--listen-host", "127.0.0.1", "--listen-port", "0"]
    command += ["--set", f"confdir={confdir}", "--set", f"gymtap_capture={tmp_path / 'file'}", "-s", str(SCRIPT)]
    dump = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    log = await said_until(dump.stdout, "gymtap records nothing")
    dump.send_signal(signal.SIGINT)
    rest, _ = await dump.communicate()
    assert "Traceback" not in log + rest.decode()
