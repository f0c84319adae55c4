"""Sweeps of a dataset over a provider on loopback: what is asked, how often, and whose fault a refusal is."""

import asyncio
from typing import Any

import pytest

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.requests import Carrier
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.preflight.answers import Outcome
from gymtap.proxy.preflight.endpoint import Endpoint
from gymtap.proxy.preflight.plan import plan
from gymtap.proxy.preflight.states import modes_of
from gymtap.proxy.preflight.sweep import LiveReport, sweep
from gymtap.schemas import Severity

GOOD = {"type": "object", "properties": {"a": {"type": "string"}}}
BAD = {"type": "object", "properties": {"a": {"type": "str"}}}

type Provider = Any  # the fixture's


def row(*schemas: Any, strict: bool = True, **params: Any) -> dict[str, Any]:
    tools = [
        {"type": "function", "name": f"t{number}", "parameters": schema, "strict": strict}
        for number, schema in enumerate(schemas)
    ]
    return {"responses_create_params": {"input": "hi", "tools": tools, **params}}


@pytest.fixture(scope="module")
def engines() -> Any:
    with Engines() as engines:
        if any(version is None for version in engines.versions().values()):
            pytest.skip("the grammar engines are not installed: uv sync --group engines")
        yield engines


async def swept(
    provider: Provider, engines: Engines | None, *rows: Any, model: str = "tiny", key: str | None = None, **more: Any
) -> LiveReport:
    async with Endpoint(provider.url, api_key=key) as endpoint:
        served = await endpoint.models()
        made = plan([Carrier(f"rows.jsonl:{number}", one) for number, one in enumerate(rows, 1)], model)
        return await sweep(endpoint, made, model, served, engines=engines, **more)


async def test_each_distinct_list_is_asked_about_once(provider: Provider, engines: Engines) -> None:
    """A thousand rows with one tool list are one request of one token, after the questions about the server."""
    rows = [row(GOOD)] * 1000 + [row(GOOD, GOOD), {"responses_create_params": {"input": "no tools"}}]
    report = await swept(provider, engines, *rows)
    assert [one.asked.count for one in report.results] == [1000, 1]
    assert (report.plan.rows, report.plan.without) == (1002, 1)
    assert report.outcomes == {"accepted": 2}
    assert report.findings == []
    assert len(provider.asked) == 3 + 2  # without tools, strict, auto; then the lists
    assert {asked["max_tokens"] for asked in provider.asked} == {1}


async def test_a_refused_schema_is_named_with_its_place_and_reason(provider: Provider, engines: Engines) -> None:
    """The server says `'triggers'` of everything; our own verdict beside it says which tool, where and why."""
    report = await swept(provider, engines, row(GOOD), row(GOOD, BAD))
    assert report.outcomes == {"accepted": 1, "schema_rejected": 1}
    ((found, result),) = report.findings
    assert result is not None
    assert (found.rule, found.severity) == ("preflight.schema_rejected", Severity.ERROR)
    assert found.pointer == "/responses_create_params/tools/1/parameters/properties/a/type"
    assert "'triggers'" in found.message
    assert 'Unsupported type "str"' in found.message
    assert [one.agrees for one in report.results] == [True, True]


async def test_a_refusal_that_our_engines_do_not_share_is_told_apart(provider: Provider, engines: Engines) -> None:
    """Another version, or another server: what it said is all that is known."""
    provider.bad = '"t0"'
    report = await swept(provider, engines, row(GOOD))
    ((found, _),) = report.findings
    assert "another version" in found.message
    assert report.results[0].agrees is False


async def test_our_refusal_of_what_the_server_took_is_a_difference(provider: Provider, engines: Engines) -> None:
    provider.bad = "nothing of the kind"
    report = await swept(provider, engines, row(BAD))
    assert report.findings == []
    assert report.as_json()["agreement"] == {"same": 0, "different": 1, "not_comparable": 0}


@pytest.mark.parametrize(
    ("state", "rows", "name", "modes"),
    [
        ("no_parser", [row(GOOD, strict=False)], "no_tool_parser", ("auto",)),
        ("guidance", [row(GOOD)], "pinned_backend", ("strict",)),
        ("outlines_first", [row(GOOD), row(GOOD, strict=False, tool_choice="required")], "wrong_backend", None),
    ],
)
async def test_a_servers_state_is_said_once_and_blames_no_tool(  # noqa: PLR0917  # a table's columns
    provider: Provider, engines: Engines, state: str, rows: list[Any], name: str, modes: tuple[str, ...] | None
) -> None:
    """A server that refuses what is good says nothing about the dataset's tools."""
    provider.state = state
    report = await swept(provider, engines, *rows)
    (found,) = report.states
    assert (found.name, found.modes) == (name, modes or ("strict", "required"))
    assert {one.answer.outcome for one in report.results} == {Outcome.STATE}
    assert {one.severity for one, result in report.findings if result is not None} == {Severity.WARNING}


async def test_a_bad_schema_is_named_in_whatever_state(provider: Provider, engines: Engines) -> None:
    """What our engines refuse would be refused by a healthy server too."""
    provider.state = "outlines_first"
    report = await swept(provider, engines, row(BAD))
    assert report.results[0].answer.outcome is Outcome.SCHEMA
    assert any(found.rule == "preflight.schema_rejected" for found, _ in report.findings)


@pytest.mark.parametrize(
    ("model", "key", "name", "hint"),
    [
        ("nope", "right", "unknown_model", "--model tiny"),
        ("tiny", "wrong", "unauthorized", "--api-key-env"),
    ],
)
async def test_what_refuses_everything_is_asked_no_more(  # noqa: PLR0917  # a table's columns
    provider: Provider, engines: Engines, model: str, key: str, name: str, hint: str
) -> None:
    provider.key = "right"
    report = await swept(provider, engines, row(GOOD), model=model, key=key)
    (state,) = report.states
    assert (state.name, state.fatal, hint in state.fix) == (name, True, True)
    assert len(provider.asked) <= 1
    assert report.results == []


@pytest.mark.parametrize(
    ("state", "name", "said"),
    [
        ("login", "no_chat_completion", "Log in"),
        ("silent", "no_chat_completion", "200"),
        ("empty", "broken", "gets no message"),
        ("elsewhere", "unknown_path", "redirects to /login"),
        ("full", "busy", "slow down"),
        ("loading", "busy", "no upstream"),
        ("dead", "broken", "EngineCore"),
    ],
)
async def test_what_is_no_provider_that_can_answer_is_no_acceptance(
    provider: Provider, engines: Engines, state: str, name: str, said: str
) -> None:
    provider.state = state
    report = await swept(provider, engines, row(GOOD))
    (found,) = report.states
    assert (found.name, found.fatal, said in found.message) == (name, True, True)
    assert report.results == []


async def test_requests_that_a_state_is_to_blame_for_are_one_finding(provider: Provider) -> None:
    provider.state = "no_parser"
    report = await swept(provider, None, row(GOOD), row(GOOD, GOOD), row(GOOD, GOOD, GOOD))
    (_state, (unknown, first)) = report.findings
    assert (unknown.rule, "2 more distinct requests" in unknown.message) == ("preflight.server_state", True)
    assert first is report.results[0]


async def test_a_server_that_ends_every_connection_unsaid_is_asked_all_the_same() -> None:
    """A connection that is kept may be gone at the next request, which would be taken for no answer."""
    body = b'{"data": [{"id": "m"}], "choices": [{"message": {}, "finish_reason": "length"}]}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Endpoint(f"http://127.0.0.1:{port}/v1") as endpoint:
            made = plan([Carrier(f"rows:{n}", row(*[GOOD] * n)) for n in (1, 2, 3)], "m")
            report = await sweep(endpoint, made, "m", await endpoint.models())
    assert (report.states, report.outcomes) == ([], {"accepted": 3})


async def test_a_base_url_without_its_version_is_a_path(provider: Provider, engines: Engines) -> None:
    provider.url = provider.url.removesuffix("/v1")
    report = await swept(provider, engines, row(GOOD))
    assert [state.name for state in report.states] == ["unknown_path"]


async def test_nobody_there_is_a_transport_error(engines: Engines, unused_tcp_port: int) -> None:
    async with Endpoint(f"http://127.0.0.1:{unused_tcp_port}/v1") as endpoint:
        report = await sweep(endpoint, plan([], "m"), "m", await endpoint.models(), engines=engines)
    assert [state.name for state in report.states] == ["unreachable"]


async def test_a_chat_rows_refused_format_is_pointed_at_where_it_is(provider: Provider, engines: Engines) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "str"}}}
    chat = {"messages": [], "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    report = await swept(provider, engines, chat)
    (found,) = [one for one, _ in report.findings]
    assert found.pointer == "/response_format/json_schema/schema/properties/a/type"


@pytest.mark.parametrize(
    ("odd", "modes"), [({"tools": True}, {"auto"}), ({"tools": [{"function": 3}, 4]}, {"auto"}), ({"tools": {}}, set())]
)
def test_tools_that_are_none_need_nothing_strict(odd: dict[str, Any], modes: set[str]) -> None:
    assert modes_of(odd) == modes


@pytest.mark.parametrize("form", [1, {"json_schema": 1}, {"json_schema": {"schema": []}}])
async def test_an_odd_response_format_is_for_the_endpoint_to_judge(
    provider: Provider, engines: Engines, form: Any
) -> None:
    report = await swept(provider, engines, {"messages": [], "response_format": form})
    assert report.outcomes == {"accepted": 1}


async def test_a_list_that_is_too_long_is_no_bad_schema(provider: Provider, engines: Engines) -> None:
    provider.state = "short"
    report = await swept(provider, engines, row(*[GOOD] * 20))
    assert [one.answer.outcome for one in report.results] == [Outcome.CONTEXT]


async def test_what_gym_cannot_convert_is_never_sent(provider: Provider, engines: Engines) -> None:
    bad = {"responses_create_params": {"input": "x", "tools": [{"type": "web_search"}]}}
    report = await swept(provider, engines, bad)
    ((found, _),) = report.findings
    assert found.rule == "preflight.not_converted"
    assert all("tools" not in asked for asked in provider.asked)


async def test_no_more_than_asked_are_under_way(provider: Provider) -> None:
    """Every one of eight is let in before any is answered, and never a ninth."""
    full = asyncio.Event()

    async def hold() -> None:
        if provider.at_a_time == 8:
            full.set()
        if len(provider.asked) >= 3:  # after the questions about the server
            await full.wait()

    provider.hold = hold
    rows = [row({"type": "object", "properties": {f"p{number}": {}}}) for number in range(24)]
    done: list[int] = []
    report = await swept(provider, None, *rows, concurrency=8, progress=lambda: done.append(1))
    assert provider.most_at_a_time == 8
    assert len(done) == 24
    assert report.outcomes == {"accepted": 24}


def test_an_endpoint_is_an_address() -> None:
    with pytest.raises(UsageError, match="not an http"):
        Endpoint("localhost:8000")
