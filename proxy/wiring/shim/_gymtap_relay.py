"""When the tap goes before the server does: the server's own address is served again, without the tap.

A thread waits at the lease. If it breaks, connections to the public address are relayed to the private one,
byte for byte, so that a run goes on without its tap. A tap that ends because the run is over says so, and
nothing is taken back.
"""

import asyncio
import json
import threading

import _gymtap_control

_PIECE_BYTES = 2**16
_TRIES = 50
_PAUSE_S = 0.1


def guard(name, lease, public, private, before_binding):
    """Watch a lease for the rest of this process; `before_binding` is called before the public address is bound."""
    arguments = (name, lease, public, private, before_binding)
    threading.Thread(target=_wait, args=arguments, name="gymtap-lease", daemon=True).start()


def _wait(name, lease, public, private, before_binding):
    _, response = lease
    try:
        line = response.readline()
        if line and json.loads(line).get("run_over"):
            return
    except Exception:  # noqa: BLE001, S110 - however it broke, the tap is gone
        pass
    before_binding()
    try:
        asyncio.run(_serve(name, public, private))
    except Exception as error:  # noqa: BLE001 - said, and the server stays reachable at its private port
        _gymtap_control.say_once(f"the tap is gone, and {name} cannot take {public[0]}:{public[1]} back: {error}")


async def _serve(name, public, private):
    async def relay(reader, writer):
        await _join(reader, writer, private)

    server = await _bound(relay, public)
    _gymtap_control.say_once(f"the tap is gone: {name} serves {public[0]}:{public[1]} itself, not captured any more")
    await server.serve_forever()


async def _bound(relay, public):
    """Bind the public address; the kernel may need a moment to take it from the tap."""
    for _ in range(_TRIES):
        try:
            return await asyncio.start_server(relay, *public)
        except OSError:  # noqa: PERF203 - a few tries
            await asyncio.sleep(_PAUSE_S)
    return await asyncio.start_server(relay, *public)


async def _join(reader, writer, private):
    try:
        far_reader, far_writer = await asyncio.open_connection(*private)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader, writer):
    try:
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()
    except OSError:
        writer.transport.abort()
