"""The stub provider: chat completions from a rule instead of a model, and the ways in which providers fail.

Two failures come from what is asked (a tool schema it cannot compile, a prompt that is too long), as with a
real provider; the others are moods that a city's name sets off.
"""

from typing import Any

import orjson
from aiohttp import web

from gymtap.proxy.demo.server import digest

_CONTEXT_CHARS = 16_000
_BAD_FORMAT = "uri-template"
_CREATED_AT_S = 1_796_000_000


class Provider:
    """An OpenAI-compatible server that knows the weather only through the tool it is given."""

    def __init__(self) -> None:
        self.name = "provider"
        self._tries: dict[str, int] = {}
        self._moods = {
            "Zurich": self._unauthorized,
            "Mumbai": self._busy,
            "Dallas": self._html,
            "Vienna": self._no_choices,
            "Denver": self._cut_off,
        }
        self.app = web.Application(client_max_size=64 * 2**20)
        self.app.router.add_post("/v1/chat/completions", self._chat)
        self.app.router.add_get("/v1/models", self._models)

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": "demo-model", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = orjson.loads(body)
        question = next(turn["content"] for turn in asked["messages"] if turn["role"] == "user")
        if (refusal := _refuse(asked, body)) is not None:
            return refusal
        mood = next((mood for city, mood in self._moods.items() if city in question), None)
        failure = None if mood is None else await mood(request, digest(body))
        return failure or _completion(_say(asked), digest(body))

    async def _unauthorized(self, _: web.Request, __: str) -> web.StreamResponse | None:
        return _error(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")

    async def _busy(self, _: web.Request, number: str) -> web.StreamResponse | None:
        """Refuse the first two tries."""
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] > 2:
            return None
        return _error(429, "Rate limit reached for requests", "rate_limit_error", "rate_limit_exceeded")

    async def _html(self, _: web.Request, __: str) -> web.StreamResponse | None:
        page = "<html>\r\n<head><title>500 Internal Server Error</title></head>\r\n<body>\r\n<center>"
        page += "<h1>500 Internal Server Error</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
        return web.Response(status=500, text=page, content_type="text/html")

    async def _no_choices(self, _: web.Request, __: str) -> web.StreamResponse | None:
        return web.json_response({"object": "error", "message": "model overloaded", "code": 503})

    async def _cut_off(self, request: web.Request, _: str) -> web.StreamResponse | None:
        """Die in the middle of a body."""
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "5000"})
        await response.prepare(request)
        await response.write(b'{"id":"chatcmpl-cut","object":"chat.completion","choices":[{"index":0,')
        if request.transport is not None:
            request.transport.close()
        return response


def _refuse(asked: dict[str, Any], body: bytes) -> web.Response | None:
    tools = [tool["function"] for tool in asked["tools"]]
    bad = next((tool for tool in tools if _BAD_FORMAT.encode() in orjson.dumps(tool["parameters"])), None)
    if bad is not None:
        text = f"Invalid JSON schema for tool '{bad['name']}': Grammar error: Unsupported JSON Schema structure "
        text += f"{{'type': 'string', 'format': '{_BAD_FORMAT}'}}"
        return _error(400, text, "BadRequestError", None)
    if len(body) > _CONTEXT_CHARS:
        text = f"This model's maximum context length is 4096 tokens. However, your request has {len(body) // 4} tokens."
        return _error(400, f"{text} Please reduce the length of the messages.", "BadRequestError", None)
    return None


def _error(status: int, text: str, kind: str, code: str | None) -> web.Response:
    return web.json_response({"error": {"message": text, "type": kind, "param": None, "code": code}}, status=status)


def _say(asked: dict[str, Any]) -> dict[str, Any]:
    last = asked["messages"][-1]
    if last["role"] != "tool":
        return _tool_call(asked, last["content"])
    try:
        text = orjson.loads(last["content"])["weather_description"]
    except KeyError:
        text = "I could not find out what the weather is like."
    return {"role": "assistant", "content": text}


def _tool_call(asked: dict[str, Any], question: str) -> dict[str, Any]:
    """Call the first tool, with the city (the question's last word) as its first parameter."""
    tool = asked["tools"][0]["function"]
    parameter = next(iter(tool["parameters"]["properties"]))
    arguments = orjson.dumps({parameter: question.rpartition(" ")[2].rstrip("?")}).decode()
    call = {"id": f"call_{digest(question.encode())}", "type": "function"}
    return {"role": "assistant", "content": None, "tool_calls": [call | {"function": _named(tool["name"], arguments)}]}


def _named(name: str, arguments: str) -> dict[str, str]:
    return {"name": name, "arguments": arguments}


def _completion(said: dict[str, Any], number: str) -> web.Response:
    reason = "tool_calls" if said.get("tool_calls") else "stop"
    completion = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": _CREATED_AT_S,
        "model": "demo-model",
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        "usage": {"prompt_tokens": 96, "completion_tokens": 12, "total_tokens": 108},
    }
    return web.json_response(completion)
