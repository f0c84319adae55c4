"""The line that a person sees while a run hangs."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from gymtap.proxy.tap import Tap, TapSettings
from gymtap.proxy.wiring.watch import alarms_of, watching
from gymtap.schemas import Server, ServerKind


async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


async def ask(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    try:
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_a_storm_is_said_while_it_goes_on_and_once(tmp_path: Path) -> None:
    """The client keeps on trying until the line is there; it comes without anything having ended well or given up."""
    said: list[str] = []
    heard = asyncio.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    upstream = await asyncio.start_server(drop, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
    async with Tap(TapSettings(capture=tmp_path / "capture")) as tap:
        server = Server(name="llm", kind=ServerKind.PROVIDER, listen="http://127.0.0.1:0", upstream=address)
        listener = await tap.listen(server)
        async with watching(tap.capture, say, every_s=0.02):
            while not heard.is_set():
                await ask(urlsplit(listener.server.listen).port or 0)
            await ask(urlsplit(listener.server.listen).port or 0)
    upstream.close()
    assert said[0].startswith("gymtap: retry storm: provider ?->provider (llm) was tried ")
    assert said[0].endswith(f"see `gymtap inflight {tmp_path / 'capture'}`")
    assert len([line for line in said if "retry storm" in line]) == 1


def test_a_capture_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert alarms_of(tmp_path / "nothing") == []


def test_what_the_system_refuses_for_now_says_nothing_and_ends_no_watch(tmp_path: Path) -> None:
    """As where no more files may be opened; a name that is too long is refused alike."""
    assert alarms_of(tmp_path / ("long" * 100)) == []
