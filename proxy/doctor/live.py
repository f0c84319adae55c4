"""Looks at a run that is up: its head, every server that the head names, and the model providers. GET requests only.

A server counts as up when it answers at all, as Gym itself counts it. The key that the configuration has for a
provider is sent to that provider alone; what comes back is never kept.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.doctor.config_files import entries, resolved
from gymtap.proxy.wiring.head import GymServer, fetch_config, gym_servers
from gymtap.proxy.wiring.origin import Origin
from gymtap.schemas import ServerKind

LIMIT_S = 10.0
"""How long one answer is waited for."""


@dataclass(frozen=True)
class Seen:
    """What a GET came to: `status` None and `error` one line where there was no answer."""

    status: int | None = None
    error: str = ""
    body: bytes = b""

    @property
    def answered(self) -> bool:
        """Whether anything answered."""
        return self.status is not None


@dataclass(frozen=True)
class ServerSeen:
    """A server of the head's configuration and its answer; `document` is its OpenAPI document where it gives one."""

    server: GymServer
    health: Seen
    document: Any = None


@dataclass(frozen=True)
class ProviderSeen:
    """A provider's base URL, its answer to /models, the names it serves, and the name that the configuration wants."""

    url: str
    models: Seen
    served: tuple[str, ...] = ()
    wanted: str | None = None
    asked_by: str = ""


@dataclass(frozen=True)
class Live:
    """All that answered; `head_error` says why the head did not."""

    head: str | None = None
    head_error: str = ""
    servers: tuple[ServerSeen, ...] = ()
    providers: tuple[ProviderSeen, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)


def look(head: str | None, provider: str | None, limit_s: float = LIMIT_S) -> Live:
    """Look at them. Raises UsageError when an address is none."""
    try:
        origin = Origin.parse(head) if head else None
    except ValueError as error:
        raise UsageError(str(error), "--gym takes the head server's address, as in http://127.0.0.1:11000") from None
    if provider and not provider.startswith(("http://", "https://")):
        raise UsageError(
            f"{provider!r} is no http address", "--provider takes a base URL, as in http://127.0.0.1:8000/v1"
        )
    return asyncio.run(_look(origin, provider, limit_s))


async def _look(head: Origin | None, provider: str | None, limit_s: float) -> Live:
    config: dict[str, Any] = {}
    problem = ""
    if head is not None:
        try:
            config = await fetch_config(head)
        except GymtapError as error:
            problem = str(error)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(limit_s), trust_env=False) as session:
        servers, providers = await asyncio.gather(_servers(session, config), _providers(session, config, provider))
    return Live(head.url if head else None, problem, tuple(servers), tuple(providers), config)


async def _get(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None) -> Seen:
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            return Seen(response.status, "", await response.read())
    except TimeoutError:
        return Seen(error="no answer in time")
    except (aiohttp.ClientError, ValueError) as error:
        return Seen(error=str(error) or type(error).__name__)


async def _servers(session: aiohttp.ClientSession, config: Mapping[str, Any]) -> list[ServerSeen]:
    return await asyncio.gather(*(_server(session, server) for server in gym_servers(config)))


async def _server(session: aiohttp.ClientSession, server: GymServer) -> ServerSeen:
    health = await _get(session, server.origin.url + "/")
    document = None
    if health.answered and server.kind in {ServerKind.RESOURCES, ServerKind.ENVIRONMENT, ServerKind.AGENT}:
        document = _json((await _get(session, server.origin.url + "/openapi.json")).body)
    return ServerSeen(server, health, document)


async def _providers(
    session: aiohttp.ClientSession, config: Mapping[str, Any], provider: str | None
) -> list[ProviderSeen]:
    wanted: dict[str, tuple[str | None, str, str]] = {}
    for name, _, entry in entries(config):
        model, key = (_setting(entry, config, field) for field in ("model", "api_key"))
        urls = _setting(entry, config, "base_url")
        for url in (resolved(one, config) for one in (urls if isinstance(urls, list) else [urls])):
            if isinstance(url, str) and url.startswith(("http://", "https://")):
                wanted.setdefault(url.rstrip("/"), (model and str(model), name, str(key or "")))
    if provider:
        wanted.setdefault(provider.rstrip("/"), (None, "", ""))
    return await asyncio.gather(*(_provider(session, url, *about) for url, about in wanted.items()))


def _setting(entry: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Any:
    """A model server's setting, under vllm_model's name for it or openai_model's; None where it is not known."""
    value = resolved(entry.get(name) or entry.get(f"openai_{name}"), config)
    return None if isinstance(value, str) and "${" in value else value


async def _provider(
    session: aiohttp.ClientSession, url: str, model: str | None, asked_by: str, key: str
) -> ProviderSeen:
    headers = {"Authorization": f"Bearer {key}"} if key else None
    seen = await _get(session, f"{url}/models", headers)
    document = _json(seen.body)
    listed = document.get("data") if isinstance(document, dict) else None
    names = [item.get("id") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return ProviderSeen(url, seen, tuple(str(name) for name in names), model, asked_by)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return None
