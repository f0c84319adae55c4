"""One scene of test_redirect, run in a network namespace of its own: `redirect_scene.py SCENE FOLDER`."""

import os
import signal
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
    return subprocess.run(["iptables", "-t", "nat", "-S", "OUTPUT"], capture_output=True, text=True, check=True).stdout


def guard_of(pid: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(pid), "-f", "mitm.guard"], capture_output=True, text=True, check=True)
    return int(found.stdout)


def redirected(*options: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "--ports", "14100-14120", "--capture", str(FOLDER / "capture"), *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        sys.stdout.write(line)
        if "pass through here" in line:
            return child
    raise SystemExit(f"it ended: {child.wait()}")


def ask() -> None:
    with urllib.request.urlopen("http://127.0.0.1:14101/hello") as answer:
        assert answer.read() == b"hi"


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
    server = HTTPServer(("127.0.0.1", 14101), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    child = redirected()
    assert "--dport 14100:14120" in rules()
    guard = guard_of(child.pid)
    ask()
    if SCENE == "stopped":
        child.send_signal(signal.SIGINT)
        assert child.wait() == 0
    elif SCENE == "killed":
        child.kill()
        child.wait()
        gone()
        ask()
    elif SCENE == "guard_killed":
        os.kill(guard, signal.SIGKILL)
        assert child.wait() == 0
    elif SCENE == "stale":
        os.kill(guard, signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
        os.kill(guard, signal.SIGKILL)
        child.wait()
        assert "gymtap" in rules()
        subprocess.run([*COMMAND, "--clean"], check=True)
    sys.stdout.write("no rule\n" if "gymtap" not in rules() else rules())


if __name__ == "__main__":
    main()
