"""Causality outwards, and requests that leave Gym, for httpx (0.20 to 0.28): hooks on its two transports.

The transport gets a copy of the request whose URL is the tap's; Host and everything else were set from the
original, and the response belongs to the original. A transport with TLS settings, a proxy or a socket of the
application's own is left alone.
"""

import _gymtap_config
import _gymtap_control
import _gymtap_routes
from _gymtap_causality import HEADER, PARENT

_DIRECT = {"proxy": None, "uds": None, "http1": True}
_DEFAULT_TLS = {"verify": True, "cert": None}


def install(module):
    """Wrap the transports' constructors, to know how each connects, and the call that sends a request."""
    import httpx  # noqa: PLC0415 - being imported right now

    for transport in (module.HTTPTransport, module.AsyncHTTPTransport):
        _mark_plain(transport)
    _wrap_sync(module.HTTPTransport, httpx)
    _wrap_async(module.AsyncHTTPTransport, httpx)


def _mark_plain(transport):
    original = transport.__init__

    def construct(self, verify=True, *args, **kwargs):
        original(self, verify, *args, **kwargs)
        given = dict(kwargs, verify=verify)
        self._gymtap_direct = not args and _as_default(given, _DIRECT)
        self._gymtap_default_tls = not args and _as_default(given, _DEFAULT_TLS)

    transport.__init__ = construct


def _as_default(given, defaults):
    return all(given.get(name, value) is value for name, value in defaults.items())


def _wrap_sync(transport, httpx):
    original = transport.handle_request

    def handle_request(self, request):
        origin = _origin(self, request)
        route = _gymtap_routes.find(origin) if origin else None
        if route is None or not route.tapped:
            return original(self, request)
        try:
            return original(self, _towards(route, request))
        except httpx.ConnectError as error:
            if route.port is None:
                raise
            _gymtap_routes.give_up(origin, f"the tap does not answer ({error})")
            return original(self, request)

    transport.handle_request = handle_request


def _wrap_async(transport, httpx):
    original = transport.handle_async_request

    async def handle_async_request(self, request):
        origin = _origin(self, request)
        route = await _gymtap_routes.find_soon(origin) if origin else None
        if route is None or not route.tapped:
            return await original(self, request)
        try:
            return await original(self, _towards(route, request))
        except httpx.ConnectError as error:
            if route.port is None:
                raise
            _gymtap_routes.give_up(origin, f"the tap does not answer ({error})")
            return await original(self, request)

    transport.handle_async_request = handle_async_request


def _origin(transport, request):
    """(scheme, host, port) of a request that may be captured, or None."""
    url = request.url
    if url.scheme not in ("http", "https") or not _gymtap_config.in_gym():
        return None
    if not getattr(transport, "_gymtap_direct", False):
        return None
    origin = (url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80))
    if url.scheme == "https" and not transport._gymtap_default_tls:  # noqa: SLF001 - a mark of ours
        _gymtap_control.say_once(
            f"{_gymtap_routes.text(origin)} is not captured: the application uses its own TLS settings"
        )
        return None
    return origin


def _towards(route, request):
    """A copy for the transport: with the parent, and with the tap's address where the request leaves Gym."""
    sent = object.__new__(type(request))
    sent.__dict__.update(request.__dict__)  # copy.copy would leave the body behind, as for pickling
    parent = PARENT.get()
    if parent is not None:
        sent.headers = request.headers.copy()
        sent.headers[HEADER] = parent
    if route.port is not None:
        sent.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=route.port)
    return sent
