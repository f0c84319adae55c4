"""`gymtap export` and `gymtap import`, from the command line."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from gymtap.proxy.store import Capture


def gymtap(*line: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    environ = os.environ | {"GYMTAP_HOME": str(home)}
    return subprocess.run([sys.executable, "-m", "gymtap", *line], capture_output=True, env=environ, check=False)


def test_out_and_in_again(capture: Capture, tmp_path: Path) -> None:
    """A file takes its name when it is whole; its import is the newest capture, and says how it went."""
    out = tmp_path / "all.jsonl"
    done = gymtap("export", str(capture.path), "--output", str(out), home=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert f"6 exchanges in {out}" in done.stderr.decode()
    assert "! 1 exchange not whole in the capture" in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]
    back = gymtap("import", str(out), "--json", home=tmp_path)
    said = orjson.loads(back.stdout)
    assert said["exchanges"] == Capture(Path(said["capture"])).count() == 6


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--failed"], ["a2", "a4"]),
        (["--row", "12.3"], ["a1"]),
        (["--call", "run"], ["a1"]),
        (["--kind", "agent"], ["a1"]),
        (["--server", "agent"], ["a1"]),
        (["-x", "a3", "-x", "a2"], ["a3", "a2"]),
    ],
)
def test_what_is_chosen(capture: Capture, tmp_path: Path, options: list[str], ids: list[str]) -> None:
    """Each option chooses what it says."""
    done = gymtap("export", str(capture.path), *options, home=tmp_path)
    lines = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [line["exchange"]["id"] for line in lines[1:]] == ids


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--format", "curl"], 2, "--exchange a42"),
        (["--format", "rows-jsonl", "--call", "run"], 2, "rows are chosen by"),
        (["--call", "phone"], 2, "there are: run, "),
        (["--exchange", "a99"], 3, "no exchange a99"),
        (["--row", "9.9"], 3, "no row 9.9"),
        (["--output", "/dev/null/x"], 1, "cannot write"),
    ],
)
def test_what_cannot_be_meant(capture: Capture, tmp_path: Path, options: list[str], code: int, says: str) -> None:
    """It is said in one line with a way out."""
    done = gymtap("export", str(capture.path), *options, home=tmp_path)
    assert done.returncode == code
    assert says in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    """The file and the line are named, and no capture is made."""
    (tmp_path / "x.jsonl").write_text('{"hop"\n')
    done = gymtap("import", str(tmp_path / "x.jsonl"), home=tmp_path)
    assert done.returncode == 2
    assert "x.jsonl:2: not JSON" in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    """What can be read is kept; the line that cannot is named, and the exit status says that there is a gap."""
    good = '{"hop": "a", "path": "/", "method": "GET", "t0": 1}\n'
    (tmp_path / "x.jsonl").write_text(f'{good}{{"hop"\n{good}')
    done = gymtap("import", str(tmp_path / "x.jsonl"), home=tmp_path)
    assert done.returncode == 5
    assert "x.jsonl:2: not JSON" in done.stderr.decode()
    assert "2 exchanges from 1 file" in done.stderr.decode()


def test_a_device_is_written_as_it_is(capture: Capture, tmp_path: Path) -> None:
    """What is no file is never replaced by one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    assert gymtap("export", str(capture.path), "--output", str(pipe), home=tmp_path).returncode == 0
    out, _ = reader.communicate()
    assert len(out.splitlines()) == 7
    assert pipe.is_fifo()
