"""A model provider that answers at once and always the same: `stub_provider.py PORT` (0 is any free one).

It speaks `/v1/chat/completions`, `/v1/responses` and `/v1/models`, calls a request's first tool once with
arguments made from its schema, and then answers. Identifiers come from the request's content, so that two equal
runs get equal answers. It prints the address that it serves. It is for trying gymtap out without a GPU.
"""

import asyncio
import hashlib
import json
import sys
from typing import Any

from aiohttp import web

ANSWER = "The answer is \\boxed{A}. Answer: A"
_CREATED = 1_700_000_000
_BY_TYPE: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "object": {}}


def sample(schema: dict[str, Any]) -> Any:
    """A value that fits a JSON Schema's type, or its first enum."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [sample(schema.get("items") or {})]
    return _BY_TYPE.get(str(kind), "San Francisco")


def arguments(parameters: dict[str, Any] | None) -> str:
    """JSON arguments with a value for each property."""
    properties = (parameters or {}).get("properties") or {}
    return json.dumps({name: sample(schema) for name, schema in properties.items()})


def digest(body: bytes) -> str:
    """What stands for chance: the same for the same request."""
    return hashlib.sha256(body).hexdigest()[:12]


async def chat(request: web.Request) -> web.Response:
    """Answer `/chat/completions`: a tool call first, where there are tools, then the text."""
    raw = await request.read()
    body = json.loads(raw)
    tools, last = body.get("tools") or [], body["messages"][-1]
    message: dict[str, Any] = {"role": "assistant", "content": None if tools else ANSWER}
    reason = "stop"
    if tools and last["role"] != "tool":
        function = tools[0]["function"]
        call = {"name": function["name"], "arguments": arguments(function.get("parameters"))}
        message["tool_calls"] = [{"id": f"call_{digest(raw)}", "type": "function", "function": call}]
        reason = "tool_calls"
    else:
        message["content"] = ANSWER
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {
        "id": f"chatcmpl-{digest(raw)}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": body.get("model"),
    }
    return web.json_response({**head, "choices": [choice], "usage": usage})


async def responses(request: web.Request) -> web.Response:
    """Answer `/responses` the same way."""
    raw = await request.read()
    body = json.loads(raw)
    tools, sent = body.get("tools") or [], body.get("input")
    answered = isinstance(sent, list) and any(item.get("type") == "function_call_output" for item in sent)
    if tools and not answered:
        call = {"name": tools[0]["name"], "arguments": arguments(tools[0].get("parameters"))}
        item = {"type": "function_call", "id": f"fc_{digest(raw)}", "call_id": f"call_{digest(raw)}", **call}
    else:
        text = {"type": "output_text", "text": ANSWER, "annotations": []}
        item = {"type": "message", "id": f"msg_{digest(raw)}", "role": "assistant", "content": [text]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details}
    head = {"id": f"resp_{digest(raw)}", "object": "response", "created_at": _CREATED, "model": body.get("model")}
    settings = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": tools, "status": "completed"}
    return web.json_response({**head, **settings, "output": [{**item, "status": "completed"}], "usage": usage})


async def models(_: web.Request) -> web.Response:
    """List the one model."""
    return web.json_response({"object": "list", "data": [{"id": "stub-model", "object": "model"}]})


async def serve(port: int) -> None:
    """Serve on loopback until stopped."""
    app = web.Application(client_max_size=2**30)
    for prefix in ("", "/v1"):
        app.router.add_post(prefix + "/chat/completions", chat)
        app.router.add_post(prefix + "/responses", responses)
        app.router.add_get(prefix + "/models", models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("http://{}:{}/v1".format(*runner.addresses[0][:2]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
