"""`gymtap serve`: captures over HTTP on loopback, for other tools."""

from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen

if TYPE_CHECKING:
    from gymtap.proxy.serve import Serving


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(_serve)


def _serve(
    captures: Annotated[
        list[str] | None, typer.Argument(metavar="CAPTURE", help="Captures beside those in the captures' folder.")
    ] = None,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on loopback; any free one by default.")] = 0,
    token: Annotated[
        str, typer.Option(envvar="GYMTAP_TOKEN", help="What clients have to send; a new one by default.")
    ] = "",
) -> None:
    """Serve captures as JSON: rows, exchanges, bodies, causes, and live events; /openapi.json says how."""
    import asyncio

    from gymtap.proxy.serve import Serving
    from gymtap.proxy.store import Capture, captures_root, resolve

    named = tuple(resolve(one) for one in captures or ())
    for path in named:
        Capture(path).close()
    serving = Serving(captures_root(), named, port, **({"token": token} if token else {}))
    asyncio.run(_until_stopped(serving))


async def _until_stopped(serving: "Serving") -> None:
    import asyncio
    import signal

    from gymtap.proxy.serve import serve

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(serving) as url:
        screen.write_json_line({"url": url, "token": serving.token, "openapi": f"{url}/openapi.json"})
        screen.note(f"gymtap: serving captures at {url}; stop with Ctrl-C")
        screen.note(f"  curl -H 'Authorization: Bearer {serving.token}' {url}/v1/captures")
        await stopped.wait()
