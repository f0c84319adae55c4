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

from gymtap.proxy.cli.choose import open_capture, parse_name
from gymtap.proxy.cli.replay_view import Faces
from gymtap.proxy.cli.screen import note
from gymtap.proxy.core import filter as filters
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.diagnose.causes import causes
from gymtap.proxy.diagnose.listing import listed_rows
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.bundle import contents, row_of
from gymtap.proxy.replay.options import Options, drafts, order
from gymtap.proxy.replay.prepare import Draft, read_rows
from gymtap.proxy.replay.run import Order, replay
from gymtap.proxy.store import Capture
from gymtap.proxy.store.listed import full_label, named
from gymtap.proxy.views.words import counted


@dataclass(frozen=True)
class Asked:
    """One command line: what to replay, how, and how to tell it; see `gymtap replay --help`."""

    what: str | None
    failed: bool
    cause: str | None
    wanted: str
    rows: Path | None
    edit: bool
    yes: bool
    capture: str | None
    as_json: bool
    options: Options


def run(asked: Asked) -> int:
    """Replay; the exit status: 1 when a person said no, or a request was not in the recording. Raises GymtapError."""
    bundle = Path(asked.what) if asked.what is not None and Path(asked.what).is_file() else None
    if bundle is not None and asked.capture is not None:
        raise UsageError(f"{bundle} is a capture of its own", "leave --capture out, or name a row of it")
    capture = open_capture(str(bundle) if bundle else asked.capture)
    wanted = _order(asked, capture, bundle)
    faces = Faces(wanted, yes=asked.yes, quiet=asked.as_json)
    results = asyncio.run(replay(wanted, os.environ, faces.agree, faces.progress))
    if results is None:
        return 1
    faces.tell(results, as_json=asked.as_json)
    return int(any(result.misses for result in results))


def _order(asked: Asked, capture: Capture, bundle: Path | None) -> Order:
    names = [parse_name(name) for name in _names(asked, capture, bundle)]
    made = drafts(capture, names, asked.options)
    if len(made) < len(names):
        note(f"{counted(len(names) - len(made), 'row')} without such a call left out")
    return order(capture, _edited(made) if asked.edit else made, asked.options)


def _names(asked: Asked, capture: Capture, bundle: Path | None) -> list[str]:
    """The labels and ids that the command line means."""
    ways = (asked.what, asked.failed or None, asked.cause, asked.wanted or None, asked.rows)
    if sum(way is not None for way in ways) != 1:
        raise UsageError(
            "say what to replay",
            "one of: ROW, EXCHANGE, BUNDLE, --failed, --cause FINGERPRINT, --filter EXPRESSION, --rows FILE",
        )
    if bundle is not None:
        said = contents(bundle)
        if said is None:
            raise UsageError(
                f"{bundle} is no bundle, so it does not say which row", f"name one: ROW --capture {bundle}"
            )
        return [named(row_of(said))]
    if asked.what is not None:
        return [asked.what]
    if asked.rows is not None:
        return _of_file(asked.rows)
    return _of_filter(capture, asked.wanted) if asked.wanted else _of_capture(capture, asked.cause)


def _of_file(rows: Path) -> list[str]:
    try:
        found = [named(key) for key in read_rows(rows.read_text(encoding="utf-8"))]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{rows}: cannot be read: {error}") from error
    if not found:
        raise UsageError(f"{rows} names no row", "write one a line, as in 12.3")
    return found


def _of_capture(capture: Capture, cause: str | None) -> list[str]:
    """The failed rows; all those with one cause where one is named."""
    if cause is not None:
        return _of_cause(capture, cause)
    rows = [named(row.key) for row in capture.rows(failed=True)]
    if not rows:
        raise UsageError(f"no row failed in {capture.path.name}", "`gymtap rows` lists them all")
    return rows


def _of_filter(capture: Capture, wanted: str) -> list[str]:
    found = [full_label(row.line) for row in listed_rows(capture, filters.parse(wanted))]
    if not found:
        raise UsageError(f"no row of {capture.path.name} passes", "`gymtap rows --filter` shows those that do")
    return found


def _of_cause(capture: Capture, fingerprint: str) -> list[str]:
    """The rows with the cause of that fingerprint, or its unique start; of rows that ended well, too."""
    found = [
        one for one in causes(capture, now_ns=time.time_ns(), every_row=True) if one.fingerprint.startswith(fingerprint)
    ]
    if len(found) != 1:
        many = f"{len(found)} causes begin with" if found else "no row has the cause"
        raise UsageError(f"{many} {fingerprint} in {capture.path.name}", "`gymtap causes --all` lists them")
    return found[0].rows


def _edited(made: Sequence[Draft]) -> list[Draft]:
    """What a person makes of the one body in their editor."""
    if len(made) != 1:
        raise UsageError(
            "--edit changes one body", f"{len(made)} rows were chosen: use --set or --patch for all of them"
        )
    (draft,) = made
    text = edits.editable(draft.plan.target)
    with tempfile.TemporaryDirectory(prefix="gymtap-") as directory:
        file = Path(directory) / f"{draft.plan.target.original.exchange.id}.json"
        file.write_text(text, encoding="utf-8")
        _open_editor(file)
        written = file.read_text(encoding="utf-8")
    same = written == text
    return [draft if same else replace(draft, plan=edits.with_body(draft.plan, written), edited=True)]


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), str(file)], check=False)  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        raise UsageError(f"the editor {editor!r} cannot be started: {error}", "set EDITOR") from error
    if ended.returncode:
        raise UsageError(f"the editor {editor!r} ended with {ended.returncode}: nothing was sent")
