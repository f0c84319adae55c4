"""The second engine beside the first: for a child that honours proxy variables, and for `gymtap up --engine mitm`.

It is loaded only where it is asked for: mitmproxy takes a second to load.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gymtap.proxy.mitm.settings import MitmSettings
from gymtap.proxy.tap import Tap

if TYPE_CHECKING:
    from gymtap.proxy.mitm.engine import MitmEngine

type Say = Callable[[str], None]


@asynccontextmanager
async def second_engine(tap: Tap, settings: MitmSettings, say: Say) -> "AsyncIterator[MitmEngine]":
    """Mitmproxy in the tap, until the block ends, or a strict tap lets nothing pass. Raises as MitmEngine does."""
    from gymtap.proxy.mitm.engine import MitmEngine  # noqa: PLC0415 - slow to load

    async with MitmEngine(settings, tap.source(), lambda line: say(f"gymtap: {line}")) as engine:
        closing = asyncio.create_task(_close_when_broken(tap, engine))
        try:
            yield engine
        finally:
            closing.cancel()


async def _close_when_broken(tap: Tap, engine: "MitmEngine") -> None:
    await tap.broken()
    await engine.close()


@asynccontextmanager
async def proxied(
    tap: Tap, settings: MitmSettings, say: Say, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[dict[str, str]]:
    """An explicit proxy on loopback; gives the variables by which a child uses and trusts it."""
    from gymtap.proxy.mitm.trust import proxy_variables, write_trust  # noqa: PLC0415 - slow to load

    async with second_engine(tap, settings, say) as engine:
        with tempfile.TemporaryDirectory(prefix="gymtap-trust-") as folder:
            write_trust(Path(folder), engine.ca, environ)
            host, port = engine.addresses[0]
            say(f"gymtap: proxy for this command at http://{host}:{port}, its CA is {engine.ca}")
            yield proxy_variables(host, port, Path(folder), engine.ca, environ)


def introduce(engine: "MitmEngine", say: Say) -> None:
    """Say where it listens, where its CA is, and how a client comes to trust it."""
    for host, port in engine.addresses:
        say(f"gymtap: mitmproxy listens at {host}:{port}")
    for line in engine.instructions:
        say(f"gymtap: {line}")
    say(f"gymtap: clients have to trust {engine.ca}, as in: curl --cacert {engine.ca}")
    say("gymtap: how others do is in docs/mitmproxy.md; `gymtap run --proxy-env` does it for a child")
