"""How to replay, as a person writes it in either face; and the order that is made of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.load import reads
from gymtap.proxy.replay.patch import parse
from gymtap.proxy.replay.plan import NoSuchCallError
from gymtap.proxy.replay.prepare import Changes, Draft, changed, of_exchange, of_row
from gymtap.proxy.replay.run import Order
from gymtap.proxy.replay.stub import Stub, address, boundaries
from gymtap.proxy.replay.targets import Wanted, base_url, target
from gymtap.proxy.store import Capture, captures_root, fresh, newest
from gymtap.schemas import RowKey, Server, ServerKind


@dataclass(frozen=True)
class Options:
    """The options of `gymtap replay` that say how; its help explains each."""

    start: str | None = None
    times: int = 1
    concurrency: int = 4
    to: tuple[str, ...] = ()
    gym: str | None = None
    endpoint: str | None = None
    api_key_env: str | None = None
    model: str | None = None
    assignments: tuple[str, ...] = ()
    patch: Path | None = None
    tools: bool | None = None
    stub: str | None = None
    stub_loose: bool = False
    stub_pass: bool = False
    stub_listen: str | None = None
    ignore: tuple[str, ...] = ()
    into: Path | None = None


def drafts(capture: Capture, names: Sequence[RowKey | str], options: Options) -> list[Draft]:
    """Drafts of rows, by their keys, and exchanges, by their ids, edited. Raises UsageError, CaptureError.

    A row that has no such call as `options.start` names is left out, where another has one.
    """
    changes = _changes(options)
    made: list[Draft] = []
    missing: NoSuchCallError | None = None
    for name in names:
        try:
            made.append(changed(_draft(capture, name, options.start), changes))
        except NoSuchCallError as error:
            missing = error
    if missing is not None and not made:
        raise missing
    return made


def _draft(capture: Capture, name: RowKey | str, start: str | None) -> Draft:
    if not isinstance(name, str):
        return of_row(capture, name, start)
    if start is not None:
        raise UsageError("--from is for rows: an exchange is sent as it is", f"leave it out, or name {name}'s row")
    return of_exchange(capture, capture.exchange(name))


def _changes(options: Options) -> Changes:
    try:
        operations = parse(options.patch.read_bytes()) if options.patch is not None else []
    except OSError as error:
        raise UsageError(f"{options.patch}: cannot be read: {error.strerror}") from error
    return Changes(tuple(edits.assignment(text) for text in options.assignments), tuple(operations), options.model)


def order(capture: Capture, made: Sequence[Draft], options: Options) -> Order:
    """The whole order. Raises UsageError for what cannot be read."""
    servers = capture.servers()
    return Order(
        drafts=made,
        servers=servers,
        original=capture.path,
        into=options.into or _new_capture(),
        wanted=_wanted(options, made),
        head=base_url(options.gym) if options.gym else None,
        stub=_stub(options, servers),
        reads=tuple(reads(capture)) if options.stub else (),
        times=options.times,
        concurrency=options.concurrency,
        rebuild=options.tools,
        ignore=frozenset(options.ignore),
        live=_live(capture),
        foreign=capture.path.is_file(),
    )


def _wanted(options: Options, made: Sequence[Draft]) -> Wanted:
    """Where steps go. Raises UsageError for what no step would go by: the servers call whom they are told to."""
    to, endpoint = dict(map(target, options.to)), base_url(options.endpoint) if options.endpoint else None
    called = {step.server: step.kind for draft in made for step in draft.plan.steps}
    hint = f"what is sent goes to {', '.join(sorted(called))}; whom they call is in their own configuration"
    for name in to.keys() - called.keys():
        raise UsageError(f"--to {name}: nothing is sent to {name}", hint)
    if endpoint and not options.stub_pass and ServerKind.PROVIDER not in called.values():
        raise UsageError("--endpoint: nothing is sent to a provider", hint)
    return Wanted(to, endpoint, options.api_key_env)


def _stub(options: Options, servers: Sequence[Server]) -> Stub | None:
    if options.stub is None:
        if options.stub_loose or options.stub_pass or options.stub_listen:
            raise UsageError("nothing is stubbed", "add --stub provider")
        return None
    listen = (address(options.stub_listen),) if options.stub_listen else ()
    return Stub(boundaries(options.stub, servers), options.stub_loose, options.stub_pass, listen)


def _live(capture: Capture) -> Path | None:
    """The capture of a tap that runs now, which sees what a replay causes: this one, or the newest."""
    if capture.live():
        return capture.path
    try:
        with Capture(newest(captures_root())) as other:
            return other.path if other.live() else None
    except CaptureError:
        return None


def _new_capture() -> Path:
    """Beside the captures, not among them: the newest capture stays the run's own."""
    return fresh(captures_root() / "replays", time.time_ns())
