"""What `gymtap playback` does: loads the recorded calls, listens, and says at the end what was asked of it."""

import asyncio
import signal
from dataclasses import asdict, dataclass
from functools import partial

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.choose import open_capture
from gymtap.proxy.core.errors import GymtapError, UsageError
from gymtap.proxy.replay.load import reads, recorded, requests
from gymtap.proxy.replay.match import Matcher
from gymtap.proxy.replay.playback import Playback
from gymtap.proxy.replay.stub import Stub, address, addresses, boundaries
from gymtap.proxy.replay.targets import base_url
from gymtap.proxy.store import Capture
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import counted

_TOLD_MISSES = 10


@dataclass(frozen=True)
class Asked:
    """The options of one command line; see `gymtap playback --help`."""

    capture: str | None
    listen: str | None
    stub: str
    loose: bool
    passing: bool
    endpoint: str | None
    as_json: bool


def run(asked: Asked) -> int:
    """Play until interrupted; the exit status: 1 when a request was not in the recording. Raises GymtapError."""
    if asked.passing and asked.endpoint is None:
        raise UsageError("--miss pass has to know where misses go", "add --endpoint URL")
    capture = open_capture(asked.capture)
    stub = Stub(boundaries(asked.stub, capture.servers()), asked.loose, asked.passing)
    playback, matcher = _load(asked, capture, stub)
    asyncio.run(_serve(asked, capture, stub, playback))
    _tell(asked, playback, matcher)
    return int(playback.tally.missed > playback.tally.passed)


def _load(asked: Asked, capture: Capture, stub: Stub) -> tuple[Playback, Matcher]:
    calls = requests(capture, lambda one: stub.covers(one.server, one.kind))
    matcher = Matcher(stub.entries(calls), loose=asked.loose, again=True, load=partial(recorded, capture))
    if not len(matcher):
        raise GymtapError(
            f"{capture.path.name} has no call to {asked.stub} that was answered", "`gymtap rows` shows it"
        )
    if matcher.shared():
        screen.note(
            f"! {counted(matcher.shared(), 'request')} came from several rows in the same words: "
            "their answers may change places"
        )
    passing = base_url(asked.endpoint) if asked.passing and asked.endpoint else None
    return Playback(matcher, stub.reads(reads(capture)), passing=passing), matcher


async def _serve(asked: Asked, capture: Capture, stub: Stub, playback: Playback) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    places = [address(asked.listen)] if asked.listen else await _places(capture, stub)
    async with playback.listening(places) as urls:
        for url in urls:
            screen.note(f"{counted(len(playback.matcher), 'recorded call')} to {asked.stub} at {url}")
        screen.note(f"start Gym with ++policy_base_url={urls[0]}/v1 if it does not look there by itself")
        await stopped.wait()


async def _places(capture: Capture, stub: Stub) -> list[tuple[str, int]]:
    """Where the recorded server was, if that can be had; else any free port."""
    try:
        return await addresses(stub, capture.servers(), None)
    except GymtapError:
        return [("127.0.0.1", 0)]


def _tell(asked: Asked, playback: Playback, matcher: Matcher) -> None:
    tally, left = playback.tally, matcher.unasked
    if asked.as_json:
        screen.write_json({**asdict(tally), "unasked": left})
        return
    told = [counted(tally.answered, "call") + " answered"]
    told += [f"{tally.repeated:,} of them again"] if tally.repeated else []
    told += [f"{tally.loose:,} loosely"] if tally.loose else []
    told += [f"{tally.missed:,} not recorded"] if tally.missed else []
    told += [f"{counted(left, 'recorded answer')} nobody asked for"] if left else []
    screen.note(", ".join(told))
    for miss in tally.misses[:_TOLD_MISSES]:
        screen.note(f"! {one_line(miss)}")
