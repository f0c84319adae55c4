"""`gymtap note`: marks and comments on rows and exchanges, as the terminal UI keeps them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from gymtap.proxy.store import Capture
    from gymtap.proxy.store.notes import Notes


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("note")(_note)


def _note(
    name: Annotated[
        str | None, typer.Argument(metavar="ROW|EXCHANGE", help="A row (12.3) or an exchange (a42); all if left out.")
    ] = None,
    *,
    mark: Annotated[bool | None, typer.Option("--mark/--unmark", help="Mark it, or take its mark away.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Put a comment to it; '' removes it.")] = None,
    capture: CaptureOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, or set, marks and comments on rows and exchanges; they are kept beside what was captured."""
    from gymtap.proxy.cli.choose import open_capture
    from gymtap.proxy.core.errors import UsageError
    from gymtap.proxy.store.notes import Notes

    opened = open_capture(capture)
    notes = Notes(opened.path)
    if notes.problem:
        raise UsageError(notes.problem, "mend the file, or move it away")
    if mark is not None or comment is not None:
        if name is None:
            raise UsageError("nothing is named", "name a row or an exchange")
        _put(opened, notes, name, mark, comment)
    if as_json:
        screen.write_json({"capture": str(opened.path), **_document(opened, notes, name)})
    else:
        _show(_document(opened, notes, name))


def _put(capture: "Capture", notes: "Notes", name: str, mark: bool | None, comment: str | None) -> None:
    from gymtap.proxy.core.errors import UsageError

    noted, is_exchange = _named(capture, name)
    old = notes.of_exchange(noted) if is_exchange else notes.of(noted)
    new = old.model_copy(
        update={
            "marked": old.marked if mark is None else mark,
            "comment": old.comment if comment is None else comment.strip(),
        }
    )
    (notes.put_exchange if is_exchange else notes.put)(noted, new)
    try:
        notes.save()
    except OSError as error:
        raise UsageError(f"{notes.file} cannot be written: {error.strerror}", "a copy of the capture can") from error


def _named(capture: "Capture", name: str) -> tuple[str, bool]:
    """As notes name it, and whether it is an exchange. Raises CaptureError where it is not there."""
    from gymtap.proxy.cli.choose import is_exchange_id, parse_row
    from gymtap.proxy.store.listed import named

    if is_exchange_id(name):
        return capture.exchange(name).id, True
    return named(capture.row(parse_row(name)).key), False


def _document(capture: "Capture", notes: "Notes", name: str | None) -> dict[str, Any]:
    all_of_them = notes.document()
    if name is None:
        return all_of_them
    noted, _ = _named(capture, name)
    return {kind: {one: note for one, note in of_kind.items() if one == noted} for kind, of_kind in all_of_them.items()}


def _show(document: dict[str, Any]) -> None:
    from gymtap.proxy.views.plain import one_line

    lines = [(name, note) for of_kind in document.values() for name, note in of_kind.items()]
    for name, note in lines:
        mark = "*" if note["marked"] else " "
        screen.out().print(f"{mark} {one_line(name)}  {one_line(note['comment'])}".rstrip(), soft_wrap=True)
    if not lines:
        screen.note("nothing is noted")
