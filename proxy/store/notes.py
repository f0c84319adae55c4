"""Marks and comments of people, kept in the capture's sidecar: `notes.json` in its directory, or beside a bundle.

The capture itself is never written to: it is evidence. A sidecar that cannot be read is told and left alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from gymtap.schemas._model import Model


class Note(Model):
    """What a person put to a row or an exchange; `comment` is empty where there is none."""

    marked: bool = False
    comment: str = ""


NO_NOTE = Note()


class Notes:
    """The notes of one capture, by a row's label with its agent (`12.3~agent`) or by an exchange's id (`a42`)."""

    def __init__(self, capture: Path) -> None:
        self.file = capture / "notes.json" if capture.is_dir() else capture.with_name(f"{capture.name}.notes.json")
        self.problem = ""
        self._rows: dict[str, Note] = {}
        self._exchanges: dict[str, Note] = {}
        try:
            told = orjson.loads(self.file.read_bytes())
            self._rows, self._exchanges = _read(told["rows"]), _read(told.get("exchanges", {}))
        except FileNotFoundError:
            pass
        except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError) as error:
            self.problem = f"{self.file.name} cannot be read, so it is left alone: {' '.join(str(error).split())}"

    def of(self, name: str) -> Note:
        """The note of that row."""
        return self._rows.get(name, NO_NOTE)

    def of_exchange(self, name: str) -> Note:
        """The note of that exchange."""
        return self._exchanges.get(name, NO_NOTE)

    def put(self, name: str, note: Note) -> None:
        """Note it of a row; nothing is written here."""
        _put(self._rows, name, note)

    def put_exchange(self, name: str, note: Note) -> None:
        """Note it of an exchange; nothing is written here."""
        _put(self._exchanges, name, note)

    @property
    def marked(self) -> list[str]:
        """The rows that are marked."""
        return [name for name, note in self._rows.items() if note.marked]

    @property
    def marked_exchanges(self) -> list[str]:
        """The exchanges that are marked."""
        return [name for name, note in self._exchanges.items() if note.marked]

    def document(self) -> dict[str, Any]:
        """All of them, as the sidecar has them."""
        return {"rows": _dumped(self._rows), "exchanges": _dumped(self._exchanges)}

    def save(self) -> None:
        """Write the sidecar whole. Raises OSError. A sidecar that could not be read is never overwritten."""
        if self.problem:
            return
        new = self.file.with_name(f".{self.file.name}.new")
        new.write_bytes(orjson.dumps(self.document(), option=orjson.OPT_INDENT_2))
        new.replace(self.file)

    def __len__(self) -> int:
        """How many rows have one."""
        return len(self._rows)


def _read(told: Mapping[str, Any]) -> dict[str, Note]:
    return {name: Note.model_validate(note) for name, note in told.items()}


def _put(notes: dict[str, Note], name: str, note: Note) -> None:
    if note == NO_NOTE:
        notes.pop(name, None)
    else:
        notes[name] = note


def _dumped(notes: Mapping[str, Note]) -> dict[str, Any]:
    return {name: note.model_dump(mode="json") for name, note in sorted(notes.items())}
