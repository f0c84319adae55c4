"""How often the grammar preflight says what a real vLLM said, schema by schema.

    schema_agreement.py FILE              one JSON line per name and path; reads only `name` and `parameters`
    schema_agreement.py FILE --compare    the table of agreement with the live verdicts that FILE holds
    schema_agreement.py FILE --live URL   the same, asked now of a vLLM at URL (its /v1; hermes parser, backend auto,
                                          freshly started); one JSON line per name with its three status codes

FILE is a JSON list, or JSON Lines, of objects with `name` and `parameters`. For `--compare` it also holds
`live_vllm_0_32` (server -> request shape -> {"status"}), and `seed_checker` ({"verdict"}) for a second column.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.grammar import check_grammar
from gymtap.proxy.check.verdict import Verdict, judge
from gymtap.proxy.check.vllm_rules import Backend, DefinitionsClashError, Route, required_schema

SHAPES = (
    (Route.STRICT_TOOL, Backend.AUTO, "hermes_auto", "chat_auto_strict"),
    (Route.STRICT_TOOL, Backend.AUTO, "hermes_auto", "chat_required_strict"),
    (Route.STRICT_TOOL, Backend.AUTO, "hermes_auto", "responses_auto_strict"),
    (Route.REQUIRED_JSON, Backend.AUTO, "legacy_hermes_json", "chat_required"),
    (Route.RESPONSE_FORMAT, Backend.AUTO, "hermes_auto", "chat_response_format"),
    (Route.STRICT_TOOL, Backend.XGRAMMAR, "xgrammar", "chat_auto_strict"),
    (Route.RESPONSE_FORMAT, Backend.XGRAMMAR, "xgrammar", "chat_response_format"),
    (Route.STRICT_TOOL, Backend.GUIDANCE, "guidance", "chat_auto_strict"),
    (Route.RESPONSE_FORMAT, Backend.GUIDANCE, "guidance", "chat_response_format"),
    (Route.STRICT_TOOL, Backend.OUTLINES, "outlines", "chat_auto_strict"),
    (Route.RESPONSE_FORMAT, Backend.OUTLINES, "outlines", "chat_response_format"),
)
TOOL = "f"
"""The tool's name in every request; the live verdicts were taken with one tool."""


def read(file: Path) -> list[dict[str, Any]]:
    """The cases of a JSON list or of JSON Lines."""
    text = file.read_text()
    cases = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    return [case for case in cases if case]


def show(engines: Engines, cases: list[dict[str, Any]]) -> None:
    """One JSON line per name and path."""
    for case in cases:
        for answer in check_grammar(engines, TOOL, case["parameters"]):
            said = answer.as_json()
            print(json.dumps({"name": case["name"]} | {key: said[key] for key in KEYS}))


KEYS = ("path", "verdict", "keyword", "pointer", "reason")


def compare(engines: Engines, cases: list[dict[str, Any]]) -> bool:
    """Print the table; whether every verdict under backend `auto` agrees."""
    print(f"{'path':<16}{'backend':<10}{'request shape':<23}{'gymtap':>9}{'status':>9}{'seed checker':>14}")
    good = True
    for route, backend, server, shape in SHAPES:
        rows = [(case, live) for case in cases if (live := case["live_vllm_0_32"].get(server, {}).get(shape))]
        verdicts = [judge(engines, [(TOOL, case["parameters"])], route, backend) for case, _live in rows]
        agree = sum(
            verdict.ok == (live["status"] == 200) for verdict, (_case, live) in zip(verdicts, rows, strict=True)
        )
        exact = sum(verdict.status == live["status"] for verdict, (_case, live) in zip(verdicts, rows, strict=True))
        seed = [
            (case["seed_checker"]["verdict"] == "ok") == (live["status"] == 200)
            for case, live in rows
            if "seed_checker" in case
        ]
        ours, status = f"{agree}/{len(rows)}", f"{exact}/{len(rows)}"
        other = f"{sum(seed)}/{len(seed)}" if seed else "-"
        print(f"{route:<16}{backend:<10}{shape:<23}{ours:>9}{status:>9}{other:>14}")
        for verdict, (case, live) in zip(verdicts, rows, strict=True):
            if verdict.ok != (live["status"] == 200):
                print(
                    f"  differs: {case['name']}: vLLM {live['status']}, gymtap {verdict.status} {verdict.reason[:60]}"
                )
        good = good and (backend is not Backend.AUTO or agree == len(rows))
    return good


def live(engines: Engines, cases: list[dict[str, Any]], url: str) -> bool:
    """Ask a running vLLM about each case on each path; whether every verdict agrees.

    What differs goes to stderr. `required_json` is the schema that vLLM composes for it, as a response format. The
    first request is a good strict tool, since the engine keeps the backend of its first structured request.
    """
    model = _ask(url, "/models")[1]["data"][0]["id"]
    _live(url, model, Route.STRICT_TOOL, {"type": "object", "properties": {"a": {"type": "string"}}})
    agree = dict.fromkeys(Route, 0)
    for case in cases:
        said: dict[str, int] = {}
        for route in Route:
            verdict = judge(engines, [(TOOL, case["parameters"])], route, Backend.AUTO)
            status, message = _live(url, model, route, case["parameters"])
            said[route] = status
            agree[route] += verdict.status == status
            if verdict.status != status:
                print(_difference(case["name"], route, status, message, verdict), file=sys.stderr)
        print(json.dumps({"name": case["name"], "parameters": case["parameters"], **said}), flush=True)
    for route, count in agree.items():
        print(f"{route:<16}{count}/{len(cases)}", file=sys.stderr)
    return all(count == len(cases) for count in agree.values())


def _difference(name: str, route: Route, status: int, message: str, verdict: Verdict) -> str:
    return f"  differs: {name} {route}: vLLM {status} {message[:90]!r}, gymtap {verdict.status} {verdict.reason[:90]!r}"


def _live(url: str, model: str, route: Route, parameters: Any) -> tuple[int, str]:
    """The status and the message of a one-token request that makes vLLM compile these parameters."""
    request: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    if route is Route.STRICT_TOOL:
        function = {"name": TOOL, "parameters": parameters, "strict": True}
        request["tools"] = [{"type": "function", "function": function}]
    else:
        try:
            schema = required_schema([(TOOL, parameters)]) if route is Route.REQUIRED_JSON else parameters
        except DefinitionsClashError as clash:
            return 400, f"not sent: {clash}"
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": TOOL, "schema": schema}}
    status, answer = _ask(url, "/chat/completions", request)
    return status, str(answer.get("error", {}).get("message", ""))


def _ask(url: str, path: str, request: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if request is None else json.dumps(request).encode()
    asked = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})  # the URL given
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:  # the same
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def main() -> int:
    """0 when all that was compared agrees, 1 when not, 2 when an engine could not be run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--compare", action="store_true")
    options.add_argument("--live", metavar="URL", help="a running vLLM, say http://127.0.0.1:8101/v1")
    options.add_argument("--engines-python", help="an interpreter that has the engines, say a vLLM environment's")
    chosen = options.parse_args()
    cases = read(chosen.file)
    with Engines(python=chosen.engines_python) as engines:
        if missing := [name for name, version in engines.versions().items() if version is None]:
            print(f"cannot be run: {', '.join(missing)} (gymtap engines install)", file=sys.stderr)
            return 2
        if chosen.live:
            return 0 if live(engines, cases, chosen.live.rstrip("/")) else 1
        if not chosen.compare:
            show(engines, cases)
            return 0
        started = time.perf_counter()
        good = compare(engines, cases)
        versions = ", ".join(f"{name} {version or 'missing'}" for name, version in engines.versions().items())
        print(f"{len(cases)} schemas in {time.perf_counter() - started:.1f} s with {versions}", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
