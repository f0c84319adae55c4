"""Logs: what is kept of them, whose they are, and what the doctor makes of their markers."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.doctor.logs import MAX_LINE_BYTES, LogKind, read_logs
from gymtap.proxy.listening import listeners

type Doctor = Callable[..., Any]
NOW_S = 1_806_000_000
"""As the fixture has it."""

TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.13/site-packages/nemo_gym/server_utils.py", line 7, in verify
    return await handler(body)
KeyError: 'tepid'
"""


def test_only_what_may_name_a_cause_is_kept(run: Any) -> None:
    """A hundred thousand good answers leave nothing; the one bad line keeps its number."""
    good = 'INFO:     127.0.0.1:{} - "POST /run HTTP/1.1" 200 OK\n'
    log = run.log("".join(good.format(number) for number in range(100_000)) + "RuntimeError: the engine died\n")
    logs = read_logs([log])
    assert logs.files[0].lines == 100_001
    assert [(text, place) for text, place in zip(logs.lines, logs.places, strict=True) if text != "[...]"] == [
        ("RuntimeError: the engine died", ("servers.log", 100_001))
    ]


def test_a_traceback_is_kept_whole_and_once(run: Any) -> None:
    """Its frames name no cause by themselves, and without them nobody finds the place."""
    log = run.log(TRACEBACK + "INFO: ok\n" + TRACEBACK.replace("line 7", "line 9") + "INFO: ok\n")
    kept = [line for line in read_logs([log]).lines if line != "[...]"]
    assert kept == TRACEBACK.splitlines()


def test_an_answer_that_gym_printed_does_not_run_into_the_next_log(run: Any) -> None:
    servers = run.log(
        "(agent) 🚨 [upstream_request_failed] server=SimpleAgent___agent method=POST url=http://127.0.0.1:1/verify "
        'status=424\n(agent) Response content: {"detail":"no judge"}\n'
    )
    collector = run.log("Collecting rollouts:   0%|          | 0/1 [00:00<?, ?it/s]\n500 error\n", "collector.log")
    logs = read_logs([collector, servers])
    assert [file.kind for file in logs.files] == [LogKind.SERVERS, LogKind.COLLECTOR]
    assert logs.lines[:3] == (*servers.read_text().splitlines(), "[...]")
    assert logs.place("log:2") == "servers.log:2"


def test_a_progress_bar_is_many_states_of_one_line(run: Any) -> None:
    bar = "\r".join(f"Collecting rollouts:  {n}0%|##        | {n}/10 [00:01<00:02,  1.0it/s]" for n in range(10))
    logs = read_logs([run.log(bar + "\n")])
    assert logs.numbers("progress") == (9, 10)
    assert logs.files[0].lines == 1


def test_a_line_without_an_end_is_bounded(run: Any) -> None:
    log = run.log("error " + "x" * (3 * MAX_LINE_BYTES) + "\nfatal: next\n")
    kept = [line for line in read_logs([log]).lines if line != "[...]"]
    assert (len(kept[0]), kept[1]) == (MAX_LINE_BYTES, "fatal: next")


def test_a_directory_is_searched_and_must_hold_logs(run: Any, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    run.log("srun: error: node7: task 0: Out Of Memory\n", "deep/slurm-17.out")
    assert read_logs([tmp_path]).has(LogKind.SLURM)
    for path, said in ((tmp_path / "nothing", "no such file"), (Path(sys.prefix) / "bin", "holds no log")):
        with pytest.raises(UsageError, match=said):
            read_logs([path])


SERVERS_UP = "All 4 / 4 servers ready! Polling every 60s\n"


@pytest.mark.parametrize(
    ("text", "layer", "step"),
    [
        ("slurmstepd: error: *** JOB 17 ON node3 CANCELLED AT 2026-11-30 DUE TO TIME LIMIT ***\n", None, 1),
        ("ray.exceptions.RaySystemError: System error: Failed to connect to GCS\n", "infra", 1),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('::', 8000): address already in use\n",
            "infra",
            3,
        ),
        ("RuntimeError: Process `mcqa` finished unexpectedly!\n", "infra", 3),
        ("omegaconf.errors.InterpolationKeyError: Interpolation key 'policy_api_key' not found\n", "config", 3),
        (
            "(EngineCore) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
            "throughput_resources",
            2,
        ),
        (TRACEBACK, "verifier_runtime", 7),
    ],
    ids=["slurm", "ray", "port", "server", "interpolation", "vllm", "verifier"],
)
def test_a_marker_leads_to_its_layer_and_step(
    run: Any, doctor: Doctor, text: str, layer: str | None, step: int
) -> None:
    looked = doctor(logs=(run.log("INFO: begin\n" + text),))
    assert looked.problems == [step]
    assert layer is None or looked.verdict[0] == layer
    assert "servers.log:" in looked.step(step).why


def test_the_first_exception_is_the_cause_and_not_the_noise_of_the_end(run: Any, doctor: Doctor) -> None:
    noise = "Sending interrupt signals to servers...\nasyncio.exceptions.CancelledError\nConnectionResetError: lost\n"
    looked = doctor(logs=(run.log(SERVERS_UP + TRACEBACK + noise),))
    assert looked.verdict[0] == "verifier_runtime"
    assert "KeyError: 'tepid'" in looked.report.diagnosis.cause


def test_what_servers_say_while_they_are_stopped_is_noise(run: Any, doctor: Doctor) -> None:
    """Gym even announces what Ray will say then; its own reason for stopping is printed last."""
    end = (
        "Sending interrupt signals to servers...\n"
        "(mcqa) Traceback (most recent call last):\n(mcqa)   File \"x.py\", line 1\n(mcqa) KeyError: 'late'\n"
        "rpc_client.h:203: Failed to connect to GCS within 60 seconds. GCS may have been killed.\n"
        "NeMo Gym finished!\n"
    )
    looked = doctor(logs=(run.log(SERVERS_UP + end),))
    assert (looked.verdict[0], looked.problems) == ("none", [])
    own = TRACEBACK.replace("KeyError: 'tepid'", "RuntimeError: Process `mcqa` finished unexpectedly!")
    assert doctor(logs=(run.log(SERVERS_UP + end + own),)).verdict == ("infra", "infra.never_up")
    again = "Waiting for head server to spin up\nOSError: [Errno 28] No space left on device\n"
    assert doctor(logs=(run.log(SERVERS_UP + end + again),)).verdict == ("infra", "infra.disk")


def test_servers_that_were_ready_are_told_by_the_log(run: Any, doctor: Doctor) -> None:
    waiting = "2 / 4 servers ready. Waiting for servers to spin up: ['mcqa', 'policy_model']\n"
    assert "all 4 servers were ready" in doctor(logs=(run.log(waiting + SERVERS_UP),)).step(3).why


def test_servers_that_never_came_up_are_named(run: Any, doctor: Doctor) -> None:
    """The log ended while they were waited for. While it is still written, they may come."""
    log = run.log("2 / 4 servers ready. Waiting for servers to spin up: ['mcqa', 'policy_model']\n")
    looked = doctor(logs=(log,))
    assert (looked.verdict, looked.problems) == (("infra", "infra.never_up"), [3])
    assert "2 of 4 servers ready, waiting for 'mcqa', 'policy_model'" in looked.step(3).why
    os.utime(log, (NOW_S - 5, NOW_S - 5))
    assert doctor(logs=(log,)).problems == []


def test_who_has_the_port_that_a_log_says_is_taken(run: Any, doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port not in listeners():
            pytest.skip("this system does not tell who listens")
        error = f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): address already in use"
        looked = doctor(logs=(run.log(f"ERROR:    {error}\n"),))
    assert looked.verdict == ("infra", "infra.port_in_use")
    assert f"port {port} is taken now by pid {os.getpid()}" in str(looked.step(3).notes)


def test_two_releases_of_nemo_gym_in_one_run(run: Any, doctor: Doctor, tmp_path: Path) -> None:
    """Tracebacks name the folders, and the packages' metadata in them the release."""
    frames = ""
    for venv, version in (("one", "0.7.0"), ("two", "0.5.1")):
        packages = tmp_path / venv / "lib" / "site-packages"
        (packages / f"nemo_gym-{version}.dist-info").mkdir(parents=True)
        frames += f'Traceback (most recent call last):\n  File "{packages}/nemo_gym/x.py", line 1, in {venv}\n'
        frames += f"ValueError: {venv}\n\n"
    looked = doctor(logs=(run.log(frames),))
    texts = [note.text for note in looked.step(3).notes if note.rule == "doctor.versions"]
    assert len(texts) == 1
    assert "nemo_gym 0.5.1" in texts[0]
    assert "nemo_gym 0.7.0" in texts[0]


def test_an_empty_log_tells_nothing(run: Any, doctor: Doctor) -> None:
    """Exit status 2: it could not look."""
    assert doctor(logs=(run.log(""),)).report.exit_code == 2


@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([line.encode() for line in TRACEBACK.splitlines()]))))
def test_any_bytes_are_read_and_every_kept_line_has_its_place(tmp_path_factory: Any, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "any.log"
    path.write_bytes(b"\n".join(lines))
    logs = read_logs([path])
    real = path.read_bytes().split(b"\n")
    assert logs.files[0].size_bytes == path.stat().st_size
    for text, (name, number) in zip(logs.lines, logs.places, strict=True):
        assert name == "any.log"
        assert text == "[...]" or text.encode("utf-8", "surrogateescape") in real[number - 1] or "\ufffd" in text


def test_a_long_log_costs_no_memory(run: Any) -> None:
    """Fifty megabytes of lines that are all different, in a process of its own that may grow by a tenth of that."""
    log = run.folder / "long.log"
    with log.open("w") as file:
        for number in range(500_000):
            file.write(
                f'INFO 10.0.{number % 255}.1:{number} - "POST /v1/responses" 200 {hash(str(number)) & 0xFFFFFFFF:x}\n'
            )
        file.write("x" * 20_000_000)
    code = (
        "import resource, sys; from pathlib import Path; from gymtap.proxy.doctor.logs import read_logs;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; read_logs([Path(sys.argv[1])]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown_kb = int(subprocess.run([sys.executable, "-c", code, str(log)], check=True, capture_output=True).stdout)
    assert grown_kb < 8_000


def test_warnings_of_what_might_be_are_no_failure(run: Any, doctor: Doctor) -> None:
    """Gym 0.7.0 warns at every start that too few descriptors would cause `OSError: [Errno 24]`."""
    warning = "Found ulimit of 1024. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.\n"
    looked = doctor(logs=(run.log(warning + SERVERS_UP),))
    assert (looked.verdict[0], looked.problems) == ("none", [])


def test_what_gym_says_of_ray_is_in_its_servers_log(run: Any, doctor: Doctor) -> None:
    logs = read_logs([run.log("Started Ray cluster at 127.0.0.1:6379\n(raylet) spilled 1 MB\n" + SERVERS_UP)])
    assert logs.files[0].kind is LogKind.SERVERS
    assert logs.has(LogKind.RAY)


def test_several_releases_that_a_log_names_are_told(run: Any, doctor: Doctor) -> None:
    """Which of them is at fault, if any, a log alone cannot say."""
    log = run.log("nemo-gym==0.5.1\nvLLM API server version 0.11.0\nnemo_gym 0.7.0\n" + SERVERS_UP)
    assert read_logs([log]).versions == {"nemo-gym": ("0.5.1", "0.7.0"), "vllm": ("0.11.0",)}
    looked = doctor(logs=(log,))
    assert (looked.problems, looked.step(3).why.partition("; ")[2]) == ([], "the logs name nemo-gym 0.5.1 and 0.7.0")


def test_more_than_can_be_looked_into_is_said(run: Any, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymtap.proxy.doctor.logs.MAX_KEPT_LINES", 50)
    words = [f"{a}{b}" for a in "ghijklmnop" for b in "ghijklmnop"]
    looked = doctor(logs=(run.log("".join(f"error {word}\n" for word in words)),))
    assert "only the first of what the logs tell: there is more than is looked into" in looked.report.given
