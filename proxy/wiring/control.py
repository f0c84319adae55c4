"""The control server: where the processes of a Gym run ask the tap to listen for them.

What a process was granted lives exactly as long as its connection: the kernel closes that however the process
ends, so a port is free again for the next one without anybody's goodbye. Loopback only, and every request
carries the token.
"""

import asyncio
import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from aiohttp import web

from gymtap.proxy.core.errors import GymtapError, ListenError
from gymtap.proxy.engine import Causality, Listener
from gymtap.proxy.engine.bind import bind
from gymtap.proxy.wiring.kinds import origin_kind, server_kind
from gymtap.proxy.wiring.origin import Origin
from gymtap.schemas import Server

_HANDOVER_S = 2.0
"""How long a port's last owner, killed a moment ago, may take to be noticed before the next one is refused."""


class Listening(Protocol):
    """The part of a tap that the control server uses."""

    async def listen(
        self, server: Server, *, causality: Causality = Causality.OFF, tls: ssl.SSLContext | None = None
    ) -> Listener:
        """Open a boundary. Raises ListenError."""


@dataclass
class _Lease:
    listener: Listener
    origin: Origin
    ended: asyncio.Event = field(default_factory=asyncio.Event)


type _Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Control:
    """Grants takeovers and egress listeners on a tap. `causality` says whether parents are passed on to Gym servers."""

    def __init__(
        self,
        tap: Listening,
        *,
        token: str = "",
        causality: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._tap = tap
        self._inwards = Causality.INJECT if causality else Causality.OFF
        self._tls = tls
        self._leases: dict[Origin, _Lease] = {}
        self._egress: dict[Origin, Listener] = {}
        self._egress_lock = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._run_over = False
        self._runner: web.AppRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; empty before `start`."""
        return self._url

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; 0 is any free port. Raises ListenError."""
        app = web.Application(middlewares=[self._authorized])
        app.router.add_post("/takeover", self._takeover)
        app.router.add_post("/route", self._route)
        app.router.add_get("/status", self._status)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            (sock,) = bind("127.0.0.1", port)
        except ListenError:
            await self._runner.cleanup()
            raise
        await web.SockSite(self._runner, sock).start()
        self._url = "http://{}:{}".format(*self._runner.addresses[0][:2])

    async def close(self, *, run_over: bool) -> None:
        """Give all ports back. Servers that live on take their own again, unless the run is over."""
        self._run_over = run_over
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()
        for listener in self._egress.values():
            await listener.close()
        self._egress.clear()

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return _refusal(401, "the token is not this tap's")
        try:
            response: web.StreamResponse = await handler(request)
        except GymtapError as error:
            return _refusal(409, str(error))
        except (KeyError, TypeError, ValueError) as error:
            return _refusal(400, f"not a request that this tap knows ({error})")
        return response

    async def _takeover(self, request: web.Request) -> web.StreamResponse:
        """Listen in a server's place until its connection ends.

        Asked with `{name, type, host, port, upstream_host, upstream_port, judges}`.
        """
        asked = orjson.loads(await request.read())
        origin = Origin("http", str(asked["host"]), int(asked["port"]))
        lease = await self._grant(origin, asked)
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        try:
            await response.prepare(request)
            await response.write(b'{"granted": true}\n')
            await self._stopping.wait()
        finally:
            await asyncio.shield(self._release(origin, lease))
        await response.write(orjson.dumps({"run_over": self._run_over}) + b"\n")
        return response

    async def _grant(self, origin: Origin, asked: Mapping[str, Any]) -> _Lease:
        name, judges = str(asked["name"]), tuple(map(str, asked.get("judges", ())))
        held = self._leases.get(origin)
        if held is not None:
            await self._await_handover(held)
        server = Server(
            name=name,
            kind=server_kind(str(asked["type"]), name, judges),
            listen=origin.url,
            upstream=Origin("http", str(asked["upstream_host"]), int(asked["upstream_port"])).url,
        )
        listener = await self._tap.listen(server, causality=self._inwards)
        lease = self._leases[origin] = _Lease(listener, origin)
        return lease

    async def _await_handover(self, held: _Lease) -> None:
        try:
            async with asyncio.timeout(_HANDOVER_S):
                await held.ended.wait()
        except TimeoutError:
            name = held.listener.server.name
            raise ListenError(f"the tap listens at {held.origin.address} for {name}, which is alive") from None

    async def _release(self, origin: Origin, lease: _Lease) -> None:
        await lease.listener.close()
        if self._leases.get(origin) is lease:
            del self._leases[origin]
        lease.ended.set()

    async def _route(self, request: web.Request) -> web.Response:
        """Say how an origin is reached: `{origin, egress, caller_type, mentions}` -> `{via, port}`."""
        asked = orjson.loads(await request.read())
        origin = Origin.parse(str(asked["origin"]))
        if any(origin.reaches(taken) for taken in self._leases):
            return web.json_response({"via": "listener"})
        if not asked.get("egress"):
            return web.json_response({"via": "straight"})
        listener = await self._egress_listener(origin, asked)
        return web.json_response({"via": "egress", "port": Origin.parse(listener.server.listen).port})

    async def _egress_listener(self, origin: Origin, asked: Mapping[str, Any]) -> Listener:
        async with self._egress_lock:
            if origin not in self._egress:
                mentions = [str(path) for path in asked.get("mentions", ())]
                kind = origin_kind(str(asked.get("caller_type", "")), mentions)
                server = Server(name=origin.authority, kind=kind, listen="http://127.0.0.1:0", upstream=origin.url)
                tls = self._tls if origin.scheme == "https" else None
                self._egress[origin] = await self._tap.listen(server, causality=Causality.STRIP, tls=tls)
            return self._egress[origin]

    async def _status(self, _: web.Request) -> web.Response:
        listeners = [lease.listener for lease in self._leases.values()] + list(self._egress.values())
        return web.json_response({"servers": [listener.server.model_dump(mode="json") for listener in listeners]})


def _refusal(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
