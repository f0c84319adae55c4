"""Which tools a row offers, and which of them a model called."""

from gymtap.proxy.diagnose.answers import answers
from gymtap.proxy.diagnose.evidence import listed
from gymtap.proxy.diagnose.rule import View
from gymtap.schemas import Call


def offered_tools(view: View) -> set[str]:
    """The names of the tools in the row and in what was sent to models, either dialect."""
    names: set[str] = set()
    bodies = [e.request_json for e in view.material.of(Call.RUN, Call.PROVIDER, Call.MODEL, Call.RESPONSES)]
    for body in [*bodies, *view.material.row_values]:
        params = body.get("responses_create_params", body) if isinstance(body, dict) else None
        for tool in listed(params.get("tools")) if isinstance(params, dict) else ():
            if isinstance(tool, dict):
                inner = tool.get("function")
                names.add(str(tool.get("name") or (inner.get("name") if isinstance(inner, dict) else "")))
    return names - {"", "None"}


def called(view: View, name: str) -> bool:
    """Whether a recorded answer calls the tool."""
    return any(given == name for _, answer in answers(view.material) for given, _ in answer.calls)
