"""The model server: the Responses API in front, chat completions behind, and Gym's habits in between.

Like Gym 0.7's vllm_model it retries some statuses three times, and turns a 400 that speaks of the context
length into an empty answer with status 200. (It lacks one habit: Gym's would keep answering a 401 or a
quota error for ever after.)
"""

import asyncio
from typing import Any

import orjson
from aiohttp import web

from gymtap.proxy.demo.server import Egress, InnerError, MiniServer, Reply, answer, digest
from gymtap.proxy.demo.wire import message

_RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504, 520})
_TRIES = 3
_PAUSE_S = 0.05  # Gym's is half a second
_CREATED_AT_S = 1_796_000_000.0
_API_KEY = "sk-demo-not-a-real-key-0123456789"


class ModelServer(MiniServer):
    """`policy_model`, the miniature's vllm_model."""

    def __init__(self, egress: Egress) -> None:
        super().__init__("VLLMModel", "policy_model", egress)
        self.post("/v1/responses", self._responses)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        params = orjson.loads(await request.read())
        try:
            completion = (await self._complete(_chat_request(params))).ok().json()
        except InnerError as error:
            if error.status == 400 and b"context length" in error.body:
                return answer(_response(params, [], incomplete="max_output_tokens"))
            raise
        return answer(_response(params, _output(completion["choices"][0]["message"], completion["id"])))

    async def _complete(self, chat: dict[str, Any]) -> Reply:
        for tried in range(_TRIES):
            await asyncio.sleep(_PAUSE_S if tried else 0)
            reply = await self.egress.post("provider", "/v1/chat/completions", chat, bearer=_API_KEY)
            if reply.status not in _RETRIED:
                break
        return reply


def _chat_request(params: dict[str, Any]) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {k: tool[k] for k in ("name", "description", "parameters")}}
        for tool in params.get("tools", ())
    ]
    return {"messages": [_chat_message(item) for item in params["input"]], "tools": tools, "model": "demo-model"}


def _chat_message(item: dict[str, Any]) -> dict[str, Any]:
    match item.get("type"):
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            return {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
        case _:
            return {"role": item["role"], "content": item["content"]}


def _output(said: dict[str, Any], number: str) -> list[dict[str, Any]]:
    calls = [
        {"type": "function_call", "id": call["id"], "call_id": call["id"], "status": "completed", **call["function"]}
        for call in said.get("tool_calls") or ()
    ]
    return calls or [message("assistant", said["content"] or "", number)]


def _response(params: dict[str, Any], output: list[dict[str, Any]], incomplete: str | None = None) -> dict[str, Any]:
    return {
        "id": f"resp_{digest(orjson.dumps(params))}",
        "created_at": _CREATED_AT_S,
        "error": None,
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "model": "demo-model",
        "object": "response",
        "output": output or [message("assistant", "", "empty")],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": params.get("tools", []),
    }
