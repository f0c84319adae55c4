"""A model provider that fails as real ones do, by what it is asked: `provider.py` prints the address that it serves.

It speaks `/v1/chat/completions`, streamed too, and `/v1/models`. What it refuses, and for which city it fails, is
below; everything else gets the tool call or the sentence that a model would give.
"""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

BAD_FORMAT = "uri-template"
CONTEXT_CHARS = 12_000
JUDGE, JUDGED_BEFORE_THE_KEY_ENDS = "stub-judge", 2


class Provider:
    """Counts what it was asked, so that a key can end and a busy moment can pass."""

    def __init__(self) -> None:
        self._judged = itertools.count()
        self._tries: Counter[str] = Counter()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Refuse, fail, or answer."""
        raw = await request.read()
        asked = json.loads(raw)
        if asked["model"] == JUDGE:
            return self._judge(raw)
        if (refused := _refused(asked, raw)) is not None:
            return refused
        if (failed := await self._failed(request, asked, raw)) is not None:
            return failed
        return await _streamed(request, asked) if asked.get("stream") else _completion(_said(asked), raw)

    def _judge(self, raw: bytes) -> web.Response:
        if next(self._judged) < JUDGED_BEFORE_THE_KEY_ENDS:
            return _completion({"content": "Both name the same thing. [[A=B]]"}, raw)
        return _error(401, "Incorrect API key provided: it has expired.", "invalid_request_error", "invalid_api_key")

    async def _failed(self, request: web.Request, asked: dict[str, Any], raw: bytes) -> web.StreamResponse | None:
        question = _question(asked)
        if "Kiruna" in question:
            await asyncio.sleep(86_400)
        if "Ushuaia" in question and request.transport is not None:
            request.transport.abort()
        if "Cairo" in question:
            return _error(500, "CUDA out of memory. Tried to allocate 2.31 GiB.", "InternalServerError", 500)
        if "Vienna" in question:
            return web.json_response({"object": "error", "message": "model overloaded", "code": 503})
        if "Mumbai" in question:
            return self._busy(_digest(raw))
        return None

    def _busy(self, number: str) -> web.Response | None:
        self._tries[number] += 1
        if self._tries[number] > 2:
            return None
        return _error(429, "Rate limit reached for requests", "rate_limit_error", "rate_limit_exceeded")


def _refused(asked: dict[str, Any], raw: bytes) -> web.Response | None:
    for tool in (one["function"] for one in asked.get("tools") or ()):
        if BAD_FORMAT in json.dumps(tool["parameters"]):
            told = f"Unsupported JSON Schema structure {{'type': 'string', 'format': '{BAD_FORMAT}'}}"
            text = f"Invalid JSON schema for tool '{tool['name']}': Grammar error: {told}"
            return _error(400, text, "BadRequestError", 400)
    if len(raw) > CONTEXT_CHARS:
        text = f"This model's maximum context length is 4096 tokens. However, you requested {len(raw) // 3} tokens."
        return _error(400, f"{text} Please reduce the length of the messages.", "BadRequestError", 400)
    return None


def _error(status: int, text: str, kind: str, code: int | str) -> web.Response:
    return web.json_response({"error": {"message": text, "type": kind, "param": None, "code": code}}, status=status)


def _question(asked: dict[str, Any]) -> str:
    return next(str(turn["content"]) for turn in asked["messages"] if turn["role"] == "user")


def _city(asked: dict[str, Any]) -> str:
    """The last word of the question."""
    return _question(asked).rstrip("?. ").split()[-1]


def _said(asked: dict[str, Any]) -> dict[str, Any]:
    last, city = asked["messages"][-1], _city(asked)
    if asked.get("tools") and last["role"] != "tool":
        function = asked["tools"][0]["function"]
        arguments = json.dumps(dict.fromkeys(function["parameters"]["properties"], city))
        call = {"id": f"call_{_digest(arguments.encode())}", "type": "function"}
        called = call | {"function": {"name": function["name"], "arguments": arguments}}
        thought = f"They ask about {city}. I had better look it up with {function['name']}."
        return {"content": None, "reasoning_content": thought, "tool_calls": [called]}
    if last["role"] == "tool":
        return {"content": f"This is what I found about {city}: {last['content']}"}
    return {"content": f"The answer is \\boxed{{{city}}}."}


def _completion(message: dict[str, Any], raw: bytes) -> web.Response:
    choice = {
        "index": 0,
        "message": {"role": "assistant"} | message,
        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        "logprobs": None,
    }
    usage = {"prompt_tokens": len(raw) // 4, "completion_tokens": 24, "total_tokens": len(raw) // 4 + 24}
    head = {"id": f"chatcmpl-{_digest(raw)}", "object": "chat.completion", "created": 1_700_000_000}
    return web.json_response(head | {"model": "stub-model", "choices": [choice], "usage": usage})


async def _streamed(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    async for event in _events(_city(asked)):
        await response.write(f"data: {event}\n\n".encode())
    return response


async def _events(city: str) -> AsyncIterator[str]:
    head = {"id": f"chatcmpl-{_digest(city.encode())}", "object": "chat.completion.chunk", "model": "stub-model"}
    words = f"{city} is a city of hills and trams, best seen on foot.".split()
    for delta in ({"role": "assistant"}, *({"content": f"{word} "} for word in words)):
        yield json.dumps(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        await asyncio.sleep(0.01)
    yield json.dumps(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield "[DONE]"


def _digest(data: bytes) -> str:
    """What stands for chance: the same for the same request."""
    return hashlib.sha256(data).hexdigest()[:12]


async def models(_: web.Request) -> web.Response:
    """List the one model."""
    return web.json_response({"object": "list", "data": [{"id": "stub-model", "object": "model"}]})


async def serve() -> None:
    """Serve on loopback until stopped."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", Provider().chat)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("http://{}:{}/v1".format(*runner.addresses[0][:2]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
