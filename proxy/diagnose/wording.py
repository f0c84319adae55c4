"""Words for a diagnosis: fills a rule's sentences from what it saw, and adds the facts of the hop at fault.

A rule's sentence says what kind of failure it is; which hop, status, model, code and row it was is the same for
every rule, so it is told here, once, from the recorded exchange and not from text.
"""

import re
from typing import Any

from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.failures import CallTree
from gymtap.proxy.diagnose.rule import Rule, Sight
from gymtap.schemas import Call, LeafKind, Unwrapped

_SLOW_MS = 10_000


def filled(sentence: str, sight: Sight) -> str:
    """A rule's sentence with what is known of the hop.

    `{what}` is the sight's, `{role}` policy or judge, `{model}` the one asked for, `{hop}` what `gymtap replay --from`
    calls this call, `{base}` the URL that the provider was asked under, `{host}` and `{name}` the host that could not
    be reached, with and without its port.
    """
    exchange = sight.exchange
    model = asked_model(exchange) if exchange else None
    words = {
        "{role}": _role(sight),
        "{model}": model or "another one",
        "{hop}": _hop(sight),
        "{base}": _base(exchange),
        "{host}": _host(sight),
        "{name}": "NAME" if _host(sight) == _SOME_HOST else _host(sight).partition(":")[0],
        "{what}": " ".join(sight.what.split()).rstrip(".") or "see the evidence",
    }
    for name, text in words.items():
        sentence = sentence.replace(name, text)
    return sentence


def _addressed(sentence: str, exchange: Seen | None) -> str:
    """A command's EXCHANGE and ROW as the ones at hand, where they are known."""
    if exchange is None:
        return sentence
    sentence = re.sub(r"\bEXCHANGE\b", exchange.id, sentence)
    return re.sub(r"\bROW\b", exchange.row, sentence) if exchange.row else sentence


def advice(rule: Rule, sight: Sight) -> str:
    """The next step: the sight's own where it has one, else its rule's."""
    return filled(_addressed(sight.advice or rule.next_action, sight.exchange), sight)


def told_where(sight: Sight) -> str:
    """Whose line of the log tells it, with a space before; empty for what no server's prefix marks."""
    failure = sight.failure
    if failure is None or sight.source != "log" or not failure.server:
        return ""
    return f" ({failure.server}'s line, {sight.where})"


def _hop(sight: Sight) -> str:
    call = sight.exchange.call if sight.exchange else sight.failure.call if sight.failure else None
    return "seed" if call is Call.SEED_SESSION else str(call or Call.RUN)


_ENDPOINT = re.compile(r"/(?:chat/completions|completions|responses|messages)$")


_HOST = re.compile(r"\bhost ([\w.-]+:\d+)|host='([\w.-]+)', port=(\d+)|https?://([\w.-]+(?::\d+)?)")
_SOME_HOST = "HOST:PORT"


def _host(sight: Sight) -> str:
    """The host that the words name, else the one that was asked; a name for it where neither tells."""
    match = _HOST.search(sight.failure.said if sight.failure else sight.what)
    if match is not None:
        return match[1] or match[4] or f"{match[2]}:{match[3]}"
    server = sight.exchange.server if sight.exchange else ""
    return server if re.search(r"[.:]", server) else _SOME_HOST


def _base(exchange: Seen | None) -> str:
    """What stands before the endpoint's own path; a name for it where it is not known."""
    if exchange is None or not exchange.server or not _ENDPOINT.search(exchange.path):
        return "<base_url>"
    return exchange.server + _ENDPOINT.sub("", exchange.path)


def _role(sight: Sight) -> str:
    """Whom the model serves: the policy, the judge, a tool's own backend, or the server that its caller is named."""
    exchange = sight.exchange
    if sight.failure.judge if sight.failure else exchange is not None and exchange.judge:
        return "judge"
    if exchange is not None and exchange.call is Call.TOOL:
        return "tool"
    name = exchange.caller if exchange is not None else ""
    return name if name.endswith("_model") and name != "policy_model" else "policy"


def asked_model(exchange: Seen) -> str | None:
    """The model that a request names; None where it names none."""
    body = exchange.request_json
    name = body.get("model") if isinstance(body, dict) else None
    return name if isinstance(name, str) and name else None


def facts(tree: CallTree, exchange: Seen | None, innermost: Unwrapped | None) -> str:
    """What is known of the hop at fault, with a space before it; empty where no exchange is and nothing was cut."""
    cut = (
        " The copy at hand is cut; a recording of the call has all of it." if innermost and innermost.truncated else ""
    )
    if exchange is None:
        return cut
    server = exchange.server if exchange.call in {Call.PROVIDER, Call.JUDGE} and "." in exchange.server else ""
    told = [f"{exchange.boundary} {server}{exchange.path} {_ended(exchange)}", *_details(tree, exchange, innermost)]
    return f" ({', '.join(told)}){cut}"


def _details(tree: CallTree, exchange: Seen, innermost: Unwrapped | None) -> list[str]:
    model = asked_model(exchange) if exchange.call in {Call.PROVIDER, Call.MODEL, Call.JUDGE} else None
    code = innermost.leaf.code if innermost and innermost.leaf.kind is not LeafKind.EXCEPTION else None
    chain = tree.chain(exchange)
    wrapped = max((_gym_wrappers(hop) for hop in chain), default=0)
    tries = _tries(tree, exchange)
    details = (
        f"code {code}" if code and not code.isdigit() else "",
        f"model {model}" if model else "",
        f"{tries} tries alike" if tries > 1 else "",
        f"after {(exchange.duration_ms or 0) / 1000:.0f} s" if (exchange.duration_ms or 0) >= _SLOW_MS else "",
        f"wrapped {wrapped} times on its way to /run" if wrapped > 1 else "",
        _row(chain),
    )
    return [detail for detail in details if detail]


def _ended(exchange: Seen) -> str:
    if exchange.status is not None:
        return str(exchange.status)
    if exchange.timeout:
        return "was ended by a time limit"
    return "has no answer" if exchange.is_open else f"ended in {exchange.error}"


def _gym_wrappers(hop: Seen) -> int:
    return sum(wrapper.kind == "gym" for wrapper in hop.unwrapped.wrappers) if hop.failed else 0


def _tries(tree: CallTree, exchange: Seen) -> int:
    parent = tree.parents.get(exchange.id)
    siblings = tree.children[parent.id] if parent else [e for e in tree.exchanges if e.id not in tree.parents]
    return sum(
        (other.call, other.path) == (exchange.call, exchange.path)
        and other.request == exchange.request
        and (other.status, other.error, other.timeout) == (exchange.status, exchange.error, exchange.timeout)
        for other in siblings
        if other.failed
    )


def _row(chain: list[Seen]) -> str:
    """`row 51.0 of my_agent`, from the body that the collector sent."""
    for hop in chain:
        body: Any = hop.request_json
        if isinstance(body, dict) and isinstance(body.get("_ng_task_index"), int):
            agent = body.get("agent_ref")
            name = agent.get("name") if isinstance(agent, dict) else None
            row = f"row {body['_ng_task_index']}.{body.get('_ng_rollout_index', 0)}"
            return f"{row} of {name}" if isinstance(name, str) else row
    return ""
