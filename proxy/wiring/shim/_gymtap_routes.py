"""Where a request of this process goes: to a boundary of the tap, through one made for its origin, or straight.

The tap is asked once per origin and process. Only answers that cannot change are kept for good: a Gym server
that is not captured yet is asked for again.
"""

import asyncio
import os
import threading
import time

import _gymtap_config
import _gymtap_control

RECHECK_S = 2.0
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Route:
    """`tapped`: the tap is at the other end, so it may be told the parent.

    `port`: connect there instead, on loopback; None is the origin itself. `until`: when to ask again.
    """

    __slots__ = ("port", "tapped", "until")

    def __init__(self, tapped, port=None, until=None):
        self.tapped = tapped
        self.port = port
        self.until = until


_STRAIGHT = Route(tapped=False)
_routes = {}
_asking = threading.Lock()


def lookup(origin):
    """The route of (scheme, host, port) as far as it is known; None when the tap has to be asked."""
    if origin[0] not in _DEFAULT_PORTS or not _gymtap_config.in_gym():
        return _STRAIGHT
    route = _routes.get(origin)
    if route is not None and route.until is not None and time.monotonic() > route.until:
        return None
    return route


def find(origin):
    """The route of an origin; asks the tap and blocks for it where it is not known. Never raises."""
    route = lookup(origin)
    if route is not None:
        return route
    with _asking:
        route = lookup(origin)
        if route is None:
            route = _routes[origin] = _asked(origin)
    return route


async def find_soon(origin):
    """The same from a running event loop, which goes on meanwhile."""
    route = lookup(origin)
    if route is not None:
        return route
    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    def settle(route):
        if not answer.done():
            answer.set_result(route)

    def work():
        found = find(origin)
        try:
            loop.call_soon_threadsafe(settle, found)
        except RuntimeError:
            return  # the loop has ended meanwhile, and nobody waits

    threading.Thread(target=work, name="gymtap-route", daemon=True).start()
    return await answer


def give_up(origin, reason):
    """The tap's end of an origin does not answer: go straight from now on, and say so."""
    _routes[origin] = _STRAIGHT
    _gymtap_control.say_once(f"{text(origin)} is not captured any more, requests go straight: {reason}")


def text(origin):
    """`https://api.example.com`, with the port only where it is not the scheme's own."""
    scheme, host, port = origin
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{name}:{port}"


def _asked(origin):
    _, host, port = origin
    gym = _gymtap_config.is_gym_address(host, port)
    egress = not gym and not os.environ.get("GYMTAP_NO_EGRESS")
    message = {"origin": text(origin), "egress": egress}
    try:
        message["caller_type"] = _gymtap_config.own_type()
        message["mentions"] = _gymtap_config.mentions(text(origin))
        reply = _gymtap_control.ask("/route", message, "via")
        via, port = reply["via"], reply.get("port")
    except Exception as error:  # noqa: BLE001 - the request goes on without the tap
        _gymtap_control.say_once(f"requests to {text(origin)} go straight and are not captured: {error}")
        return _STRAIGHT
    if via == "egress":
        return Route(tapped=True, port=int(port))
    if via == "listener":
        return Route(tapped=True)
    return Route(tapped=False, until=time.monotonic() + RECHECK_S)
