"""A resources server for NeMo Gym 0.7.0 with the mistakes that one meets: a lookup that raises, a field that rows lack.

`describe_city` asks the model itself, streamed, as tools that summarise do.
"""

import json

import aiohttp
from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from pydantic import BaseModel

_ROOMS = {"Lisbon": 4, "Porto": 2, "Turin": 7}


class TravelDeskConfig(BaseResourcesServerConfig):
    """`model_url` is the provider's base URL."""

    model_url: str


class TravelDeskVerifyRequest(BaseVerifyRequest):
    """A row names the city that the answer must name, and what may be spent."""

    expected_city: str
    budget: int = 100


class City(BaseModel):
    """The arguments of both tools."""

    city: str


class TravelDesk(SimpleResourcesServer):
    """Two tools and a verifier."""

    ray_enabled = False
    config: TravelDeskConfig

    def setup_webserver(self) -> FastAPI:
        """Add the tools."""
        app = super().setup_webserver()
        app.post("/describe_city")(self.describe_city)
        app.post("/book_hotel")(self.book_hotel)
        return app

    async def describe_city(self, body: City) -> dict[str, str]:
        """Ask the model, and put its stream together."""
        asked = {"model": "stub-model", "stream": True}
        asked["messages"] = [{"role": "user", "content": f"In one sentence, what is {body.city}?"}]
        words = []
        url = f"{self.config.model_url}/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(url, json=asked) as answer:
            async for line in answer.content:
                data = line.decode().removeprefix("data: ").strip()
                if data and data != "[DONE]":
                    words.append(json.loads(data)["choices"][0]["delta"].get("content", ""))
        return {"description": "".join(words).strip()}

    async def book_hotel(self, body: City) -> dict[str, int]:
        """Book a room, in the cities that it knows."""
        return {"rooms_left": _ROOMS[body.city] - 1}

    async def verify(self, body: TravelDeskVerifyRequest) -> BaseVerifyResponse:
        """Half the reward for the city, half for what was left of the budget."""
        named = body.expected_city in json.dumps(body.response.model_dump())
        saved = 50 / body.budget
        return BaseVerifyResponse(**body.model_dump(), reward=0.5 * named + 0.5 * min(saved, 1.0))


if __name__ == "__main__":
    TravelDesk.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = TravelDesk.run_webserver()
