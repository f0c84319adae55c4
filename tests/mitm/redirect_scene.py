"""One scene of test_redirect, run in a network namespace of its own: `redirect_scene.py SCENE FOLDER`.

That no rule is left is seen by asking: a connection that were still redirected would be refused.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

SCENE, FOLDER = sys.argv[1], Path(sys.argv[2])
COMMAND = [sys.executable, "-m", "gymtap", "redirect"]


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server gives it
        pass


def rules() -> str:
    """What iptables and, where it is installed, nft know of."""
    command = ["iptables", "-t", "nat", "-S", "OUTPUT"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if shutil.which("nft") is None:
        return known
    return known + subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def redirected(*options: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "--ports", "14100-14120", "--capture", str(FOLDER / "capture"), *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        sys.stdout.write(line)
        if "pass through here" in line:
            return child
    raise SystemExit(f"it ended: {child.wait()}")


def ask(host: str = "127.0.0.1", port: int = 14101) -> None:
    with urllib.request.urlopen(f"http://{host}:{port}/hello") as answer:
        assert answer.read() == b"hi"


def serve(server: HTTPServer) -> None:
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Hello6(HTTPServer):
    address_family = socket.AF_INET6


def gone() -> None:
    while "gymtap" in rules():  # the test's own time limit ends the wait
        pass


def gym() -> None:
    """A real Gym, which knows nothing of it, and a provider, both at ports that are redirected."""
    examples = Path(__file__).parents[2] / "examples"
    provider = subprocess.Popen([sys.executable, str(examples / "stub_provider.py"), "14119"], stdout=subprocess.PIPE)
    child = redirected()
    config = ("--config", str(examples / "gym_single_tool_call.yaml"), "--split", "validation")
    model = ("--model", "stub-model", "--model-url", "http://127.0.0.1:14119/v1", "--model-api-key", "EMPTY")
    size = ("--num-repeats", "2", "--concurrency", "10", "--output", str(FOLDER / "rollouts.jsonl"))
    ports = ("++port_range_low=14100", "++port_range_high=14118")
    environ = os.environ | {"GYMTAP_GYM_WORK": str(FOLDER), "HOME": os.environ["GYM_HOME"]}
    command = [str(examples / "gym.sh"), "eval", "run", *config, *model, *size, *ports]
    done = subprocess.run(command, env=environ, stdout=sys.stderr, check=False)
    child.kill()
    child.wait()
    gone()
    provider.kill()
    assert done.returncode == 0


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if SCENE == "gym":
        gym()
        sys.stdout.write("no rule\n")
        return
    if SCENE == "refused":
        with_file = subprocess.run([*COMMAND, "--ports", "14100-14120", "--capture", __file__], check=False)
        assert with_file.returncode != 0
        sys.stdout.write("no rule\n" if "gymtap" not in rules() else rules())
        return
    serve(HTTPServer(("127.0.0.1", 14101), Hello))
    if SCENE == "ipv6":
        ipv6()
        return
    child = redirected(*(["--iptables"] if SCENE.startswith("iptables") else []))
    guards = children_of(child.pid)
    ask()
    end(child, guards)
    ask()
    sys.stdout.write("no rule\n" if "gymtap" not in rules() else rules())


def end(child: subprocess.Popen[str], guards: list[int]) -> None:
    """However the scene says."""
    if SCENE.endswith("stopped"):
        child.send_signal(signal.SIGINT)
        assert child.wait() == 0
    elif SCENE.endswith("_guard_killed"):
        os.kill(guards[0], signal.SIGKILL)
        assert child.wait() == 0
    elif SCENE.endswith("killed"):
        child.kill()
        child.wait()
        if guards:
            gone()
    elif SCENE == "iptables_stale":
        os.kill(guards[0], signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
        os.kill(guards[0], signal.SIGKILL)
        child.wait()
        assert "gymtap" in rules()
        subprocess.run([*COMMAND, "--clean"], check=True)


def ipv6() -> None:
    """A server at ::1 that was there before, one that comes later, and a client of localhost whose server has IPv4."""
    serve(Hello6(("::1", 14102), Hello))
    child = redirected()
    ask("[::1]", 14102)
    ask("localhost", 14101)
    serve(Hello6(("::1", 14103), Hello))
    while "14103" not in rules():  # the test's own time limit ends the wait
        pass
    ask("[::1]", 14103)
    child.send_signal(signal.SIGINT)
    assert child.wait() == 0
    ask("[::1]", 14102)
    sys.stdout.write("no rule\n" if "gymtap" not in rules() else rules())


if __name__ == "__main__":
    main()
