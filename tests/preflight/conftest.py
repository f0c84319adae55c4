"""A provider on loopback that answers as vLLM 0.32 does: real bodies, in the states in which a real server was seen."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

TRIGGERS = "Invalid grammar specification: 'triggers'"
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


OTHERWISE = {
    "login": (200, "<html>Log in</html>"),
    "silent": (200, ""),
    "empty": (200, '{"choices": []}'),
    "elsewhere": (302, ""),
    "full": (429, "slow down"),
    "loading": (503, "no upstream"),
    "dead": (500, "EngineCore encountered an issue."),
}
"""What stands in the provider's place, or a provider that can answer nothing: state -> status and body."""


def error(status: int, message: str, kind: str = "BadRequestError") -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, status=status
    )


@dataclass
class Provider:
    """`state` is one of the table's rows in what is known of vLLM 0.32; `bad` is what a schema may not contain."""

    state: str = "good"
    model: str = "tiny"
    key: str | None = None
    bad: str = '"str"'
    asked: list[dict[str, Any]] = field(default_factory=list)
    at_a_time: int = 0
    most_at_a_time: int = 0
    hold: Callable[[], Awaitable[None]] | None = None
    url: str = ""

    async def models(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def chat(self, request: web.Request) -> web.Response:
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            if self.hold is not None:
                await self.hold()
            return self._answer(request, await request.json())
        finally:
            self.at_a_time -= 1

    def _answer(self, request: web.Request, asked: dict[str, Any]) -> web.Response:
        self.asked.append(asked)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if asked["model"] != self.model:
            message = f"The model `{asked['model']}` does not exist. Valid aliases: {self.model}."
            return error(404, message, "NotFoundError")
        if self.state in OTHERWISE:
            status, text = OTHERWISE[self.state]
            headers = {"Location": "/login"} if status == 302 else {}
            return web.Response(status=status, text=text, headers=headers)
        tools = asked.get("tools", [])
        strict = any(tool["function"].get("strict") for tool in tools)
        required = asked.get("tool_choice", "auto") not in ("auto", "none")
        structured = strict or required or "response_format" in asked
        if tools and self.state == "no_parser":
            return error(400, NO_PARSER)
        if structured and self.state == "guidance":
            return error(400, TRIGGERS)
        if structured and self.state == "outlines_first":
            return error(500, "Internal server error", "InternalServerError")
        if structured and self.bad in json.dumps(asked):
            return error(400, TRIGGERS)
        if self.state == "short" and len(json.dumps(asked)) > 800:
            return error(400, "This model's maximum context length is 2048 tokens. However, your prompt is longer.")
        said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
        return web.json_response(
            {"object": "chat.completion", "choices": [{"index": 0, "message": said, "finish_reason": "length"}]}
        )


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    app = web.Application()
    app.router.add_get("/v1/models", made.models)
    app.router.add_post("/v1/chat/completions", made.chat)
    async with TestServer(app) as server:
        made.url = str(server.make_url("/v1"))
        yield made
