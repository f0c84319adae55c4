"""Keeps what a replay sent and got as a capture of its own, each exchange linked to the one that it repeats.

Nothing is ever written into the original capture. The links stand in `replay.jsonl` beside the new capture's
file, and, for whoever only looks at one exchange, in its attribution's evidence. Attempts are told apart as
runs: attempt 2 of row 12.3 is `r2:12.3`.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.replay.match import Hit
from gymtap.proxy.replay.playback import Asked
from gymtap.proxy.replay.recorded import Recorded
from gymtap.proxy.replay.send import Sent
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import (
    Attribution,
    Body,
    Call,
    Confidence,
    Exchange,
    Method,
    Request,
    Response,
    RowKey,
    ServerKind,
    State,
)

LINKS_NAME = "replay.jsonl"


@dataclass(frozen=True)
class Repeat:
    """An exchange of the new capture, and what it repeats: None when it was not recorded before.

    `nearest` is then the recorded call that is most like it. `chosen`: its request is a step of the plan, not
    something that the servers did.
    """

    recorded: Recorded
    original: Recorded | None
    nearest: Recorded | None
    chosen: bool


def check_new(directory: Path, original: Path) -> None:
    """Raise UsageError where something is already, and within the original: no replay goes into what a run has left."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty", "name a new directory with --into")
    if directory.resolve().is_relative_to(original.resolve()):
        raise UsageError(f"{directory} would lie in the capture", "name a directory outside of it with --into")


class Keeper:
    """Writes one new capture. `original` is the path of the capture that is replayed."""

    def __init__(self, directory: Path, original: Path, command: Sequence[str] = ()) -> None:
        self.directory = directory
        self._original = original.absolute()
        self._writer = CaptureWriter.create(directory, command=command)
        self._numbers = count(1)
        self._links = (directory / LINKS_NAME).open("a", encoding="utf-8")

    def keep(self, attempt: int, sent: Sequence[Sent], asked: Sequence[Asked]) -> list[Repeat]:
        """Keep one attempt (from 1): the steps, and below the judged one what the playback was asked.

        Raises CaptureError when the disk takes it not: what cannot be kept is not sent on and on.
        """
        steps = [self._sent(one, attempt) for one in sent]
        parent = next((kept for kept, one in zip(steps, sent, strict=True) if one.judged), None)
        kept = [*steps, *(self._asked(one, attempt, parent) for one in asked)]
        try:
            for one in kept:
                self._writer.add(one.recorded.exchange, one.recorded.request_body, one.recorded.response_body)
                self._link(one, attempt)
        except OSError as error:
            raise self._full(str(error.strerror)) from error
        if not self._writer.commit():
            raise self._full("the disk refused it")
        return kept

    def close(self) -> None:
        """End the capture."""
        with suppress(OSError):  # what a full disk has refused before
            self._links.close()
        self._writer.close()

    def _full(self, reason: str) -> CaptureError:
        return CaptureError(
            f"{self.directory}: cannot keep the replay: {reason}", "make room; what came before it is kept"
        )

    def _link(self, kept: Repeat, attempt: int) -> None:
        link = {
            "exchange": kept.recorded.exchange.id,
            "replays": kept.original.exchange.id if kept.original else None,
            "capture": str(self._original),
            "attempt": attempt,
        }
        self._links.write(json.dumps(link) + "\n")
        self._links.flush()

    def _next_id(self) -> str:
        return f"{self._writer.prefix}{next(self._numbers)}"

    def _sent(self, one: Sent, attempt: int) -> Repeat:
        original = one.step.original
        response = None
        if one.status is not None:
            response = Response(
                status=one.status,
                reason=one.reason,
                headers=one.response_headers,
                body=_body(one.response_body),
                first_byte_ms=one.first_byte_ms or 0.0,
                ended_ms=None if one.error else one.duration_ms,
            )
        asked = original.exchange.request
        exchange = Exchange(
            id=self._next_id(),
            server=one.step.server,
            kind=one.step.kind,
            call=one.step.call,
            state=State.FAILED if one.error else State.DONE,
            started_ns=one.started_ns,
            request=Request(method=asked.method, target=asked.target, headers=one.headers, body=_body(one.body)),
            response=response,
            error=one.error,
            duration_ms=one.duration_ms,
            attribution=_attribution(original, attempt),
        )
        return Repeat(Recorded(exchange, one.body, one.response_body), original, None, chosen=True)

    def _asked(self, one: Asked, attempt: int, parent: Repeat | None) -> Repeat:
        original = one.answer.entry if isinstance(one.answer, Hit) else None
        played = original.exchange if original else None
        response = None
        if one.status is not None:
            response = Response(
                status=one.status,
                reason=played.response.reason if played and played.response else "",
                headers=played.response.headers if played and played.response else (),
                body=_body(one.reply),
                first_byte_ms=one.duration_ms,
                ended_ms=None if played and played.error else one.duration_ms,
            )
        nearest = one.answer.entry if isinstance(one.answer, Hit) else one.answer.nearest
        exchange = Exchange(
            id=self._next_id(),
            server=nearest.exchange.server if nearest else ServerKind.PROVIDER,
            kind=nearest.exchange.kind if nearest else ServerKind.PROVIDER,
            call=nearest.exchange.call if nearest else Call.PROVIDER,
            state=State.FAILED if played and played.error else State.DONE,
            started_ns=one.started_ns,
            request=Request(method=one.method, target=one.target, headers=one.headers, body=_body(one.body)),
            response=response,
            error=played.error if played else None,
            duration_ms=one.duration_ms,
            parent=parent.recorded.exchange.id if parent else None,
            attribution=_attribution(parent.original if parent else None, attempt),
        )
        return Repeat(Recorded(exchange, one.body, one.reply), original, nearest, chosen=False)


def _body(content: bytes | None) -> Body | None:
    return None if content is None else Body(digest=None, size_bytes=len(content))


def _attribution(original: Recorded | None, attempt: int) -> Attribution:
    row = original.exchange.attribution.row if original else None
    if original is None or row is None:
        return Attribution()
    return Attribution(
        row=RowKey(**{**row.model_dump(), "run": attempt}),
        method=Method.CAUSALITY,
        confidence=Confidence.CERTAIN,
        evidence=f"replays {original.exchange.id}, attempt {attempt}",
    )
