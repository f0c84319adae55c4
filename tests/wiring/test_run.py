"""`gymtap run` around a miniature Gym: every boundary is captured, and the run is as it would have been."""

import signal
import sys
from pathlib import Path

import pytest

from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Confidence, Exchange, Method, ServerKind, State

_GYMTAP = (sys.executable, "-m", "gymtap")
_HEADER = "x-gymtap-parent"


def _exchanges(capture: Path) -> list[Exchange]:
    return [exchange for exchange in Capture(capture).exchanges() if exchange.call is not Call.HEALTH]


def _tree(exchanges: list[Exchange]) -> list[tuple[str, str, str]]:
    """(parent's target, server, target) of each exchange, in order."""
    targets = {exchange.id: exchange.request.target for exchange in exchanges}
    return [(targets.get(item.parent or "", ""), item.server, item.request.target) for item in exchanges]


@pytest.mark.parametrize("workers", [1, 2])
async def test_captures_every_boundary_with_its_parent(spawn, miniature, provider, tmp_path, workers) -> None:
    """One row's calls hang below its /run, self-call and provider included, also with two worker processes."""
    miniature.entry("policy")["workers"] = workers
    capture = tmp_path / "capture"
    process = await spawn(
        *_GYMTAP, "run", "-c", str(capture), "--", *miniature.main(2, 7), variables=miniature.variables
    )
    ended = await process.end()
    assert ended.status == 7, ended.err
    outside = provider.url.removeprefix("http://")
    row = [
        ("", "agent", "/run"),
        ("/run", "resources", "/seed_session"),
        ("/run", "agent", "/v1/responses"),
        ("/v1/responses", "policy", "/v1/responses"),
        ("/v1/responses", outside, "/v1/chat/completions"),
        ("/run", "resources", "/verify"),
    ]
    exchanges = _exchanges(capture)
    assert _tree(exchanges) == row * 2
    assert {item.server: item.kind for item in exchanges} == {
        "agent": ServerKind.AGENT,
        "resources": ServerKind.RESOURCES,
        "policy": ServerKind.MODEL,
        outside: ServerKind.PROVIDER,
    }
    assert all(item.state is State.DONE for item in exchanges)
    assert [item.attribution.row.task for item in exchanges if item.attribution.row] == [0] * 6 + [1] * 6
    methods = {item.attribution.method for item in exchanges if item.parent}
    assert methods == {Method.CAUSALITY}
    assert {item.attribution.confidence for item in exchanges} == {Confidence.CERTAIN}


async def test_nobody_but_the_hooks_sees_the_header(spawn, miniature, provider) -> None:
    """Neither the provider nor a Gym application: what they get is what they would get without a tap."""
    plain = await (await spawn(*miniature.main(1), variables=miniature.variables)).end()
    without = provider.seen[:]
    tapped = await (await spawn(*_GYMTAP, "run", "--", *miniature.main(1), variables=miniature.variables)).end()
    assert provider.seen[1:] == without
    assert _HEADER not in without[0]
    assert _without_pids(tapped.rows) == _without_pids(plain.rows)


def _without_pids(value: object) -> object:
    if isinstance(value, list):
        return [_without_pids(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_pids(item) for key, item in value.items() if key != "pid"}
    return value


async def _run(spawn, miniature, capture, switch) -> tuple[set[str], set[Method]]:
    """The servers that were seen, and how exchanges were attributed."""
    command = (*_GYMTAP, "run", "-c", str(capture), switch, "--", *miniature.main(1))
    ended = await (await spawn(*command, variables=miniature.variables)).end()
    assert ended.status == 0, ended.err
    exchanges = _exchanges(capture)
    return {item.server for item in exchanges}, {item.attribution.method for item in exchanges}


async def test_without_takeover_only_what_leaves_gym_is_seen(spawn, miniature, provider, tmp_path) -> None:
    """And nothing tells its row."""
    servers, methods = await _run(spawn, miniature, tmp_path / "capture", "--no-takeover")
    assert servers == {provider.url.removeprefix("http://")}
    assert Method.CAUSALITY not in methods
    assert len(provider.seen) == 1


async def test_without_egress_only_gym_is_seen(spawn, miniature, provider, tmp_path) -> None:
    """The provider is called straight, without the header."""
    servers, methods = await _run(spawn, miniature, tmp_path / "capture", "--no-egress")
    assert servers == {"agent", "resources", "policy"}
    assert Method.CAUSALITY in methods
    assert [_HEADER in seen for seen in provider.seen] == [False]


async def test_without_causality_every_boundary_is_seen(spawn, miniature, provider, tmp_path) -> None:
    """Rows are found in other ways, or not."""
    servers, methods = await _run(spawn, miniature, tmp_path / "capture", "--no-causality")
    assert servers == {"agent", "resources", "policy", provider.url.removeprefix("http://")}
    assert Method.CAUSALITY not in methods


async def test_says_where_it_records_and_what_it_saw(spawn, miniature, tmp_path) -> None:
    """One line at the start, a summary at the end, and the way to see it; stdout is the command's alone."""
    ended = await (await spawn(*_GYMTAP, "run", "--", *miniature.main(2), variables=miniature.variables)).end()
    capture = next((tmp_path / "captures").iterdir())
    told = [line for line in ended.err.splitlines() if line.startswith("gymtap:")]
    assert told[0] == f"gymtap: recording to {capture}"
    assert told[1].endswith(f" exchanges, 2 rows, 0 failed, 0 gaps in {capture}")
    assert told[2] == f"gymtap: see it with: gymtap rows {capture}"
    assert [row["server"] for row in ended.rows] == ["agent", "agent"]


async def test_says_when_there_was_nothing_to_see(spawn) -> None:
    """A command that starts no Gym server is no error."""
    ended = await (await spawn(*_GYMTAP, "run", "--", sys.executable, "-c", "print(1)")).end()
    assert (ended.status, ended.out) == (0, "1\n")
    assert "nothing was captured" in ended.err


async def test_a_command_that_is_not_there_leaves_nothing_behind(spawn, tmp_path) -> None:
    """One line, 127, and no capture."""
    ended = await (await spawn(*_GYMTAP, "run", "--", "no-such-command")).end()
    assert (ended.status, ended.out) == (127, "")
    assert ended.err.startswith("gymtap: command not found: no-such-command\n")
    assert "Traceback" not in ended.err
    assert not (tmp_path / "captures").exists()


async def test_a_capture_that_cannot_be_kept_stops_before_the_command(spawn, tmp_path) -> None:
    """The command is not run for nothing."""
    (tmp_path / "file").write_text("x")
    command = (*_GYMTAP, "run", "-c", str(tmp_path / "file"), "--", sys.executable, "-c", "print('ran')")
    ended = await (await spawn(*command)).end()
    assert (ended.status, ended.out) == (3, "")


async def test_the_command_is_interrupted_and_the_capture_is_whole(spawn, miniature, tmp_path) -> None:
    """SIGINT to the tap reaches the command; its status is the tap's, and what was seen is kept."""
    miniature.config = {"agent": miniature.config["agent"]}
    capture = tmp_path / "capture"
    variables = miniature.variables | {"NEMO_GYM_CONFIG_PATH": "agent"}
    process = await spawn(*_GYMTAP, "run", "-c", str(capture), "--", *miniature.serve, variables=variables)
    assert "serving" in await process.line()
    process.send(signal.SIGINT)
    ended = await process.end()
    assert ended.status == 130, ended.err
    info = Capture(capture).info()
    assert info.ended_ns is not None
    assert [server.name for server in info.servers] == ["agent"]


async def test_inside_another_the_inner_one_records(spawn, miniature, tmp_path) -> None:
    """It says so, and the outer one ends with nothing seen."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    wrapped = (*_GYMTAP, "run", "-c", str(inner), "--", *miniature.main(1, 4))
    ended = await (await spawn(*_GYMTAP, "run", "-c", str(outer), "--", *wrapped, variables=miniature.variables)).end()
    assert ended.status == 4, ended.err
    assert "inside another `gymtap run`" in ended.err
    assert (Capture(inner).info().rows, Capture(outer).info().exchanges) == (1, 0)
