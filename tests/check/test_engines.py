import json
import sys
from pathlib import Path

import pytest

from gymtap.proxy.check.engines import Engines, install, private_directory
from gymtap.proxy.core.errors import UsageError


def test_our_own_process_is_left_as_it_was(engines: Engines) -> None:
    """The stand-ins for torch live in the child only."""
    assert engines.xgrammar('{"type": "object"}').error is None
    assert not {"torch", "xgrammar", "tvm_ffi"} & set(sys.modules)


def test_a_worker_that_dies_is_an_answer_and_the_next_question_gets_a_new_one(tmp_path: Path) -> None:
    dying = tmp_path / "dying-python"
    dying.write_text("#!/bin/sh\nread line\nexit 3\n")
    dying.chmod(0o755)
    with Engines(python=str(dying)) as engines:
        assert "crashed" in str(engines.llguidance("{}").error)
        assert "crashed" in str(engines.llguidance('{"type": "object"}').error)


def test_an_engine_that_needs_too_much_time_gives_no_verdict(tmp_path: Path) -> None:
    """The worker's limit on CPU time ends it, and that is no refusal."""
    slow = tmp_path / "slow-python"
    slow.write_text("#!/bin/sh\nread line\nkill -XCPU $$\n")
    slow.chmod(0o755)
    with Engines(python=str(slow)) as engines:
        reply = engines.llguidance("{}")
    assert (reply.error, reply.missing) == (None, "it took too long on this schema")


def test_a_regex_that_compiles_for_ever_is_given_up(engines: Engines) -> None:
    reply = engines.outlines('{"type": "string", "maxLength": 100000}', stage="compile")
    assert reply.error == "its regex takes too long to compile"
    assert engines.outlines('{"type": "string"}', stage="compile").error is None


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what is allocated")
def test_an_engine_that_wants_all_the_memory_ends_and_the_next_question_is_answered(engines: Engines) -> None:
    """outlines' regex for arrays doubles with each level, and would take the whole machine."""
    deep = json.loads('{"type": "array", "items": ' * 30 + "{}" + "}" * 30)
    assert engines.outlines(json.dumps(deep)).error is not None
    assert engines.outlines('{"type": "string"}').error is None


def test_an_interpreter_that_is_not_there_is_said_in_one_line() -> None:
    with Engines(python="/nowhere/python") as engines, pytest.raises(UsageError, match="cannot be started"):
        engines.versions()


def test_a_release_that_is_not_known_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"vLLM 9\.9 are not known"):
        install("9.9", tmp_path)


def test_engines_are_kept_apart_per_release_and_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert private_directory("0.32").parent == tmp_path / "gymtap" / "engines"
    assert private_directory("0.32") != private_directory("0.33")
