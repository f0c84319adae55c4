"""`gymtap run` around a miniature Gym: every boundary is captured, and the run is as it would have been."""

import signal
import sys

import pytest

from gymtap.proxy.store import Capture
from gymtap.proxy.wiring.environment import Parts
from gymtap.schemas import Call, Confidence, Exchange, Method, ServerKind, State

_GYMTAP = (sys.executable, "-m", "gymtap")
_HEADER = "x-gymtap-parent"


def _exchanges(capture: Capture) -> list[Exchange]:
    return [exchange for exchange in capture.exchanges() if exchange.call is not Call.HEALTH]


def _tree(exchanges: list[Exchange]) -> list[tuple[str, str, str]]:
    """(parent's target, server, target) of each exchange, in order."""
    targets = {exchange.id: exchange.request.target for exchange in exchanges}
    return [(targets.get(item.parent or "", ""), item.server, item.request.target) for item in exchanges]


@pytest.mark.parametrize("workers", [1, 2])
async def test_captures_every_boundary_with_its_parent(wrapped, miniature, provider, workers) -> None:
    """One row's calls hang below its /run, self-call and provider included, also with two worker processes."""
    miniature.entry("policy")["workers"] = workers
    status, capture, _ = await wrapped(2, 7)
    assert status == 7
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


async def test_the_run_is_as_it_would_have_been(spawn, miniature, provider, tmp_path) -> None:
    """Provider and applications get what they would get without a tap; stdout is the command's alone.

    On stderr: where it records, what it saw, and the way to see it.
    """
    plain = await (await spawn(*miniature.main(1), variables=miniature.variables)).end()
    without = provider.seen[:]
    tapped = await (await spawn(*_GYMTAP, "run", "--", *miniature.main(1), variables=miniature.variables)).end()
    assert provider.seen[1:] == without
    assert _HEADER not in without[0]
    assert _without_pids(tapped.rows) == _without_pids(plain.rows)
    (capture,) = (tmp_path / "captures").iterdir()
    told = [line for line in tapped.err.splitlines() if line.startswith("gymtap:")]
    assert told[0] == f"gymtap: recording to {capture}"
    assert told[1].endswith(f" exchanges, 1 row (0 failed), 0 gaps in {capture}")
    assert told[2] == f"gymtap: see it with: gymtap rows {capture}"


def _without_pids(value: object) -> object:
    if isinstance(value, list):
        return [_without_pids(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_pids(item) for key, item in value.items() if key != "pid"}
    return value


async def test_without_takeover_only_what_leaves_gym_is_seen(wrapped, provider) -> None:
    """And nothing tells its row."""
    _, capture, _ = await wrapped(1, parts=Parts(takeover=False))
    assert {item.server for item in _exchanges(capture)} == {provider.url.removeprefix("http://")}
    assert Method.CAUSALITY not in {item.attribution.method for item in _exchanges(capture)}
    assert len(provider.seen) == 1


async def test_without_egress_only_gym_is_seen(wrapped, provider) -> None:
    """The provider is called straight, without the header."""
    _, capture, _ = await wrapped(1, parts=Parts(egress=False))
    assert {item.server for item in _exchanges(capture)} == {"agent", "resources", "policy"}
    assert Method.CAUSALITY in {item.attribution.method for item in _exchanges(capture)}
    assert [_HEADER in seen for seen in provider.seen] == [False]


async def test_without_causality_every_boundary_is_seen(wrapped, provider) -> None:
    """Rows are found in other ways, or not."""
    _, capture, _ = await wrapped(1, parts=Parts(causality=False))
    outside = provider.url.removeprefix("http://")
    assert {item.server for item in _exchanges(capture)} == {"agent", "resources", "policy", outside}
    assert Method.CAUSALITY not in {item.attribution.method for item in _exchanges(capture)}


async def test_the_switches_of_the_command_line_reach_the_hooks(spawn) -> None:
    """Each by its own variable."""
    code = (
        "import os; print([name for name in sorted(os.environ) if name.startswith('GYMTAP_NO_') and os.environ[name]])"
    )
    switches = ("--no-takeover", "--no-causality", "--no-egress")
    ended = await (await spawn(*_GYMTAP, "run", *switches, "--", sys.executable, "-c", code)).end()
    assert ended.out == "['GYMTAP_NO_CAUSALITY', 'GYMTAP_NO_EGRESS', 'GYMTAP_NO_TAKEOVER']\n", ended.err


async def test_says_when_there_was_nothing_to_see(spawn) -> None:
    """A command that starts no Gym server is no error."""
    ended = await (await spawn(*_GYMTAP, "run", "--", sys.executable, "-c", "print(1)")).end()
    assert (ended.status, ended.out) == (0, "1\n")
    assert "nothing was captured" in ended.err


async def test_a_command_that_is_not_there_leaves_nothing_behind(spawn, tmp_path) -> None:
    """One line, 127, and no capture; 126 for what is there and is no program."""
    for command, status, reason in (
        ("no-such-command", 127, "command not found: no-such-command"),
        (str(tmp_path), 126, f"cannot run {tmp_path}: it is not executable"),
        (__file__, 126, f"cannot run {__file__}: it is not executable"),
    ):
        ended = await (await spawn(*_GYMTAP, "run", "--", command)).end()
        assert (ended.status, ended.out) == (status, "")
        assert ended.err.startswith(f"gymtap: {reason}\n")
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
    miniature.config = {name: miniature.config[name] for name in ("head_server", "resources")}
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    command = (*_GYMTAP, "run", "-c", str(inner), "--", *miniature.main(1, 4))
    ended = await (await spawn(*_GYMTAP, "run", "-c", str(outer), "--", *command, variables=miniature.variables)).end()
    assert ended.status == 4, ended.err
    assert "inside another `gymtap run`" in ended.err
    assert (Capture(inner).info().rows, Capture(outer).info().exchanges) == (1, 0)
