"""Which sampling parameter a provider refused, and whether the dataset row itself asked for it.

The answer decides between the row and the configuration: what the row does not have, something added.
"""

import re

from gymtap.proxy.diagnose.failures import Failure
from gymtap.proxy.diagnose.rule import View
from gymtap.schemas import Call

_PLACE = re.compile(
    r"\(parameter=(\w+)|'loc': ?'body\.(\w+)|'loc': ?[(\[]'body', ?'(\w+)|\[?\"body\", ?\"(\w+)|"
    r"[\"']param[\"']: ?[\"'](\w+)[\"']|"
    r"(?:unsupported|unknown|unrecognized) (?:parameter|value|argument|request argument)[^\n'\"]{0,40}['\"](\w+)['\"]",
    re.IGNORECASE,
)
_NOT_A_PARAMETER = frozenset(
    {"messages", "input", "tools", "tool_choice", "model", "image_url", "audio", "video", "body", "prompt"}
)
_ROW_NAMES = {
    "max_tokens": ("max_output_tokens",),
    "max_completion_tokens": ("max_output_tokens",),
    "reasoning_effort": ("reasoning",),
    "response_format": ("text",),
    "structured_outputs": ("text",),
    "logprobs": ("top_logprobs", "include"),
}


def refused_parameter(failure: Failure) -> str | None:
    """The sampling parameter that a provider's 4xx is about; None when it is about something else."""
    if failure.status not in {400, 422} or failure.call not in {Call.PROVIDER, Call.JUDGE}:
        return None
    names = [next(filter(None, groups)) for groups in _PLACE.findall(failure.said)]
    wanted = [name for name in names if name not in _NOT_A_PARAMETER]
    return wanted[0] if wanted and len(wanted) == len(names) else None


def in_row(view: View, parameter: str) -> bool:
    """Whether the dataset row itself asks for that parameter (under its Responses name), and no override put it there.

    The collector merges `++responses_create_params.NAME=` of its command line into the rows.
    """
    names = (parameter, *_ROW_NAMES.get(parameter, ()))
    if any(re.search(rf"responses_create_params\.(?:{'|'.join(names)})\b", line) for line in view.material.log):
        return False
    bodies = [e.request_json for e in view.material.of(Call.RUN)] + list(view.material.row_values)
    for body in bodies:
        params = body.get("responses_create_params") if isinstance(body, dict) else None
        if isinstance(params, dict) and any(params.get(name) is not None for name in names):
            return True
    return False
