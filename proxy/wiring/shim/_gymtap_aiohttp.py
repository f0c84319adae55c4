"""Causality outwards, and requests that leave Gym, for aiohttp: hooks on its connector.

The request keeps its URL, Host, cookies and redirects; only the connection underneath is made to the tap. So
the application sees the addresses and errors that it would see without one. `BaseConnector.connect` and
`TCPConnector._create_connection` have had these shapes through aiohttp 3.8 to 3.14.
"""

import copy

import _gymtap_config
import _gymtap_control
import _gymtap_routes
from _gymtap_causality import HEADER, PARENT


def install(module):
    """Wrap the connector's `connect`, where a request is about to be sent, and its `_create_connection`."""
    connect = module.BaseConnector.connect
    create = module.TCPConnector._create_connection  # noqa: SLF001 - the one place where a connection is made

    async def hooked_connect(self, req, *args, **kwargs):
        if isinstance(self, module.TCPConnector):
            await _prepare(self, req)
        return await connect(self, req, *args, **kwargs)

    async def hooked_create(self, req, *args, **kwargs):
        detour = _detour(self, req)
        if detour is None:
            return await create(self, req, *args, **kwargs)
        try:
            return await create(self, detour, *args, **kwargs)
        except module.ClientConnectorError as error:
            _gymtap_routes.give_up(_origin(req), f"the tap does not answer ({error.os_error})")
            req.headers.popall(HEADER, None)
            return await create(self, req, *args, **kwargs)

    module.BaseConnector.connect = hooked_connect
    module.TCPConnector._create_connection = hooked_create  # noqa: SLF001 - as above


def _origin(req):
    return (req.url.scheme, req.url.raw_host, req.url.port)


async def _prepare(connector, req):
    """Name the parent exchange where the tap is at the other end."""
    try:
        if req.proxy or not _gymtap_config.in_gym() or _own_tls(connector, req):
            return
        route = await _gymtap_routes.find_soon(_origin(req))
        parent = PARENT.get()
        if route.tapped and parent is not None:
            req.headers[HEADER] = parent
    except Exception as error:  # noqa: BLE001 - the request goes on without us
        _gymtap_control.say_once(f"a request goes on without its parent: {error!r}")


def _own_tls(connector, req):
    """Whether the application chose how TLS is to be done, which a detour could not honour."""
    if not req.is_ssl():
        return False
    chosen = (getattr(req, "ssl", True), getattr(connector, "_ssl", True))
    if all(value is True or value is None for value in chosen) and not getattr(req, "server_hostname", None):
        return False
    _gymtap_control.say_once(
        f"{_gymtap_routes.text(_origin(req))} is not captured: the application uses its own TLS settings"
    )
    return True


def _detour(connector, req):
    """The same request as far as making its connection goes, to the tap's port; None for a straight one."""
    route = _gymtap_routes.lookup(_origin(req))
    if route is None or route.port is None or req.proxy or _own_tls(connector, req):
        return None
    detour = copy.copy(req)
    detour.url = type(req.url).build(scheme="http", host="127.0.0.1", port=route.port)
    return detour
