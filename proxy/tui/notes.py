"""Marks and comments on rows, kept in the capture's sidecar: `notes.json` in its directory, or beside a bundle.

The capture itself is never written to: it is evidence. A sidecar that cannot be read or written is told, and the marks
then live as long as the screen does.
"""

from pathlib import Path

import orjson
from pydantic import ValidationError

from gymtap.schemas._model import Model


class Note(Model):
    """What a person put to a row; `comment` is empty where there is none."""

    marked: bool = False
    comment: str = ""


NO_NOTE = Note()


class Notes:
    """The notes of one capture, by the row's label with its agent (`12.3~agent`)."""

    def __init__(self, capture: Path) -> None:
        self.file = capture / "notes.json" if capture.is_dir() else capture.with_name(f"{capture.name}.notes.json")
        self.problem = ""
        self._notes: dict[str, Note] = {}
        try:
            told = orjson.loads(self.file.read_bytes())
            self._notes = {name: Note.model_validate(note) for name, note in told["rows"].items()}
        except FileNotFoundError:
            pass
        except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError) as error:
            self.problem = f"{self.file.name} cannot be read, so it is left alone: {error}"

    def of(self, name: str) -> Note:
        """The note of that row."""
        return self._notes.get(name, NO_NOTE)

    def put(self, name: str, note: Note) -> None:
        """Note it; nothing is written here."""
        if note == NO_NOTE:
            self._notes.pop(name, None)
        else:
            self._notes[name] = note

    def save(self) -> None:
        """Write the sidecar whole. Raises OSError. A sidecar that could not be read is never overwritten."""
        if self.problem:
            return
        document = {"rows": {name: note.model_dump(mode="json") for name, note in sorted(self._notes.items())}}
        new = self.file.with_name(f".{self.file.name}.new")
        new.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        new.replace(self.file)

    def __len__(self) -> int:
        return len(self._notes)
