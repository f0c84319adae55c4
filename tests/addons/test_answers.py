"""The 200→500 detector in the tap: which answers are judged, and what their becoming a 500 changes."""

import json
from typing import Any

import pytest

from gymtap.addons.answers import Answers
from gymtap.proxy.core.addon import Heard, Setup
from gymtap.proxy.core.flow import Flow
from gymtap.schemas import Call, Server, ServerKind, Severity

GOOD = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
ENVELOPE = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    said = {"role": "assistant", **message}
    return {**ENVELOPE, "choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": USAGE}


ODD = completion({"content": None})


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def answers(heard: Heard) -> Answers:
    return Answers(Setup(heard))


def flow(name: str, call: Call, target: str = "/v1/chat/completions", parent: str | None = None) -> Flow:
    server = Server(name=str(call), kind=ServerKind.UNKNOWN, listen="", upstream="")
    made = Flow(id=name, server=server, started_ns=0, method="POST", target=target, request_headers=())
    made.call, made.parent = call, parent
    return made


def end(answers: Answers, made: Flow, body: Any, status: int = 200) -> None:
    made.status = status
    made.response_body = body if isinstance(body, bytes) else json.dumps(body).encode()
    answers.ended(made)


def test_a_good_answer_is_silent(answers: Answers, heard: Heard) -> None:
    end(answers, flow("a1", Call.PROVIDER), GOOD)
    answers.stopped()
    assert heard.findings == []


def test_an_answer_without_choices_is_named_at_once(answers: Answers, heard: Heard) -> None:
    end(answers, flow("a1", Call.PROVIDER), {"id": "x"})
    assert [(one.exchange, one.rule, one.severity) for one in heard.findings] == [
        ("a1", "answer.no_choices", Severity.ERROR)
    ]


@pytest.mark.parametrize(("became", "severity"), [(200, Severity.WARNING), (500, Severity.ERROR)])
def test_a_doubt_waits_for_what_became_of_it(answers: Answers, heard: Heard, became: int, severity: Severity) -> None:
    """What only some versions of Gym choke on is an error once its model server answered 500."""
    asked = flow("a1", Call.MODEL, "/v1/responses")
    answers.requested(asked)
    end(answers, flow("a2", Call.PROVIDER, parent="a1"), ODD)
    assert heard.findings == []
    end(answers, asked, '"KeyError"', became) if became >= 400 else end(answers, asked, {"output": []}, became)
    assert [(one.exchange, one.severity) for one in heard.findings] == [("a2", severity)]


@pytest.mark.parametrize(("became", "said"), [(200, []), (500, ["/choices/0/finish_reason"])])
def test_what_only_gyms_model_refuses_is_said_once_it_became_a_500(
    answers: Answers, heard: Heard, became: int, said: list[str]
) -> None:
    """Other clients take any finish reason, and a judge's need not be Gym's."""
    asked = flow("a1", Call.MODEL, "/v1/responses")
    answers.requested(asked)
    end(answers, flow("a2", Call.PROVIDER, parent="a1"), completion({"content": "hi"}, finish="eos"))
    end(answers, asked, "1 validation error", became) if became >= 400 else end(answers, asked, {"output": []}, became)
    assert [one.pointer for one in heard.findings] == said


def test_what_still_waits_is_said_when_the_tap_stops(answers: Answers, heard: Heard) -> None:
    answers.requested(flow("a1", Call.MODEL, "/v1/responses"))
    end(answers, flow("a2", Call.PROVIDER, parent="a1"), ODD)
    answers.stopped()
    assert [one.severity for one in heard.findings] == [Severity.WARNING]


@pytest.mark.parametrize("target", ["/v1/completions", "/v1/messages", "/v1/embeddings", "/v1/chat/completions/render"])
def test_other_dialects_are_not_judged_by_chats(answers: Answers, heard: Heard, target: str) -> None:
    end(answers, flow("a1", Call.PROVIDER, target), {"content": []})
    assert heard.findings == []


def test_only_good_answers_are_judged(answers: Answers, heard: Heard) -> None:
    """An error speaks for itself, and a body that is not there says nothing."""
    end(answers, flow("a1", Call.PROVIDER), {"error": "no"}, 400)
    end(answers, flow("a2", Call.VERIFY, "/verify"), {"reward": 1})
    unread = flow("a3", Call.PROVIDER)
    unread.status = 200
    answers.ended(unread)
    assert heard.findings == []


def test_a_rollouts_prefix_hides_no_answer(answers: Answers, heard: Heard) -> None:
    end(answers, flow("a1", Call.MODEL, "/ng-rollout/0-0/v1/responses"), {"output": [{"type": "message"}]})
    assert [one.pointer for one in heard.findings] == ["/output/0/content"]
