"""The miniature as a whole: every server on a private port, and a collector that sends it rows.

The servers come up first and clients learn their addresses last, so that a tap can stand in between: it is
given the private addresses and hands out its own. Without one, `addresses` are the private ones.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from gymtap.proxy.demo.agent import AgentServer, EnvironmentServer
from gymtap.proxy.demo.head import HeadServer
from gymtap.proxy.demo.model import ModelServer
from gymtap.proxy.demo.provider import Provider
from gymtap.proxy.demo.resources import ResourcesServer
from gymtap.proxy.demo.server import Egress, Reply
from gymtap.schemas import ServerKind

KINDS = {
    "head_server": ServerKind.HEAD,
    "weather_environment_server": ServerKind.ENVIRONMENT,
    "weather_simple_agent": ServerKind.AGENT,
    "weather": ServerKind.RESOURCES,
    "policy_model": ServerKind.MODEL,
    "provider": ServerKind.PROVIDER,
}
"""What each of the miniature's servers is, by its name in the configuration."""


@dataclass
class Miniature:
    """Running servers. `private` is where each listens; `addresses`, where clients look for it, may be changed."""

    private: dict[str, str]
    egress: Egress
    collector: Egress

    def stand_behind(self, addresses: dict[str, str]) -> None:
        """From now on clients call these addresses (`http://host:port` by server name)."""
        self.egress.addresses.update(addresses)

    async def collect(self, rows: list[dict[str, Any]], concurrency: int) -> list[Reply | aiohttp.ClientError]:
        """Dispatch the rows as Gym's collector does, with the head before and the metrics after; answers in order."""
        await self.collector.get("head_server", "/global_config_dict_yaml")
        gate = asyncio.Semaphore(concurrency)
        answers = await asyncio.gather(*(self._dispatch(row, gate) for row in rows))
        verified = [answer.json() for answer in answers if isinstance(answer, Reply) and answer.status == 200]
        await self.collector.post(
            "weather_environment_server",
            "/aggregate_metrics",
            {"verify_responses": [_stripped(one) for one in verified]},
        )
        return answers

    async def _dispatch(self, row: dict[str, Any], gate: asyncio.Semaphore) -> Reply | aiohttp.ClientError:
        async with gate:
            try:
                return await self.collector.post("weather_environment_server", "/run", row)
            except aiohttp.ClientError as error:
                return error


def _stripped(verified: dict[str, Any]) -> dict[str, Any]:
    kept = ("reward", "agent_ref", "_ng_task_index", "_ng_rollout_index")
    return {name: verified[name] for name in kept}


@asynccontextmanager
async def miniature(causality_header: str) -> AsyncIterator[Miniature]:
    """Run every server on a free loopback port until the context ends."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client())
        egress = Egress(client, causality_header, {})
        collector = Egress(await stack.enter_async_context(_client()), causality_header, egress.addresses)
        for server in _servers(egress):
            egress.addresses[server.name] = await _serve(server.app, stack)
        yield Miniature(dict(egress.addresses), egress, collector)


def _servers(
    egress: Egress,
) -> tuple[HeadServer | EnvironmentServer | AgentServer | ResourcesServer | ModelServer | Provider, ...]:
    gym = (HeadServer(egress), EnvironmentServer(egress), AgentServer(egress), ResourcesServer(egress))
    return (*gym, ModelServer(egress), Provider())


def _client() -> aiohttp.ClientSession:
    """Gym's client: no limits, no timeouts, no cookies of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
    )


async def _serve(app: web.Application, stack: AsyncExitStack) -> str:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}"
