"""Run vLLM's grammar engines in a child interpreter: JSON lines in, JSON lines out.

This file is run as a script by any Python 3.10+, gymtap installed or not, so it imports nothing of gymtap.
xgrammar declares torch and transformers but needs no more of them than names at import time; stand-ins take
their place here, in this process only, and after `tvm_ffi`, which looks for a real torch on its own.
A question is `{"ask": engine, "text": schema or tag, ...}`; an answer is `{"error": null}`, `{"error": "why"}`
or `{"missing": "why the engine could not be loaded"}`; `stuck` says that a thread of it is still busy.
"""

from __future__ import annotations

import json
import math
import re
import resource
import sys
import threading
import time
import types
from importlib import metadata
from pathlib import Path
from typing import Any

Question = dict[str, str]
Answer = dict[str, Any]

ANSWER_CPU_S = 20
"""How long one question may take; beyond it the system ends the process (SIGXCPU)."""

ANSWER_BYTES = 2 << 30
"""How much memory one question may take, where the system can say what is taken: outlines' regex for arrays nested
twenty deep is larger than most machines."""

INDEX_CPU_S = 2.0
"""vLLM gives outlines' index 5 s (VLLM_REGEX_COMPILATION_TIMEOUT_S), over a vocabulary far larger than the 256 here.

Counted in CPU time, so that a busy machine gives the same answer.
"""


_JSON_STARTS = '{["-0123456789tfn \n'
"""What a JSON document may begin with."""


class _Anything:
    def __init__(self, *_arguments: object, **_named: object) -> None:
        """Take what is given: some are made at import."""


class _StandIn(types.ModuleType):
    """A module in which every public name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {})


def _install_stand_ins() -> None:
    for name in ("torch", "transformers"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = _StandIn(name)


def _one_line(error: BaseException) -> str:
    """The engine's own words without its log prefix (`[12:00:00] /project/cpp/x.cc:83: `)."""
    text = re.sub(r"^\[\d\d:\d\d:\d\d\] \S+?:\d+: ", "", str(error).strip())
    return text.strip() or type(error).__name__


class Xgrammar:
    """Parse as the API server does; compile, against a vocabulary of single characters, as the engine does."""

    def __init__(self) -> None:
        import tvm_ffi  # noqa: F401, PLC0415  # first (see the module's docstring), and only where it is there

        _install_stand_ins()
        import xgrammar  # noqa: PLC0415  # after the stand-ins

        self._grammar = xgrammar.Grammar
        vocabulary = [chr(code) for code in range(32, 127)] + ["\n", "\t", "</s>"]
        self._end = len(vocabulary) - 1
        info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[self._end])
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=True)
        self._matcher = xgrammar.GrammarMatcher

    def ask(self, question: Question) -> Answer:
        """`kind` is `schema` or `tag`; `stage` is `parse` or `compile`.

        With the cache, as in vLLM, because 0.2.8 fails over some patterns only then; emptied, so that no answer
        depends on an earlier question.
        """
        self._compiler.clear_cache()
        text = question["text"]
        tag = question["kind"] == "tag"
        if question["stage"] == "parse":
            (self._grammar.from_structural_tag if tag else self._grammar.from_json_schema)(text)
        else:
            compile_it = self._compiler.compile_structural_tag if tag else self._compiler.compile_json_schema
            matcher = self._matcher(compile_it(text))
            if not tag and not (matcher.accept_token(self._end) or any(map(matcher.accept_string, _JSON_STARTS))):
                return {"error": "its grammar accepts nothing at all, not even an end"}
        return {"error": None}


class Llguidance:
    """Validate without a tokenizer, with vLLM's defaults."""

    def __init__(self) -> None:
        from llguidance import LLMatcher  # noqa: PLC0415  # only where it is there

        self._matcher = LLMatcher

    def ask(self, question: Question) -> Answer:
        """Only schemas; llguidance takes no structural tag from vLLM 0.32."""
        grammar = self._matcher.grammar_from_json_schema(question["text"], defaults={"whitespace_flexible": True})
        return {"error": self._matcher.validate_grammar(grammar) or None}


class Outlines:
    """Build the regex as the API server does; build the index, within a time, as the engine does."""

    def __init__(self) -> None:
        import outlines_core  # type: ignore[import-untyped]  # noqa: PLC0415  # it has no types; only where it is there

        self._build = outlines_core.json_schema.build_regex_from_schema
        self._index = outlines_core.Index
        self._vocabulary = outlines_core.Vocabulary(0, {bytes([byte]): [byte + 1] for byte in range(256)})

    def ask(self, question: Question) -> Answer:
        """`stage` is `parse` (the answer carries `regex`) or `compile`."""
        regex = self._build(question["text"])
        if question["stage"] == "parse":
            return {"error": None, "regex": regex}
        outcome: list[Answer] = []
        thread = threading.Thread(target=self._compile, args=(regex, outcome), daemon=True)
        end = time.process_time() + INDEX_CPU_S
        thread.start()
        while thread.is_alive() and time.process_time() < end:
            thread.join(0.05)
        return outcome[0] if outcome else {"error": "its regex takes too long to compile", "stuck": True}

    def _compile(self, regex: str, outcome: list[Answer]) -> None:
        try:
            self._index(regex, self._vocabulary)
            outcome.append({"error": None})
        except Exception as error:  # noqa: BLE001  # whatever the engine raises is its answer
            outcome.append({"error": _one_line(error)})


Engine = Xgrammar | Llguidance | Outlines
ENGINES: dict[str, type[Engine]] = {"xgrammar": Xgrammar, "llguidance": Llguidance, "outlines": Outlines}
DISTRIBUTIONS = {"xgrammar": "xgrammar", "llguidance": "llguidance", "outlines": "outlines-core"}


def _version(engine: str) -> str | None:
    try:
        return metadata.version(DISTRIBUTIONS[engine])
    except metadata.PackageNotFoundError:
        return None


def _answer(question: Question, loaded: dict[str, Engine | str]) -> Answer:
    engine = question["ask"]
    if engine not in loaded:
        try:
            loaded[engine] = ENGINES[engine]()
        except Exception as error:  # noqa: BLE001  # a broken installation raises anything, and all of it means "cannot run"
            loaded[engine] = f"{type(error).__name__}: {_one_line(error)}"
    runner = loaded[engine]
    if isinstance(runner, str):
        return {"missing": runner}
    if question.get("stage") == "version":
        return {"error": None, "version": _version(engine)}
    try:
        return runner.ask(question)
    except Exception as error:  # noqa: BLE001  # whatever the engine raises is its answer
        return {"error": _one_line(error)}


def _allow(seconds: int) -> None:
    """Limit the CPU time from now on; not the time on a clock, of which a busy machine takes what it likes."""
    used = math.ceil(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _bound_memory() -> None:
    """Limit what is allocated from now on, so that an engine that wants it all ends itself, and not its neighbours."""
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (taken + ANSWER_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    """Answer one line per line until the input ends."""
    loaded: dict[str, Engine | str] = {}
    answers = sys.stdout
    sys.stdout = sys.stderr  # what an engine prints must not look like an answer
    for line in sys.stdin:
        _allow(ANSWER_CPU_S)
        _bound_memory()
        answers.write(json.dumps(_answer(json.loads(line), loaded)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
