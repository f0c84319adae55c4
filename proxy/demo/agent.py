"""The agent, and the environment server that relays to it.

The agent calls its own `/v1/responses` over HTTP, as Gym's simple agent does, and moves the cookies of the
resources and the model server by hand: the client keeps none.
"""

from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict

from gymtap.proxy.demo.server import Egress, MiniServer, Reply, answer, cookies_of

_MAX_TURNS = 6


class SimpleAgentVerifyResponse(BaseModel):
    """What `/run` answers. Its name is in the error when a verifier gives no reward."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float


class EnvironmentServer(MiniServer):
    """An opaque relay of `/run` and `/aggregate_metrics`: the agent's answer goes back as it is."""

    def __init__(self, egress: Egress) -> None:
        super().__init__("LegacyAgentServer", "weather_environment_server", egress)
        self.post("/run", self._relay)
        self.post("/aggregate_metrics", self._relay)

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        reply = await self.egress.post("weather_simple_agent", request.path, await request.json())
        return web.Response(status=reply.status, body=reply.body, content_type="application/json")


class AgentServer(MiniServer):
    """`weather_simple_agent`: seed, respond, verify."""

    def __init__(self, egress: Egress) -> None:
        super().__init__("SimpleAgent", "weather_simple_agent", egress)
        self.post("/run", self._run)
        self.post("/v1/responses", self._responses)
        self.post("/aggregate_metrics", self._aggregate)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        row = orjson.loads(await request.read())
        seeded = (await self.egress.post("weather", "/seed_session", row)).ok()
        params = row["responses_create_params"]
        responded = (await self.egress.post(self.name, "/v1/responses", params, seeded.cookies)).ok()
        to_verify = row | {"response": responded.json()}
        verified = (await self.egress.post("weather", "/verify", to_verify, responded.cookies)).ok()
        return answer(SimpleAgentVerifyResponse.model_validate(verified.json()).model_dump())

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        params = orjson.loads(await request.read())
        resources_cookies, model_cookies = cookies_of(request), dict[str, str]()
        turns: list[dict[str, Any]] = []
        for _ in range(_MAX_TURNS):
            asked = params | {"input": [*params["input"], *turns]}
            reply = (await self.egress.post("policy_model", "/v1/responses", asked, model_cookies)).ok()
            model_cookies = dict(reply.cookies)
            response = reply.json()
            turns += response["output"]
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            if not calls:
                break
            turns += [_tool_output(call, await self._tool(call, resources_cookies)) for call in calls]
        return answer(response | {"output": turns}, resources_cookies | model_cookies)

    async def _tool(self, call: dict[str, Any], cookies: dict[str, str]) -> Reply:
        """A tool's answer whatever its status: Gym gives an error to the model as the tool's output."""
        return await self.egress.post("weather", f"/{call['name']}", orjson.loads(call["arguments"]), cookies)

    async def _aggregate(self, request: web.Request) -> web.StreamResponse:
        metrics = await self.egress.post("weather", "/aggregate_metrics", await request.json())
        return answer(metrics.ok().json())


def _tool_output(call: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return {"call_id": call["call_id"], "output": reply.body.decode(), "type": "function_call_output"}
