"""One scene of test_modes, run in a network namespace of its own: `tunnel_scene.py MODE FOLDER`.

The server is here, the client in another namespace, from which only the tunnel leads out.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
SERVER = "10.9.9.9"
INTERFACE = f"gt{os.getpid()}"
ASK = f"import urllib.request as r; print(r.urlopen('http://{SERVER}:8000/hello', b'x' * 5000).read().decode())"


class Hello(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server gives it
        pass


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def up(stack: ExitStack, mode: str) -> tuple[subprocess.Popen[str], str]:
    """A tap in that mode, and what it said."""
    command = [sys.executable, "-m", "gymtap", "up", "--engine", "mitm", "--mode", mode]
    child = subprocess.Popen([*command, "--capture", str(FOLDER / "capture")], stderr=subprocess.PIPE, text=True)
    stack.callback(child.kill)
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if "stop with Ctrl-C" in line:
            return child, said
    raise SystemExit(said)


def another_namespace(stack: ExitStack) -> str:
    """The id of a process in it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    stack.callback(holder.kill)
    here = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == here:  # the test's own time limit ends the wait
        pass
    return str(holder.pid)


def wireguard(stack: ExitStack) -> subprocess.Popen[str]:
    """The tunnel's near end, by what the tap says a client has to know."""
    child, said = up(stack, "wireguard@0")
    told = said.partition("[Interface]")[2].partition("gymtap:")[0]
    lines = [line for line in told.splitlines() if not line.startswith(("Address", "DNS"))]
    (FOLDER / "client.conf").write_text("\n".join(["[Interface]", *lines, ""]))
    end = subprocess.Popen(["wireguard-go", "-f", INTERFACE], stdout=subprocess.DEVNULL)
    stack.callback(end.wait)
    stack.callback(end.terminate)  # it takes its socket away
    while subprocess.run(["wg", "show", INTERFACE], capture_output=True, check=False).returncode:
        assert end.poll() is None
    run("wg", "setconf", INTERFACE, str(FOLDER / "client.conf"))
    return child


def main() -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{SERVER}/32", "dev", "lo")
    server = HTTPServer((SERVER, 8000), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with ExitStack() as stack:
        child = wireguard(stack) if MODE == "wireguard" else up(stack, f"tun:{INTERFACE}")[0]
        there = another_namespace(stack)
        run("ip", "link", "set", INTERFACE, "netns", there)
        inside = ["nsenter", "--target", there, "--net"]
        run(*inside, "ip", "address", "add", "10.0.0.1/32", "dev", INTERFACE)
        run(*inside, "ip", "link", "set", INTERFACE, "up")
        run(*inside, "ip", "route", "add", "default", "dev", INTERFACE)
        run(*inside, sys.executable, "-c", ASK)
        child.send_signal(signal.SIGINT)
        assert child.wait() == 0


if __name__ == "__main__":
    main()
