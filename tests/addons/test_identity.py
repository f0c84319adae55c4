"""The identity addon: what it sets on flows, and what it tells the sink of exchanges before."""

import base64

from gymtap.addons.identity import Identity
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Attribution, Call, Confidence, Method, RowKey, Server, ServerKind

RUN = b'{"_ng_task_index":%d,"_ng_rollout_index":0,"responses_create_params":{"input":"sf?"}}'
ASK = b'{"input":"sf?"}'


def make() -> tuple[Identity, Heard]:
    heard = Heard()
    return Identity(Setup(heard)), heard


def flow(
    number: str, name: str, kind: ServerKind, target: str, body: bytes, *, cookie: str = "", parent: str | None = None
) -> Flow:
    server = Server(name=name, kind=kind, listen="http://l", upstream="http://u")
    headers = (("cookie", cookie),) if cookie else ()
    return Flow(number, server, 0, "POST", target, headers, causality_parent=parent, request_body=body)


def send(addon: Identity, sent: Flow) -> Flow:
    addon.opened(sent)
    addon.requested(sent)
    return sent


def answer(addon: Identity, sent: Flow, body: bytes = b"{}", cookie: str = "") -> None:
    sent.status, sent.response_body = 200, body
    sent.response_headers = (("set-cookie", f"{cookie}; path=/"),) if cookie else ()
    addon.ended(sent)


def session(name: str, value: str) -> str:
    return f"{name}=" + base64.b64encode(b'{"session_id": "%s"}' % value.encode()).decode() + ".t.sig"


def test_flow_is_told_before_it_ends() -> None:
    """A request that states its row has call, row, parent and attempt as soon as it is whole."""
    addon, notes = make()
    run = send(addon, flow("a1", "agent", ServerKind.AGENT, "/run", RUN % 3))
    seed = send(addon, flow("a2", "tools", ServerKind.RESOURCES, "/seed_session", RUN % 3))
    assert (run.call, seed.call) == (Call.RUN, Call.SEED_SESSION)
    assert run.attribution == seed.attribution
    assert run.attribution == Attribution(
        row=RowKey(task=3, rollout=0),
        method=Method.BODY,
        confidence=Confidence.CERTAIN,
        evidence="its body states the row",
    )
    assert (run.parent, seed.parent, seed.attempt) == (None, "a1", 0)
    assert notes == Heard()


def test_later_evidence_revises_earlier_exchanges() -> None:
    """A first model call that two rows may have made is told of its row when the self-call brings its session back."""
    addon, notes = make()
    rows = []
    for number in range(2):
        run = send(addon, flow(f"r{number}", "agent", ServerKind.AGENT, "/run", RUN % number))
        seed = send(addon, flow(f"s{number}", "tools", ServerKind.RESOURCES, "/seed_session", RUN % number))
        answer(addon, seed, cookie=session("Tools___tools", f"t{number}"))
        turn = flow(
            f"t{number}", "agent", ServerKind.AGENT, "/v1/responses", ASK, cookie=session("Tools___tools", f"t{number}")
        )
        rows.append((run, send(addon, turn)))
    model = send(addon, flow("m", "policy", ServerKind.MODEL, "/v1/responses", ASK))
    assert model.attribution.confidence is Confidence.AMBIGUOUS
    assert [key.task for key in model.attribution.candidates] == [0, 1]
    answer(addon, model, cookie=session("Model___policy", "m"))
    answer(addon, rows[1][1], cookie=session("Model___policy", "m"))
    assert notes.attributed == [
        (
            "m",
            Attribution(
                row=RowKey(task=1, rollout=0),
                method=Method.SESSION,
                confidence=Confidence.HIGH,
                evidence="Model___policy came back in t1 (responses)",
            ),
            "t1",
            0,
        )
    ]
    assert notes.classified == [("m", Call.MODEL)]


def test_open_flows_are_revised_too() -> None:
    """What is learned of a flow that is still open is set on the flow and told to the sink."""
    addon, notes = make()
    send(addon, flow("r0", "agent", ServerKind.AGENT, "/run", RUN % 0))
    tool = send(addon, flow("x", "tools", ServerKind.RESOURCES, "/f", b"{}", cookie=session("Tools___tools", "s")))
    assert tool.attribution.confidence is Confidence.LOW
    send(addon, flow("v", "tools", ServerKind.RESOURCES, "/verify", RUN % 0, cookie=session("Tools___tools", "s")))
    assert tool.attribution.confidence is Confidence.HIGH
    assert notes.attributed == [("x", tool.attribution, tool.parent, 0)]


def test_kinds_are_identified_once() -> None:
    """Servers of unknown kind are identified when their traffic shows it: an environment's /run causes an agent's."""
    addon, notes = make()
    send(addon, flow("a1", "one", ServerKind.UNKNOWN, "/run", RUN % 0))
    assert notes.identified == []
    send(addon, flow("a2", "two", ServerKind.UNKNOWN, "/run", RUN % 0))
    send(addon, flow("a3", "three", ServerKind.UNKNOWN, "/seed_session", RUN % 0))
    send(addon, flow("a4", "three", ServerKind.UNKNOWN, "/verify", RUN % 0))
    assert notes.identified == [
        ("one", ServerKind.ENVIRONMENT),
        ("two", ServerKind.AGENT),
        ("three", ServerKind.RESOURCES),
    ]


def test_given_kind_is_never_overruled() -> None:
    """What the configuration says a server is, it is; also when that is learned later."""
    addon, notes = make()
    addon.listening(Server(name="judge", kind=ServerKind.JUDGE, listen="http://l", upstream="http://u"))
    sent = send(addon, flow("a1", "judge", ServerKind.UNKNOWN, "/v1/responses", ASK))
    assert sent.call is Call.JUDGE
    assert notes.identified == []


def test_causality_needs_no_body() -> None:
    """Under the causality header the row comes from the parent, and the body is not looked at."""
    addon, _ = make()
    send(addon, flow("a1", "agent", ServerKind.AGENT, "/run", RUN % 0))
    model = send(addon, flow("a2", "policy", ServerKind.MODEL, "/v1/responses", b"{not json", parent="a1"))
    answer(addon, model, b"{not json")
    assert "request_json" not in model.__dict__
    assert "response_json" not in model.__dict__
    assert (model.parent, model.attribution.row) == ("a1", RowKey(task=0, rollout=0))
    assert model.attribution.method is Method.CAUSALITY
