"""The resources server: a session, one tool, and a verifier with two bugs that real ones have.

`/get_weather` is the only tool: whatever else a row offers to the model is a 404 here.
"""

from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from gymtap.proxy.demo.server import Egress, MiniServer, RequestError, answer

_WEATHER = {"Oslo": "cold", "Quito": "mild", "Cairo": "hot", "Lima": "foggy", "Bergen": "wet"}
_USUAL = "sunny"
_SYNONYMS = {"cold": "cold", "mild": "mild", "hot": "hot", "foggy": "foggy", "wet": "wet", "sunny": "sunny"}


class _ToolCall(BaseModel):
    city: str


class _VerifyRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    expected_weather: str


def _read[M: BaseModel](model: type[M], body: bytes) -> M:
    try:
        return model.model_validate(orjson.loads(body))
    except ValidationError as error:
        raise RequestError(error) from error


class ResourcesServer(MiniServer):
    """`weather`, the miniature's resources server."""

    def __init__(self, egress: Egress) -> None:
        super().__init__("WeatherResourcesServer", "weather", egress)
        self.post("/seed_session", self._seed_session)
        self.post("/get_weather", self._get_weather)
        self.post("/verify", self._verify)
        self.post("/aggregate_metrics", self._aggregate)

    async def _seed_session(self, _: web.Request) -> web.StreamResponse:
        return answer({})

    async def _get_weather(self, request: web.Request) -> web.StreamResponse:
        city = _read(_ToolCall, await request.read()).city
        weather = _WEATHER.get(city, _USUAL)
        return answer({"city": city, "weather_description": f"The weather in {city} is {weather}."})

    async def _verify(self, request: web.Request) -> web.StreamResponse:
        asked = _read(_VerifyRequest, await request.read())
        if not asked.expected_weather:
            return answer(asked.model_dump())  # bug: an early return that forgets the reward
        wanted = _SYNONYMS[asked.expected_weather]  # bug: an unknown word is a KeyError
        said = orjson.dumps(asked.response["output"]).decode()
        return answer(asked.model_dump() | {"reward": float(wanted in said)})

    async def _aggregate(self, request: web.Request) -> web.StreamResponse:
        rewards = [verified["reward"] for verified in orjson.loads(await request.read())["verify_responses"]]
        mean = sum(rewards) / len(rewards) if rewards else None
        return answer({"agent_metrics": {"mean/reward": mean}, "num_rollouts": len(rewards)})
