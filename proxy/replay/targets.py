"""Decides where each server's steps go, and with which credentials, before anything is sent.

The capture says where a server was; that it is still there is never assumed. The order is: what the command
line says, a running Gym found through its head (the one named, or the one where the capture's head was), the
tap's address if something listens there, the server's own. A credential is sent only to a place that the user
has seen named.
"""

import asyncio
import ipaddress
import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout

from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay.plan import Plan, Step
from gymtap.proxy.replay.send import Route
from gymtap.proxy.replay.whole import credential_headers
from gymtap.schemas import Server, ServerKind

API_KEY_VARIABLES = {ServerKind.PROVIDER: "OPENAI_API_KEY", ServerKind.JUDGE: "OPENAI_API_KEY"}
"""Where a credential is looked for when no option names a variable and no running configuration has it."""
_HEAD_TIMEOUT_S = 10
_CONNECT_TIMEOUT_S = 3
_API_ROOT = "/v1"


@dataclass(frozen=True)
class Running:
    """A Gym that runs: its servers' URLs by name, and its configuration."""

    head: str
    servers: Mapping[str, str]
    configuration: Mapping[str, Any]

    @property
    def providers(self) -> tuple[str, ...]:
        """The base URLs of the policy's provider; there may be several of one kind."""
        found = self.configuration.get("policy_base_url")
        return tuple(map(str, found)) if isinstance(found, list) else (str(found),) if found else ()

    @property
    def provider_key(self) -> str | None:
        """The key that the policy is configured with."""
        found = self.configuration.get("policy_api_key")
        return str(found) if found else None


@dataclass(frozen=True)
class Wanted:
    """What the command line says about targets.

    `to` is by server name. `endpoint` replaces the provider's base URL. `api_key_env` names the variable
    with the key. `found` is a running Gym, None when there is none; `strict`: the user named it, so it has to
    have every server.
    """

    to: Mapping[str, str] = field(default_factory=dict)
    endpoint: str | None = None
    api_key_env: str | None = None
    found: Running | None = None
    strict: bool = False


def target(text: str) -> tuple[str, str]:
    """Read `NAME=URL`. Raises UsageError."""
    name, equals, url = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} names no target", "write --to NAME=http://HOST:PORT")
    return name, base_url(url)


def base_url(text: str) -> str:
    """A URL with scheme and host, without a trailing slash. Raises UsageError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # its port, or its brackets
        usable = False
    if not usable:
        raise UsageError(f"{text!r} is not an http URL", "write http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


async def find_gym(client: ClientSession, head: str) -> Running:
    """Ask a head which servers run, and with which configuration. Raises GymtapError when it does not answer as one."""
    try:
        instances = await _get_json(client, f"{head}/server_instances")
        servers = {_name(one): str(one["url"]) for one in instances if one.get("url")}
        configuration = yaml.safe_load(await _get_json(client, f"{head}/global_config_dict_yaml"))
    except (ClientError, TimeoutError, OSError) as error:
        raise GymtapError(
            f"no Gym head answers at {head}: {error}", "its port is `head_server.port`, 11000 by default"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        raise GymtapError(
            f"what answers at {head} is not a Gym head", "its port is `head_server.port`, 11000 by default"
        ) from None
    return Running(head, servers, configuration if isinstance(configuration, dict) else {})


def _name(instance: Mapping[str, Any]) -> str:
    """A server's name in the configuration; `name` is its component's, which several share (nemo-gym 0.7.0)."""
    return str(instance.get("config_path") or instance.get("process_name") or instance["name"])


async def _get_json(client: ClientSession, url: str) -> Any:
    async with client.get(url, timeout=ClientTimeout(total=_HEAD_TIMEOUT_S)) as response:
        response.raise_for_status()
        return json.loads(await response.read())


class Finder:
    """Finds where servers are, each once. `stubbed` ones need no credential.

    `brought` are the addresses in use that only the capture has named; `named`: a running Gym has named others.
    """

    def __init__(
        self, servers: Sequence[Server], wanted: Wanted, environ: Mapping[str, str], stubbed: Container[str] = ()
    ) -> None:
        self.brought: set[str] = set()
        self.named = False
        self._servers = {server.name: server for server in servers}
        self._wanted = wanted
        self._environ = environ
        self._stubbed = stubbed
        self._answering: dict[str, bool] = {}

    async def routes(self, plan: Plan) -> dict[str, Route]:
        """A route for every server of a plan.

        Raises GymtapError, before anything is sent, when a server cannot be reached or a credential is missing.
        """
        return {
            step.server: await self._route(plan, step) for step in {step.server: step for step in plan.steps}.values()
        }

    async def _route(self, plan: Plan, step: Step) -> Route:
        base, prefix = await self._base(step)
        if step.server in self._stubbed:
            return Route(base, {}, prefix)
        if not await self._answers(base):
            raise _not_there(step.server, base)
        return Route(base, _credentials(plan, step.server, base, self._wanted, self._environ), prefix)

    async def _base(self, step: Step) -> tuple[str, str]:
        wanted, running = self._wanted, self._wanted.found
        if step.server in wanted.to:
            return wanted.to[step.server], ""
        if step.kind is ServerKind.PROVIDER:
            endpoint = wanted.endpoint or next(iter(running.providers if running else ()), None)
            if endpoint is not None:
                return base_url(endpoint), _mounted(step.original.path, endpoint)
        elif running is not None and _names(running, step, strict=wanted.strict):
            self.named = True
            return _of_running(step.server, running), ""
        return await self._of_capture(step.server), ""

    async def _of_capture(self, name: str) -> str:
        server = self._servers.get(name)
        addresses = [one for one in (server.listen, server.upstream) if one] if server is not None else []
        for address in addresses:
            if await self._answers(address):
                self.brought.add(address)
                return address.rstrip("/")
        raise _not_there(name, " nor ".join(addresses) or "an address that the capture does not know")

    async def _answers(self, url: str) -> bool:
        if url not in self._answering:
            self._answering[url] = await answers(url)
        return self._answering[url]


def _mounted(path: str, endpoint: str) -> str:
    """What of a recorded path an endpoint's own path stands for: all up to /v1, where the endpoint has a path."""
    before, root, _ = path.rpartition(_API_ROOT)
    return before + root if urlsplit(base_url(endpoint)).path else before


def joined(endpoint: str, target: str) -> str:
    """The URL at an endpoint for a request target that was meant for another one."""
    return base_url(endpoint) + target.removeprefix(_mounted(target.partition("?")[0], endpoint))


def _names(running: Running, step: Step, *, strict: bool) -> bool:
    """Whether a running Gym says where a server is; what leaves Gym is nobody's server."""
    return step.server in running.servers or (strict and step.kind is not ServerKind.JUDGE)


def _of_running(name: str, running: Running) -> str:
    if name not in running.servers:
        there = ", ".join(sorted(running.servers)) or "none"
        raise GymtapError(f"the Gym at {running.head} has no server {name}", f"it has: {there}; or use --to {name}=URL")
    return running.servers[name].rstrip("/")


def _not_there(name: str, where: str) -> GymtapError:
    hint = f"start it, or say where it is: --gym HEAD_URL, or --to {name}=URL"
    return GymtapError(f"{name} does not listen at {where}", hint)


async def answers(url: str) -> bool:
    """Whether something accepts connections there; nothing is sent."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def on_loopback(url: str) -> bool:
    """Whether a URL stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(plan: Plan, server: str, base: str, wanted: Wanted, environ: Mapping[str, str]) -> dict[str, str]:
    """Header fields that carry a credential, with a fresh one. Raises UsageError where there is none."""
    steps = [step for step in plan.steps if step.server == server]
    needed = dict.fromkeys(name for step in steps for name in credential_headers(step))
    if not needed:
        return {}
    secret = _secret(steps[0], server, base, wanted, environ)
    return {name: f"Bearer {secret}" if name.lower() == "authorization" else secret for name in needed}


def _secret(step: Step, server: str, base: str, wanted: Wanted, environ: Mapping[str, str]) -> str:
    if wanted.api_key_env is not None:
        if secret := environ.get(wanted.api_key_env):
            return secret
        raise UsageError(f"{server} needs a credential and ${wanted.api_key_env} is not set", "nothing was sent")
    running = wanted.found
    if running is not None and running.provider_key and base in map(base_url, running.providers):
        return running.provider_key
    variable = API_KEY_VARIABLES.get(step.kind)
    if variable is not None and (secret := environ.get(variable)):
        return secret
    ways = [f"set {variable}"] if variable else []
    ways += ["use --api-key-env NAME" + (" or --gym HEAD_URL" if running is None else "")]
    raise UsageError(f"{server} needs a credential, which no capture has; nothing was sent", ", or ".join(ways))
