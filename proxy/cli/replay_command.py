"""What `gymtap replay` does with its options: finds what is meant, makes an order of it, runs it, tells."""

import asyncio
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gymtap.proxy.cli.choose import is_exchange_id, open_capture, parse_row
from gymtap.proxy.cli.replay_view import Faces
from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.diagnose.capture import causes
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.bundle import contents, row_of
from gymtap.proxy.replay.load import reads
from gymtap.proxy.replay.patch import parse
from gymtap.proxy.replay.prepare import Changes, Draft, changed, of_exchange, of_row, read_rows
from gymtap.proxy.replay.run import Order, replay
from gymtap.proxy.replay.stub import Stub, address, boundaries
from gymtap.proxy.replay.targets import Wanted, base_url, target
from gymtap.proxy.store import Capture, captures_root, fresh, newest
from gymtap.schemas import RowKey, Server


@dataclass(frozen=True)
class Asked:
    """The options of one command line, as they were written; see `gymtap replay --help`."""

    what: str | None
    start: str | None
    times: int
    failed: bool
    cause: str | None
    rows: Path | None
    concurrency: int
    to: tuple[str, ...]
    gym: str | None
    endpoint: str | None
    api_key_env: str | None
    model: str | None
    assignments: tuple[str, ...]
    patch: Path | None
    edit: bool
    tools: bool | None
    stub: str | None
    stub_loose: bool
    stub_pass: bool
    stub_listen: str | None
    ignore: tuple[str, ...]
    into: Path | None
    yes: bool
    capture: str | None
    as_json: bool


def run(asked: Asked) -> int:
    """Replay; the exit status: 1 when a person said no, or a request was not in the recording. Raises GymtapError."""
    bundle = Path(asked.what) if asked.what is not None and Path(asked.what).is_file() else None
    capture = open_capture(str(bundle) if bundle else asked.capture)
    order = _order(asked, capture, bundle)
    faces = Faces(order, yes=asked.yes, quiet=asked.as_json)
    results = asyncio.run(replay(order, os.environ, faces.agree, faces.progress))
    if results is None:
        return 1
    faces.tell(results, as_json=asked.as_json)
    return int(any(result.misses for result in results))


def _order(asked: Asked, capture: Capture, bundle: Path | None) -> Order:
    drafts = _drafts(capture, _names(asked, capture, bundle), asked.start)
    servers = capture.servers()
    return Order(
        drafts=_changed(drafts, _changes(asked), edit=asked.edit),
        servers=servers,
        original=capture.path,
        into=asked.into or _new_capture(),
        wanted=_wanted(asked),
        head=base_url(asked.gym) if asked.gym else None,
        stub=_stub(asked, servers),
        reads=tuple(reads(capture)) if asked.stub else (),
        times=asked.times,
        concurrency=asked.concurrency,
        rebuild=asked.tools,
        ignore=frozenset(asked.ignore),
        live=_live(capture),
        foreign=bundle is not None,
    )


def _names(asked: Asked, capture: Capture, bundle: Path | None) -> list[str]:
    """The labels and ids that the command line means."""
    ways = [way for way in (asked.what, asked.failed or None, asked.cause, asked.rows) if way is not None]
    if len(ways) != 1:
        raise UsageError(
            "say what to replay", "one of: ROW, EXCHANGE, BUNDLE, --failed, --cause FINGERPRINT, --rows FILE"
        )
    if bundle is not None:
        said = contents(bundle)
        if said is None:
            raise UsageError(
                f"{bundle} is no bundle, so it does not say which row", f"name one: ROW --capture {bundle}"
            )
        return [_full(row_of(said))]
    if asked.what is not None:
        return [asked.what]
    return _of_file(asked.rows) if asked.rows is not None else _of_capture(capture, asked.cause)


def _of_file(rows: Path) -> list[str]:
    try:
        return [_full(key) for key in read_rows(rows.read_text(encoding="utf-8"))]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{rows}: cannot be read: {error}") from error


def _of_capture(capture: Capture, cause: str | None) -> list[str]:
    """The failed rows; all those with one cause where one is named."""
    if cause is not None:
        return _of_cause(capture, cause)
    rows = [_full(row.key) for row in capture.rows(failed=True)]
    if not rows:
        raise UsageError(f"no row failed in {capture.path.name}", "`gymtap rows` lists them all")
    return rows


def _of_cause(capture: Capture, fingerprint: str) -> list[str]:
    """The rows with the cause of that fingerprint, or its unique start; of rows that ended well, too."""
    found = [
        one for one in causes(capture, now_ns=time.time_ns(), every_row=True) if one.fingerprint.startswith(fingerprint)
    ]
    if len(found) != 1:
        many = f"{len(found)} causes begin with" if found else "no row has the cause"
        raise UsageError(f"{many} {fingerprint} in {capture.path.name}", "`gymtap causes --all` lists them")
    return found[0].rows


def _full(key: RowKey) -> str:
    return f"{key.label}~{key.agent}" if key.agent else key.label


def _drafts(capture: Capture, names: Sequence[str], start: str | None) -> list[Draft]:
    drafts = []
    for name in names:
        if not is_exchange_id(name):
            drafts.append(of_row(capture, parse_row(name), start))
        elif start is not None:
            raise UsageError("--from is for rows: an exchange is sent as it is", f"leave it out, or name {name}'s row")
        else:
            drafts.append(of_exchange(capture, capture.exchange(name)))
    return drafts


def _changes(asked: Asked) -> Changes:
    try:
        operations = parse(asked.patch.read_bytes()) if asked.patch is not None else []
    except OSError as error:
        raise UsageError(f"{asked.patch}: cannot be read: {error.strerror}") from error
    return Changes(tuple(edits.assignment(text) for text in asked.assignments), tuple(operations), asked.model)


def _changed(drafts: Sequence[Draft], changes: Changes, *, edit: bool) -> list[Draft]:
    made = [changed(draft, changes) for draft in drafts]
    if not edit:
        return made
    if len(made) != 1:
        raise UsageError(
            "--edit changes one body", f"{len(made)} rows were chosen: use --set or --patch for all of them"
        )
    return [_edited(made[0])]


def _edited(draft: Draft) -> Draft:
    """What a person makes of the body in their editor."""
    text = edits.editable(draft.plan.target)
    with tempfile.TemporaryDirectory(prefix="gymtap-") as directory:
        file = Path(directory) / f"{draft.plan.target.original.exchange.id}.json"
        file.write_text(text, encoding="utf-8")
        _open_editor(file)
        written = file.read_text(encoding="utf-8")
    return draft if written == text else replace(draft, plan=edits.with_body(draft.plan, written), edited=True)


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), str(file)], check=False)  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        raise UsageError(f"the editor {editor!r} cannot be started: {error}", "set EDITOR") from error
    if ended.returncode:
        raise UsageError(f"the editor {editor!r} ended with {ended.returncode}: nothing was sent")


def _wanted(asked: Asked) -> Wanted:
    endpoint = base_url(asked.endpoint) if asked.endpoint else None
    return Wanted(dict(target(text) for text in asked.to), endpoint, asked.api_key_env)


def _stub(asked: Asked, servers: Sequence[Server]) -> Stub | None:
    if asked.stub is None:
        if asked.stub_loose or asked.stub_pass or asked.stub_listen:
            raise UsageError("nothing is stubbed", "add --stub provider")
        return None
    listen = (address(asked.stub_listen),) if asked.stub_listen else ()
    return Stub(boundaries(asked.stub, servers), asked.stub_loose, asked.stub_pass, listen)


def _live(capture: Capture) -> Path | None:
    """The capture of a tap that runs now, which sees what a replay causes: this one, or the newest."""
    if capture.info().live:
        return capture.path
    try:
        path = newest(captures_root())
        return path if Capture(path).info().live else None
    except CaptureError:
        return None


def _new_capture() -> Path:
    """Beside the captures, not among them: the newest capture stays the run's own."""
    return fresh(captures_root() / "replays", time.time_ns())
