"""Routing over a capture: written as a tap would, read as `gymtap check tools CAPTURE` does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.captured.contracts import contracts_of
from gymtap.proxy.captured.routing import routing
from gymtap.proxy.cli.program import execute
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Attribution, Call, Exchange, Request, Response, RowKey, ServerKind, State

CHAOS = (Path(__file__).parents[1] / "data" / "openapi" / "chaos.json").read_bytes()
KIND = {Call.SEED_SESSION: ServerKind.RESOURCES, Call.TOOL: ServerKind.RESOURCES, Call.MODEL: ServerKind.MODEL}


def tool(name: str) -> dict[str, Any]:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "name": name, "parameters": city, "strict": True}


def row(*names: str) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hi", "tools": [tool(name) for name in names]}}


type Write = Callable[..., None]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@pytest.fixture
def write(place: Path) -> Write:
    """Each argument is a call with its path, what was asked, the status and the answer; one row has them all."""

    def capture(*calls: tuple[Call, str, Any, int, Any], document: bytes | None = CHAOS) -> None:
        writer = CaptureWriter.create(place)
        if document is not None:
            writer.contract("resources", document)
        for number, (call, path, asked, status, answer) in enumerate(calls, 1):
            exchange = Exchange(
                id=f"a{number}",
                server=str(KIND[call]),
                kind=KIND[call],
                call=call,
                state=State.DONE,
                started_ns=number,
                request=Request(method="POST", target=path, headers=()),
                response=Response(status=status, reason="", headers=(), first_byte_ms=1.0, ended_ms=2.0),
                attribution=Attribution(row=RowKey(task=0, rollout=0)),
            )
            writer.add(exchange, json.dumps(asked).encode(), json.dumps(answer).encode())
        writer.close()

    return capture


def said(place: Path) -> list[tuple[str, str, str | None]]:
    capture = Capture(place)
    try:
        return [(one.where, one.finding.rule, one.finding.pointer) for one in routing(capture)]
    finally:
        capture.close()


def test_a_rows_tools_are_held_against_the_server_that_it_seeds(place: Path, write: Write) -> None:
    write((Call.SEED_SESSION, "/seed_session", row("get_weather", "forecast"), 200, {}))
    assert said(place) == [("a1", "routing.no_route", "/responses_create_params/tools/1/name")]


def test_calls_into_nothing_are_named(place: Path, write: Write) -> None:
    write(
        (Call.SEED_SESSION, "/seed_session", row("get_weather"), 200, {}),
        (Call.TOOL, "/get_weather", {"city": "Oslo"}, 200, {}),
        (Call.TOOL, "/forecast", {}, 404, {"detail": "Not Found"}),
    )
    assert said(place) == [("a3", "routing.unknown_tool", None)]


def test_a_models_call_to_what_was_not_offered_is_named_at_its_place(place: Path, write: Write) -> None:
    output = [{"type": "message"}, *({"type": "function_call", "name": name} for name in ("get_weather", "forecast"))]
    asked = row("get_weather")["responses_create_params"]
    write((Call.MODEL, "/v1/responses", asked, 200, {"output": output}))
    assert said(place) == [("a1", "routing.undeclared_tool", "/output/2/name")]


@pytest.mark.parametrize("document", [None, b"not json", b"{}"])
def test_without_a_contract_fastapis_words_are_enough_for_a_call(
    place: Path, write: Write, document: bytes | None
) -> None:
    write(
        (Call.SEED_SESSION, "/seed_session", row("forecast"), 200, {}),
        (Call.TOOL, "/forecast", {}, 404, {"detail": "Not Found"}),
        document=document,
    )
    assert said(place) == [("a2", "routing.unknown_tool", None)]
    capture = Capture(place)
    assert contracts_of(capture) == {}
    capture.close()


def test_check_tools_says_it_of_a_capture(place: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for a thousand rows: where it was met first, and how often."""
    seeds = [(Call.SEED_SESSION, "/seed_session", row("forecast"), 200, {})] * 3
    write(*seeds, (Call.TOOL, "/forecast", {}, 404, {"detail": "Not Found"}))
    assert execute(["check", "tools", str(place), "--no-grammar", "--json"]) == 1
    found = {one["rule"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert (found["routing.no_route"]["where"], found["routing.no_route"]["count"]) == ("a1", 3)
    assert found["routing.unknown_tool"]["severity"] == "error"
