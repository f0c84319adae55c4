"""What every Gym server does in front of its endpoints: sessions, errors, the causality header, calls to others.

A plain aiohttp application stands in for Gym's FastAPI one. The order matters and is Gym's: the exception
handler is outside the session, so its 500s carry no `Set-Cookie` while 404s and 422s do.
"""

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from pydantic import ValidationError

from gymtap.proxy.demo.wire import exception_error, nested_error, set_cookie, sign_session, validation_detail

type Endpoint = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)
_NAMESPACE = uuid.UUID("9d2a63f2-0f4f-4c5e-8f0e-9d6f6c0a7c11")


class InnerError(Exception):
    """A call to another server was answered with an error; `body` is that answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}")
        self.status = status
        self.body = body


class Reply:
    """Another server's answer: its status, whole body, and the cookies it set."""

    def __init__(self, status: int, body: bytes, cookies: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.cookies = cookies

    def ok(self) -> "Reply":
        """Itself, when the status is below 400; InnerError otherwise, as `raise_for_status` in Gym."""
        if self.status >= 400:
            raise InnerError(self.status, self.body)
        return self

    def json(self) -> Any:
        """The body as JSON. Raises orjson.JSONDecodeError."""
        return orjson.loads(self.body)


class Egress:
    """Every outgoing call of the miniature: cookies move only as given, and the causality header goes along.

    `addresses` maps a server's name to the base URL by which clients reach it; it may be filled later.
    """

    def __init__(self, client: aiohttp.ClientSession, causality_header: str, addresses: dict[str, str]) -> None:
        self._client = client
        self._parent: ContextVar[str | None] = ContextVar("parent", default=None)
        self.causality_header = causality_header
        self.addresses = addresses

    def entered(self, request: web.Request) -> None:
        """A request came in: what is called from here on is called on its behalf."""
        self._parent.set(request.headers.get(self.causality_header))

    async def post(
        self, server: str, path: str, json: Any, cookies: Mapping[str, str] | None = None, bearer: str | None = None
    ) -> Reply:
        """Call `server`; raises aiohttp's errors where the connection fails."""
        headers = {"Content-Type": "application/json"}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        if (parent := self._parent.get()) is not None:
            headers[self.causality_header] = parent
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in sorted(cookies.items()))
        async with self._client.post(self.addresses[server] + path, data=orjson.dumps(json), headers=headers) as reply:
            return Reply(reply.status, await reply.read(), {k: v.value for k, v in reply.cookies.items()})

    async def get(self, server: str, path: str) -> Reply:
        """Fetch from `server`, as the collector does from the head."""
        async with self._client.get(self.addresses[server] + path) as reply:
            return Reply(reply.status, await reply.read(), {})


class MiniServer:
    """A Gym server: `identity` is `<Class>___<name>`, which names its session cookie and its errors."""

    def __init__(self, class_name: str, name: str, egress: Egress) -> None:
        self.name = name
        self.identity = f"{class_name}___{name}"
        self.egress = egress
        self.app = web.Application(middlewares=[self._exceptions, self._session], client_max_size=64 * 2**20)
        self.app.router.add_get("/", self._health)

    def post(self, path: str, endpoint: Endpoint) -> None:
        """Answer POST `path` with `endpoint`."""
        self.app.router.add_post(path, endpoint)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return answer({"status": "ok"})

    @web.middleware
    async def _exceptions(self, request: web.Request, handler: Endpoint) -> web.StreamResponse:
        self.egress.entered(request)
        try:
            return await handler(request)
        except InnerError as error:
            return _raw(500, nested_error(self.identity, error.body))
        except Exception as error:  # noqa: BLE001 - Gym answers any exception with its repr
            _log.debug("%s failed", self.identity, exc_info=True)
            return _raw(500, exception_error(error))

    @web.middleware
    async def _session(self, request: web.Request, handler: Endpoint) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = _raw(404, b'{"detail":"Not Found"}')
        except RequestError as error:
            response = _raw(422, validation_detail(error.problem))
        response.headers.add("Vary", "Cookie")
        response.headers.add("Set-Cookie", set_cookie(self.identity, await self._session_value(request)))
        return response

    async def _session_value(self, request: web.Request) -> str:
        sent = cookies_of(request).get(self.identity)
        return sent or sign_session(str(uuid.uuid5(_NAMESPACE, self.identity + digest(await request.read()))))


class RequestError(Exception):
    """A request's body does not fit the endpoint's model: FastAPI's 422."""

    def __init__(self, problem: ValidationError) -> None:
        super().__init__(str(problem))
        self.problem = problem


def cookies_of(request: web.Request) -> dict[str, str]:
    """The request's cookies by name, values untouched."""
    return {name: morsel.value for name, morsel in SimpleCookie(request.headers.get("Cookie", "")).items()}


def answer(value: Any, cookies: Mapping[str, str] | None = None) -> web.Response:
    """A 200 with a JSON body, and `cookies` passed on as Starlette's `set_cookie` writes them."""
    response = _raw(200, orjson.dumps(value))
    for name, text in (cookies or {}).items():
        response.headers.add("Set-Cookie", f"{name}={text}; Path=/; SameSite=lax")
    return response


def digest(data: bytes) -> str:
    """Eight hex digits that stand for `data`: the demo's ids, so that they do not depend on the order of things."""
    return hashlib.sha256(data).hexdigest()[:8]


def _raw(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
