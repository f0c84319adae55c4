"""`gymtap redirect` as root, with real iptables, in a network namespace of its own: the machine is not touched."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store import Capture
from gymtap.proxy.wiring.redirect import parse_ports
from gymtap.schemas import ROWLESS_CALLS, Call, RowState, TransportErrorKind

SCENE = Path(__file__).parent / "redirect_scene.py"


def inside(scene: str, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a scene in a network namespace of its own."""
    if os.geteuid() != 0 or shutil.which("iptables") is None or shutil.which("unshare") is None:
        pytest.skip("needs root, iptables and unshare")
    probe = subprocess.run(["unshare", "--net", "iptables", "-t", "nat", "-S"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no network namespace, or no iptables in it, can be had here")
    command = ["unshare", "--net", sys.executable, str(SCENE), scene, str(folder)]
    environ = os.environ | {"GYMTAP_HOME": str(folder), "HOME": str(home), "GYM_HOME": str(Path.home())}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


IPTABLES = ["iptables_killed", "iptables_guard_killed", "iptables_stale"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scene", ["stopped", "killed", "refused", *IPTABLES])
def test_no_rule_is_left(tmp_path: Path, confdir: Path, scene: str) -> None:
    """However it ends, no rule is left: after a signal, and after SIGKILL, with no other process to remove it.

    With iptables: after SIGKILL, that of its guard, and of both at once and `--clean`. A server that knows nothing of
    it is captured meanwhile, and its client gets the answer.
    """
    done = inside(scene, tmp_path, confdir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no rule\n")
    if "a guard process" in done.stdout and scene not in IPTABLES:
        pytest.skip("this kernel has no tables that are owned, so iptables was used")
    if scene not in {"stopped", "iptables_guard_killed"}:
        return
    (exchange,) = Capture(tmp_path / "capture").exchanges()
    assert (exchange.server, exchange.request.target) == ("127.0.0.1:14101", "/hello")
    assert exchange.response is not None
    assert exchange.response.status == 200


@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("nft") is None, reason="nft, which shows what is redirected, is not installed")
def test_ipv6(tmp_path: Path, confdir: Path) -> None:
    """Servers at ::1 are captured too, also one that comes later; a client of localhost still finds 127.0.0.1."""
    done = inside("ipv6", tmp_path, confdir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no rule\n")
    servers = [exchange.server for exchange in Capture(tmp_path / "capture").exchanges()]
    assert servers == ["[::1]:14102", "localhost:14101", "[::1]:14103"]


@pytest.mark.gym
@pytest.mark.timeout(400)
def test_a_real_gym_is_captured_untouched(tmp_path: Path, confdir: Path) -> None:
    """NeMo Gym itself, with nothing in its configuration or environment: every row, every call, and no rule left.

    Gym asks its servers before they listen; what they refused then is recorded as connections, without a request.
    """
    given = os.environ.get("GYMTAP_GYM_VENV")
    venv = Path(given) if given else Path.home() / ".cache" / "gymtap" / "gym" / "venv"
    if not (venv / "bin" / "gym").exists():
        pytest.skip(f"no NeMo Gym in {venv}: `make gym-env` installs it, GYMTAP_GYM_VENV points elsewhere")
    done = inside("gym", tmp_path, confdir)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    capture = Capture(tmp_path / "capture")
    assert [(row.state, row.reward) for row in capture.rows()] == [(RowState.DONE, 1.0)] * 10
    asked = [exchange for exchange in capture.exchanges() if exchange.call not in ROWLESS_CALLS]
    refused = [exchange for exchange in asked if exchange.request.method == "CONNECT"]
    assert {exchange.error and exchange.error.kind for exchange in refused} <= {TransportErrorKind.REFUSED}
    exchanges = [exchange for exchange in asked if exchange not in refused]
    assert Counter(exchange.call for exchange in exchanges) == {
        Call.RUN: 20,  # the environment server's, and the agent's
        Call.SEED_SESSION: 10,
        Call.RESPONSES: 10,
        Call.MODEL: 20,
        Call.PROVIDER: 20,
        Call.TOOL: 10,
        Call.VERIFY: 10,
    }


@pytest.mark.parametrize("text", ["", "x", "1-x", "9-1", "0", "70000", "-5"])
def test_ranges_that_are_none(text: str) -> None:
    """They are refused in words."""
    with pytest.raises(UsageError, match="no range of ports"):
        parse_ports(text)


def test_ranges() -> None:
    """A range, or one port."""
    assert (parse_ports("10001-20000"), parse_ports("80")) == ((10001, 20000), (80, 80))
