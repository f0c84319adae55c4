"""The guide for coding agents: every command in it runs, every page is reachable, and installing loses no edit."""

import hashlib
import json
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gymtap.proxy.cli.program import execute
from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.demo.dataset import rows as demo_rows
from gymtap.proxy.skill.guide import NAME, install, page, pages
from gymtap.proxy.store import Capture

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_TABLE = re.compile(r"^\|[^|]*\| `(gymtap [^`]+)` \|$", re.MULTILINE)
_INLINE = re.compile(r"`(gymtap skill [a-z-]+)`")


def commands() -> list[str]:
    """Every command that a page says to type, once."""
    found: dict[str, None] = {}
    for one in pages():
        lines = [line for block in _BLOCK.findall(one.text) for line in block.splitlines()]
        found |= dict.fromkeys([*lines, *_TABLE.findall(one.text), *_INLINE.findall(one.text)])
    return [command for command in found if command.strip()]


class Answers(BaseHTTPRequestHandler):
    """A head and a provider in one: an empty configuration, one model, one token."""

    def do_GET(self) -> None:
        known = {"/global_config_dict_yaml": "{}", "/v1/models": {"data": [{"id": "tiny"}]}}
        self._answer(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "a"}}
        self._answer(200, {"id": "c", "object": "chat.completion", "model": "tiny", "choices": [choice]})

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


@pytest.fixture
def words(demo_capture: Path, tmp_path: Path, server: str) -> dict[str, list[str]]:
    """What stands for what in the guide's commands."""
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in demo_rows()[:3]))
    materialized = [row | {"_ng_task_index": task, "_ng_rollout_index": 0} for task, row in enumerate(demo_rows()[:3])]
    results = [row | {"reward": 1.0, "response": {"output": [], "usage": {"total_tokens": 1}}} for row in materialized]
    for name, content in (("out_materialized_inputs", materialized), ("out", results)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    (tmp_path / "run.log").write_text("All 3 / 3 servers ready! Polling every 60s\n")
    (tmp_path / "config.yaml").write_text("head_server:\n  host: 127.0.0.1\n")
    failed = next(Capture(demo_capture).exchanges(failed=True))
    return {
        "ROW": ["11.0"],
        "OTHER": ["12.0"],
        "EXCHANGE": [failed.id],
        "CAPTURE": [str(demo_capture)],
        "DATA": [str(tmp_path / "data.jsonl")],
        "ROLLOUTS": [str(tmp_path / "out.jsonl")],
        "LOGS": [str(tmp_path / "run.log")],
        "CONFIG": [str(tmp_path / "config.yaml")],
        "BUNDLE": [str(tmp_path / "row.gymtap")],
        "HEAD": [server],
        "PROVIDER": [f"{server}/v1"],
        "GYM_COMMAND": [sys.executable, "-c", "pass"],
    }


@pytest.fixture
def at_the_demo(demo_capture: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to work in, where the newest capture is the demo's."""
    monkeypatch.setenv("GYMTAP_HOME", str(demo_capture.parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_guide_runs(
    command: str,
    words: dict[str, list[str]],
    at_the_demo: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """On the demo: it answers (0) or finds what is wrong (1), and says it in JSON where that is asked for."""
    program, *arguments = [part for word in shlex.split(command) for part in words.get(word, [word])]
    assert program == "gymtap"
    if arguments[:1] == ["replay"]:
        arguments += ["--into", str(at_the_demo / "replays")]
    if arguments[:1] == ["run"]:
        arguments[1:1] = ["--capture", str(at_the_demo / "run")]
    status = execute(arguments)
    out, err = capfdbinary.readouterr()
    assert status in {0, 1}, (out[-500:], err[-500:])
    if arguments[0] == "replay":  # the demo's servers have ended, and that is said before anything is sent
        assert b"does not listen" in err
    assert out or arguments[0] in {"run", "inflight"} or b"gymtap" in err
    if "--json" in arguments and out:
        assert json.loads(out) is not None


def test_the_guide_has_commands_for_every_question() -> None:
    said = " ".join(commands())
    for verb in (
        "doctor",
        "why",
        "causes",
        "tree",
        "show",
        "inflight",
        "replay",
        "check rows",
        "check tools",
        "run --",
    ):
        assert f"gymtap {verb}" in said


def test_the_front_matter_names_the_guide() -> None:
    """As agents read it: a name that is the folder's, and a description, in a few hundred lines at most."""
    first = pages()[0]
    head = first.text.split("---")[1]
    assert first.path == "SKILL.md"
    assert f"name: {NAME}\n" in head
    assert len(re.search(r"description: (.+)", head)[1]) > 60  # type: ignore[index]  # a miss fails the test
    assert len(first.text.splitlines()) < 120


def test_every_page_that_is_named_is_there() -> None:
    named = {name for one in pages() for name in re.findall(r"gymtap skill ([a-z-]+)", one.text)}
    assert named == {one.name for one in pages()} - {"guide"}
    with pytest.raises(UsageError) as told:
        page("nothing")
    assert "layers" in told.value.hint


def test_installing_writes_every_page_and_says_so(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert {one.path.relative_to(tmp_path / NAME).as_posix() for one in done} == {one.path for one in pages()}
    assert {one.how for one in done} == {"written"}
    assert {one.path.read_text() for one in done} == {one.text for one in pages()}
    assert {one.how for one in install(tmp_path)} == {"unchanged"}


def test_an_edit_is_not_overwritten(tmp_path: Path) -> None:
    """Not even the other pages are touched; `--force` overwrites."""
    install(tmp_path)
    main, other = tmp_path / NAME / "SKILL.md", tmp_path / NAME / "references" / "layers.md"
    main.write_text("mine")
    other.unlink()
    with pytest.raises(GymtapError, match=r"SKILL\.md was edited"):
        install(tmp_path)
    assert main.read_text() == "mine"
    assert not other.exists()
    assert {one.how for one in install(tmp_path, force=True)} == {"unchanged", "replaced", "written"}
    assert main.read_text() == pages()[0].text


def test_what_an_older_guide_wrote_is_replaced(tmp_path: Path) -> None:
    """It is ours: its digest was remembered."""
    install(tmp_path)
    main = tmp_path / NAME / "SKILL.md"
    manifest = json.loads((tmp_path / NAME / ".written.json").read_text())
    main.write_text("an older guide")
    manifest["SKILL.md"] = "b5ad2a7f3c0b"
    (tmp_path / NAME / ".written.json").write_text(json.dumps(manifest))
    with pytest.raises(GymtapError):
        install(tmp_path)

    manifest["SKILL.md"] = hashlib.sha256(b"an older guide").hexdigest()
    (tmp_path / NAME / ".written.json").write_text(json.dumps(manifest))
    assert [one.how for one in install(tmp_path) if one.path == main] == ["replaced"]


@pytest.mark.parametrize("options", [(), ("layers",), ("--list",), ("--list", "--json"), ("--json",)])
def test_the_command_shows_pages(options: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert execute(["skill", *options]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert "layer" in out
    if "--json" in options:
        assert json.loads(out)


def test_the_command_installs_and_refuses(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert execute(["skill", "--install", str(tmp_path)]) == 0
    assert f"written    {tmp_path / NAME / 'SKILL.md'}" in capfdbinary.readouterr().out.decode()
    (tmp_path / NAME / "SKILL.md").write_text("mine")
    assert execute(["skill", "--install", str(tmp_path)]) == 1
    assert "nothing was written" in capfdbinary.readouterr().err.decode()
    assert execute(["skill", "--install", str(tmp_path), "--force", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["files"]
