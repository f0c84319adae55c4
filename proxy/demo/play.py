"""Plays the demo: the miniature behind a real tap, twenty rows through it, a real capture at the end."""

from pathlib import Path

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.demo.miniature import KINDS, miniature
from gymtap.proxy.engine import CAUSALITY_HEADER, Causality
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Server, ServerKind

COMMAND = ("gymtap", "demo")
CONCURRENCY = 20


async def play(capture: Path | None, concurrency: int = CONCURRENCY) -> Path:
    """Where the capture is. With a concurrency of 1, exchanges have the same ids each time.

    Raises CaptureError when no capture can be kept there.
    """
    async with miniature(CAUSALITY_HEADER) as gym, Tap(TapSettings(capture=capture, command=COMMAND)) as tap:
        gym.stand_behind({name: await _front(tap, name, kind, gym.private[name]) for name, kind in KINDS.items()})
        await gym.collect(rows(), concurrency)
        return tap.capture


async def _front(tap: Tap, name: str, kind: ServerKind, upstream: str) -> str:
    """Open a boundary in front of one server; its address."""
    server = Server(name=name, kind=kind, listen="http://127.0.0.1:0", upstream=upstream)
    causality = Causality.STRIP if kind is ServerKind.PROVIDER else Causality.INJECT
    return (await tap.listen(server, causality=causality)).server.listen
