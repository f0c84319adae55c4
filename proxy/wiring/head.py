"""`gymtap up --gym`: stand in front of a Gym run that is up already, without a restart.

A second head answers as the run's own does, with the tap's addresses in place of the servers'. A collector that
is pointed at it calls the servers through the tap; what the servers call among themselves it cannot change.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import yaml
from aiohttp import web

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.wiring.kinds import server_kind
from gymtap.proxy.wiring.origin import Origin
from gymtap.schemas import Server, ServerKind

CONFIG_PATH = "/global_config_dict_yaml"
INSTANCES_PATH = "/server_instances"
_FETCH_S = 10.0
_HINT = "give the address that `gym env start` prints for its head server, as in http://127.0.0.1:11000"

type Address = tuple[str, int]


@dataclass(frozen=True)
class GymServer:
    """A server as the head's configuration names it."""

    name: str
    kind: ServerKind
    origin: Origin


async def fetch_config(head: Origin) -> dict[str, Any]:
    """The head's configuration. Raises GymtapError when it does not answer as a Gym head does (0.5 to 0.7)."""
    try:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_FETCH_S))
        async with session, session.get(head.url + CONFIG_PATH) as response:
            status, body = response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise GymtapError(f"no Gym head answers at {head.url}: {error or type(error).__name__}", _HINT) from None
    if status != 200:
        raise GymtapError(f"{head.url}{CONFIG_PATH} answers {status}, so it is no Gym head", _HINT)
    try:
        return read_config(body)
    except ValueError as error:
        raise GymtapError(f"{head.url}{CONFIG_PATH} does not answer with a configuration: {error}", _HINT) from None


def read_config(body: bytes) -> dict[str, Any]:
    """Read the configuration: YAML in a JSON string. Raises ValueError."""
    try:
        config = yaml.safe_load(orjson.loads(body))
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ValueError(f"not YAML in a JSON string ({type(error).__name__})") from None
    if not isinstance(config, dict):
        raise ValueError("its YAML is not a mapping")  # noqa: TRY004 - the content is wrong, not the caller
    return config


def gym_servers(config: Mapping[str, Any]) -> list[GymServer]:
    """Every server that has an address, in the configuration's order; the head is not among them."""
    found = []
    for name, server_type, entry in _entries(config):
        origin = Origin("http", str(entry["host"]), int(entry["port"]))
        found.append(GymServer(name, server_kind(server_type, name), origin))
    return found


def _entries(config: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(name, type, entry) of `{name: {type: {implementation: entry}}}`, where the entry has an address."""
    found = []
    for name, instance in config.items():
        server_type = next(iter(instance), "") if isinstance(instance, dict) else ""
        implementations = instance.get(server_type) if isinstance(instance, dict) else None
        entry = next(iter(implementations.values()), None) if isinstance(implementations, dict) else None
        if isinstance(entry, dict) and entry.get("host") and str(entry.get("port", "")).isdigit():
            found.append((str(name), str(server_type), entry))
    return found


def redirect_config(body: bytes, tapped: Mapping[Address, Address]) -> bytes:
    """The head's answer with each (host, port) in `tapped` replaced. Raises ValueError when it is no configuration."""
    config = read_config(body)
    entries = [entry for _, _, entry in _entries(config)]
    if isinstance(head := config.get("head_server"), dict):
        entries.append(head)
    for entry in entries:
        _redirect(entry, tapped)
    return orjson.dumps(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def redirect_instances(body: bytes, tapped: Mapping[Address, Address]) -> bytes:
    """The same for the list of running servers, which carries a URL too."""
    instances = orjson.loads(body)
    for instance in instances if isinstance(instances, list) else []:
        if isinstance(instance, dict) and _redirect(instance, tapped) and "url" in instance:
            instance["url"] = Origin("http", str(instance["host"]), int(instance["port"])).url
    return orjson.dumps(instances)


def _redirect(entry: dict[str, Any], tapped: Mapping[Address, Address]) -> bool:
    port = str(entry.get("port", ""))
    address = tapped.get((str(entry.get("host")), int(port))) if port.isdigit() else None
    if address is None:
        return False
    entry["host"], entry["port"] = address
    return True


class HeadRelay:
    """Answers as the head does, with the addresses in `tapped` replaced. Loopback, on any free port."""

    def __init__(self, head: Origin) -> None:
        self.tapped: dict[Address, Address] = {}
        self._head = head
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> Origin:
        """Begin; where it listens."""
        self._session = aiohttp.ClientSession(auto_decompress=True)
        app = web.Application()
        app.router.add_get("/{path:.*}", self._relay)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return Origin("http", "127.0.0.1", int(self._runner.addresses[0][1]))

    async def close(self) -> None:
        """End."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        try:
            async with self._session.get(self._head.url + request.path_qs) as response:
                body = await response.read()
        except aiohttp.ClientError:
            if request.transport is not None:
                request.transport.abort()  # the head is gone: no answer is made up in its place
            raise asyncio.CancelledError from None
        change = {CONFIG_PATH: redirect_config, INSTANCES_PATH: redirect_instances}.get(request.path)
        if change is not None and response.status == 200:
            body = _changed(change, body, self.tapped)
        return web.Response(body=body, status=response.status, content_type=response.content_type)


def _changed(
    change: Callable[[bytes, Mapping[Address, Address]], bytes], body: bytes, tapped: Mapping[Address, Address]
) -> bytes:
    """The body as changed; as it is where it is not of the known form."""
    try:
        return change(body, tapped)
    except ValueError:
        return body


def tapped_server(server: GymServer) -> Server:
    """The boundary in front of a running server, on any free loopback port."""
    return Server(name=server.name, kind=server.kind, listen="http://127.0.0.1:0", upstream=server.origin.url)
