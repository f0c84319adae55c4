"""How methods combine: transcripts of what goes wrong, or could mislead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import ENVIRONMENT, MODEL, PROVIDER, RESOURCES, Script, World, row, server

from gymtap.proxy.core.attribution import Resolver
from gymtap.proxy.core.attribution.flight import ABANDONED_FOR
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Call, Confidence, Method, RowKey, ServerKind, TransportErrorKind

AGENT = server("agent", ServerKind.AGENT)
CHAT = "/v1/chat/completions"


def run_body(task: int = 0, rollout: int = 0, prompt: str = "sf?", **more: object) -> dict[str, object]:
    stated = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "agent"}}
    return {"responses_create_params": {"input": prompt}, **stated, **more}


def told_row(world: World, flow: Flow) -> RowKey | None:
    return world.tap.book.told[flow.id].attribution.row


def alone(world: World, script: Script) -> None:
    for _ in row(world, script):
        pass


def test_two_runs_of_the_same_tasks() -> None:
    """Two runs in one capture give r1 and r2; the agent's /run inside the environment's is no repeat."""
    world = World()
    for _ in range(2):
        for task in range(2):
            alone(world, Script(task=task))
    rows = [told.attribution.row for told in world.tap.book.told.values()]
    assert list(dict.fromkeys(row.label for row in rows if row)) == ["0.0", "1.0", "r2:0.0", "r2:1.0"]
    assert world.wrong == []


@pytest.mark.parametrize("kind", [TransportErrorKind.RESET, TransportErrorKind.CLOSED, TransportErrorKind.REFUSED])
def test_run_sent_again_after_the_server_dropped_it(kind: TransportErrorKind) -> None:
    """Gym's client sends a dropped /run again: the same row, its next attempt, in the same run."""
    world = World()
    flows = []
    for attempt in range(3):
        flows.append(world.open(ENVIRONMENT, "/run", run_body(), (0, 0, "agent"), None, attempt=attempt))
        world.drop(flows[-1], kind)
    assert {told_row(world, flow) for flow in flows} == {RowKey(task=0, rollout=0, agent="agent")}
    assert [flow.attempt for flow in flows] == [0, 1, 2]


def test_dropped_run_is_not_sent_again_by_a_new_collector() -> None:
    """A collector reads the head's configuration first: what comes after it is a new run."""
    world = World()
    first = world.open(ENVIRONMENT, "/run", run_body(), None, None)
    world.drop(first, TransportErrorKind.RESET)
    head = server("head", ServerKind.HEAD)
    world.tap.open(Flow("h", head, 0, "GET", "/global_config_dict_yaml", (), request_body=b""))
    second = world.open(ENVIRONMENT, "/run", run_body(), None, None)
    assert second.attribution.row == RowKey(task=0, rollout=0, run=2, agent="agent")


def test_endless_reconnects_are_attempts() -> None:
    """A provider that drops every connection: attempts 0, 1, 2, … of one call under one parent, in the row."""
    world = World()
    run = world.open(AGENT, "/run", run_body(), (0, 0, "agent"), None)
    model = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, 0, "agent"), run)
    flows = []
    for attempt in range(50):
        body = {"messages": [{"role": "user", "content": "sf?"}]}
        flows.append(world.open(PROVIDER, CHAT, body, (0, 0, "agent"), model, attempt=attempt))
        world.drop(flows[-1], TransportErrorKind.CLOSED)
    assert [flow.attempt for flow in flows] == list(range(50))
    assert {flow.parent for flow in flows} == {model.id}
    assert world.wrong == []


def test_same_tool_twice_is_no_retry() -> None:
    """A call that is repeated after it went well is a call of its own; after it failed, the next attempt."""
    world = World(causality=True)
    run = world.open(AGENT, "/run", run_body(), (0, 0, "agent"), None)
    flows = []
    for status in (200, 200, 500, 200):
        flows.append(world.open(RESOURCES, "/increment", {"by": 1}, (0, 0, "agent"), run))
        world.end(flows[-1], {}, status)
    assert [flow.attempt for flow in flows] == [0, 0, 0, 1]


def test_judge_is_what_a_verify_calls() -> None:
    """What a verify calls is the judge's: for certain with the header; without it, a hint of the row."""
    for causality in (True, False):
        world = World(causality=causality)
        run = world.open(AGENT, "/run", run_body(), (0, 0, "agent"), None)
        verify = world.open(RESOURCES, "/verify", run_body(), (0, 0, "agent"), run)
        model = world.open(MODEL, "/v1/responses", {"input": "Is it cold?"}, (0, 0, "agent"), verify)
        provider = world.open(PROVIDER, CHAT, {"messages": [{"role": "user", "content": "Is it cold?"}]}, None, model)
        if causality:
            assert [model.call, provider.call] == [Call.JUDGE, Call.JUDGE]
        assert told_row(world, provider) == told_row(world, model) == told_row(world, verify)
        assert model.attribution.confidence is (Confidence.CERTAIN if causality else Confidence.LOW)


def test_row_without_identity_is_a_row() -> None:
    """A /run that states no row is one all the same, named after its exchange; so is all that it causes."""
    world = World()
    alone(world, Script(names_row=False, tools=1))
    rows = {told.attribution.row for told in world.tap.book.told.values()}
    assert {row.label if row else None for row in rows} == {"@a1"}


def test_agents_with_the_same_indices() -> None:
    """Two agents that were sent the same indices are two rows, in whatever order their calls come."""
    world = World(seed=5)
    world.play([Script(agent=agent, prefixed=True, tools=2) for agent in ("agent", "other")])
    assert world.wrong == []
    labels = {
        (told.attribution.row.label, told.attribution.row.agent)
        for told in world.tap.book.told.values()
        if told.attribution.row
    }
    assert labels == {("0.0", "agent"), ("0.0", "other")}


def test_explicit_id_that_looks_like_indices() -> None:
    """A path means the row whose path Gym would write so: the explicit id comes before the indices."""
    world = World()
    run = world.open(AGENT, "/run", run_body(0, 0, _ng_rollout_id="7-7"), None, None)
    other = world.open(AGENT, "/run", run_body(1, 0, "la?"), None, None)
    model = world.open(MODEL, "/ng-rollout/7-7/v1/responses", {"input": "?"}, None, run)
    assert told_row(world, model) == told_row(world, run) != told_row(world, other)
    assert model.attribution.method is Method.ROLLOUT_PATH


def test_client_that_shares_cookies_among_rows() -> None:
    """A model session that two rows share ties neither to the other."""
    world = World()
    jar = world.cookie("Model___policy")
    runs = [world.open(AGENT, "/run", run_body(0, rollout), (0, rollout, "agent"), None) for rollout in range(2)]
    for _ in range(3):
        for rollout, run in enumerate(runs):
            model = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, rollout, "agent"), run, cookies=jar)
            world.end(model, {"id": world.token("resp"), "output": []}, cookies=(jar,))
    world.end(runs[0], {})
    last = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, 1, "agent"), runs[1], cookies=jar)
    world.end(last, {"id": world.token("resp"), "output": []}, cookies=(jar,))
    assert world.wrong == []


def test_ids_that_a_dataset_brings_link_nothing() -> None:
    """Call ids in a row's own input are no turn of any row, even where a model makes them again."""
    world = World()
    call = {"type": "function_call", "call_id": "call_9c3f6b77", "name": "f", "arguments": "{}"}
    create = {"input": [{"role": "user", "content": "sf?"}, call]}
    bodies = [run_body(0, rollout) | {"responses_create_params": create} for rollout in range(2)]
    runs = [world.open(AGENT, "/run", body, (0, rollout, "agent"), None) for rollout, body in enumerate(bodies)]
    models = [world.open(MODEL, "/v1/responses", create, (0, n, "agent"), run) for n, run in enumerate(runs)]
    assert {model.attribution.confidence for model in models} == {Confidence.AMBIGUOUS}
    assert world.wrong == []


def test_trace_that_spans_rows_is_distrusted() -> None:
    """A trace id ties exchanges to their row, until two rows have it."""
    world = World()
    header = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

    def traced(number: str, to: object, path: str, body: bytes) -> Flow:
        flow = Flow(number, to, 0, "POST", path, (header,), request_body=body)  # type: ignore[arg-type]  # a server
        world.tap.addon.opened(flow)
        world.tap.addon.requested(flow)
        return flow

    first = b'{"_ng_task_index":0,"_ng_rollout_index":0}'
    traced("t1", AGENT, "/run", first)
    assert traced("t2", RESOURCES, "/f", b"{}").attribution.method is Method.TRACE
    traced("t3", AGENT, "/run", first.replace(b"0,", b"1,", 1))
    assert traced("t4", RESOURCES, "/f", b"{}").attribution.confidence is Confidence.AMBIGUOUS


def test_calls_from_elsewhere_make_content_a_hint() -> None:
    """Once a model server was called by nobody who was seen, content alone is not sure any more."""
    world = World()
    run = world.open(AGENT, "/run", run_body(), (0, 0, "agent"), None)
    sure = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, 0, "agent"), run)
    world.open(MODEL, "/v1/responses", {"input": "who am I?"}, None, None)
    hinted = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, 0, "agent"), run)
    assert [sure.attribution.confidence, hinted.attribution.confidence] == [Confidence.HIGH, Confidence.LOW]


def test_row_too_large_to_read_may_be_the_origin() -> None:
    """An exchange in flight whose body was not kept may be anybody's origin."""
    world = World()
    run = world.open(AGENT, "/run", run_body(), (0, 0, "agent"), None)
    large = Flow("big", AGENT, 0, "POST", "/run", ())
    world.tap.open(large)
    model = world.open(MODEL, "/v1/responses", {"input": "sf?"}, (0, 0, "agent"), run)
    assert model.attribution.confidence is Confidence.AMBIGUOUS
    assert len(model.attribution.candidates) == 2


def test_parent_that_is_not_known() -> None:
    """A causality header that names an exchange long gone keeps the parent, and the other methods find the row."""
    world = World()
    flow = Flow(
        "x", ENVIRONMENT, 0, "POST", "/run", (), causality_parent="gone", request_body=b'{"_ng_rollout_id":"i"}'
    )
    world.tap.open(flow)
    assert (flow.parent, flow.attribution.row) == ("gone", RowKey(rollout_id="i"))


def test_memory_is_bounded() -> None:
    """Five hundred rows leave behind no more than the limits allow."""
    world = World()
    resolver = Resolver(max_tokens=200, max_ended=100, max_rows=50)
    world.tap.addon._resolver = resolver
    for task in range(500):
        alone(world, Script(task=task, tools=1, fails=task % 3 == 0, gives_up=task % 7 == 0))
        world.tap.book.told.clear()
    assert world.wrong == []
    assert len(resolver._tokens) <= 200
    assert len(resolver._nodes) <= 100
    assert len(resolver._rows._known) <= 2 * 51
    assert len(resolver._flight.abandoned) <= ABANDONED_FOR


bodies = st.sampled_from(
    [None, b"", b"{", b"[]", b"null", b'"x"', b'{"input":1,"messages":{},"output":3,"id":[]}', b"\xff"]
)
paths = st.sampled_from(["/run", "/verify", "/seed_session", "/v1/responses", "/v1/agent_sessions", "/f", "/", "*", ""])
prefixes = st.sampled_from(["", "/ng-rollout/1-1", "/ng-rollout/", "/ng-rollout//", "/ng-rollout/a%20b"])


@settings(deadline=None, derandomize=True)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from(list(ServerKind)), prefixes, paths, bodies, bodies, st.booleans(), st.booleans())
    )
)
def test_any_traffic_is_survived(
    requests: list[tuple[ServerKind, str, str, bytes | None, bytes | None, bool, bool]],
) -> None:
    """Nothing that crosses a wire makes the addon raise, or leaves an exchange in flight that is over."""
    world = World()
    for number, (kind, prefix, path, body, answer, whole, causality) in enumerate(requests):
        name = f"a{number}"
        parent = "a0" if causality else None
        flow = Flow(name, server(kind, kind), 0, "POST", prefix + path, (), causality_parent=parent, request_body=body)
        world.tap.addon.opened(flow)
        if whole:
            world.tap.addon.requested(flow)
        flow.status, flow.response_body = 200, answer
        world.tap.addon.ended(flow)
    resolver = world.tap.addon._resolver
    assert not list(resolver._flight.of(*Call))


def test_answer_that_was_not_kept_may_be_anything() -> None:
    """Two provider calls of one prompt, one answer lost: the text of the other does not decide."""
    world = World()
    for rollout in range(2):
        world.open(AGENT, "/run", run_body(0, rollout), (0, rollout, "agent"), None)
    models = [world.open(MODEL, "/v1/responses", {"input": "sf?"}, None, None) for _ in range(2)]
    body = {"messages": [{"role": "user", "content": "sf?"}]}
    lost, kept = (world.open(PROVIDER, CHAT, body, None, model) for model in models)
    lost.status = 200
    world.tap.end(lost)
    text = "The answer is \\boxed{A}, I believe."
    world.end(kept, {"choices": [{"message": {"content": text}}]})
    output = [{"type": "message", "content": [{"text": text}]}]
    world.end(models[0], {"id": world.token("resp"), "output": output})
    told = world.tap.book.told
    assert [told[flow.id].parent for flow in (lost, kept)] == [None, None]
    assert world.wrong == []
