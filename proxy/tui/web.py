"""The same UI in a browser, through textual-serve: on loopback only, and only for who has the token from the URL.

textual-serve starts a process for every page that is opened and knows no access control. Everybody on a machine can
reach a loopback port, so each request has to bring the token: in the URL that is printed, then in a cookie that the
first answer sets. A WebSocket must come from the page's own origin, which a browser does not let others claim.
"""

import hmac
import secrets
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server

from gymtap.proxy.core.errors import ListenError

HOST = "127.0.0.1"
COOKIE = "gymtap_token"
_PAGE = Path(__file__).parent / "web_page"
"""textual-serve's own page asks a server elsewhere for a font, and gets no keys before a click."""


class GuardedServer(Server):
    """textual-serve's server with a lock on the door."""

    def __init__(self, command: str, port: int, token: str) -> None:
        super().__init__(command, host=HOST, port=port, title="gymtap", templates_path=_PAGE)
        self._token = token

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(guard(self._token, self.public_url))
        return app


def guard(token: str, origin: str) -> Middleware:
    """Let through who brings the token; 403 for everybody else."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.query.get("token", "")
        known = request.cookies.get(COOKIE, "")
        if not (_same(shown, token) or _same(known, token)):
            return web.Response(status=403, text="open the whole URL that gymtap printed, with its token\n")
        came_from = request.headers.get("Origin", origin)
        if came_from != origin:
            return web.Response(status=403, text="this page is not ours\n")
        response = await handler(request)
        if not response.prepared:
            response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
        return response

    return guarded


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def free_port(wanted: int) -> int:
    """The port that was asked for, or any that is free. Raises ListenError when it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            hint = "choose another, or leave --port out"
            raise ListenError(f"port {wanted} cannot be had: {error.strerror}", hint) from error
        return int(probe.getsockname()[1])


def serve(capture: Path, port: int, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `tell` gets the URL. Raises ListenError."""
    token = secrets.token_urlsafe(24)
    found = free_port(port)
    command = shlex.join([sys.executable, "-m", "gymtap.proxy.tui", str(capture.absolute())])
    tell(f"http://{HOST}:{found}/?token={token}   (this machine only; Ctrl-C ends it)")
    GuardedServer(command, found, token).serve()
