"""From files to a capture, in two passes, so that only one exchange's bodies are held at a time.

Only when all files were read is the order of time known; and a file in which nothing can be read has then left nothing
half done. What a tap recorded itself is kept as it is, under its own ids unless they are taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.imports.gather import Gathered, Section
from gymtap.proxy.imports.over_tape import record
from gymtap.proxy.imports.spool import Spool
from gymtap.proxy.store import Capture, CaptureWriter, is_capture
from gymtap.schemas import Gap

_COMMIT_BYTES = 8 * 2**20
_COMMIT_EXCHANGES = 200


@dataclass
class Imported:
    """What was imported into `path`; `left_out` says what was not, one line each; `whole`: nothing is missing."""

    path: Path
    files: int = 0
    exchanges: int = 0
    left_out: list[str] = field(default_factory=list)
    whole: bool = True


def import_files(files: Sequence[Path], capture: Path) -> Imported:
    """Read the files into a capture, a new one or one that is there; of what is damaged in them it has gaps.

    Raises UsageError for a file in which nothing can be read, before anything is made; CaptureError where none can be
    kept; GymtapError where there is no room.
    """
    with closing(Spool(_room(capture))) as spool:
        gathered = Gathered(spool)
        for file in files:
            gathered.take(file)
        kept = sum(len(section.kept) for section in gathered.sections)
        _write(gathered, capture, ("gymtap", "import", *(str(file) for file in files)))
    return Imported(
        capture,
        files=len(files),
        exchanges=kept + len(gathered.waiting),
        left_out=gathered.left_out,
        whole=not gathered.gaps,
    )


def _room(capture: Path) -> Path:
    """The folder that is there and will have the capture, or its folder, in it."""
    return next(folder for folder in capture.absolute().parents if folder.is_dir())


def _write(gathered: Gathered, capture: Path, command: Sequence[str]) -> None:
    taken = _taken(capture)
    if gathered.sections or gathered.gaps or not gathered.waiting:
        writer = CaptureWriter.create(capture, command=command)
        for section in gathered.sections:
            _keep(writer, section, gathered.spool, taken)
        for gap in gathered.gaps:
            writer.gap(gap)
        writer.close()
    if gathered.waiting:
        writer = CaptureWriter.create(capture, command=command)
        record(writer, gathered.waiting, gathered.spool, _first_free(writer.prefix, taken))


def _taken(capture: Path) -> set[str]:
    """The ids that are given already in a capture; none where there is no capture yet."""
    if not is_capture(capture):
        return set()
    with Capture(capture) as there:
        return {exchange.id for exchange in there.exchanges()}


def _keep(writer: CaptureWriter, section: Section, spool: Spool, taken: set[str]) -> None:
    names = _names(section.kept, writer.prefix, taken)
    held = held_bytes = 0
    for at in section.kept.values():
        held_bytes += _add(writer, spool.get(at), names)
        held += 1
        if held >= _COMMIT_EXCHANGES or held_bytes > _COMMIT_BYTES:
            writer.commit()
            held = held_bytes = 0
    for gap in section.gaps:
        writer.gap(_renamed(gap, names))


def _renamed(gap: Gap, names: Mapping[str, str]) -> Gap:
    return gap.model_copy(update={"exchange": names.get(gap.exchange or "", gap.exchange)})


def _add(writer: CaptureWriter, one: Kept, names: Mapping[str, str]) -> int:
    """Keep one, and give how many bytes its bodies have."""
    if one.server is not None:
        writer.listening(one.server)
    id, parent = names[one.exchange.id], one.exchange.parent  # noqa: A001 - the noun's own field name
    exchange = one.exchange.model_copy(update={"id": id, "parent": names.get(parent, parent) if parent else None})
    writer.add(exchange, one.request_body, one.response_body)
    for finding in one.findings:
        writer.finding(finding.model_copy(update={"exchange": id}))
    return len(one.request_body or b"") + len(one.response_body or b"")


def _names(kept: Iterable[str], prefix: str, taken: set[str]) -> dict[str, str]:
    """What the ids of one recording are called here: the same, unless one of them is taken; `taken` grows by them."""
    ids = list(kept)
    if taken.isdisjoint(ids):
        names = {id: id for id in ids}  # noqa: A001 - the noun's own field name
    else:
        first = _first_free(prefix, taken)
        names = {id: f"{prefix}{number}" for number, id in enumerate(ids, first)}  # noqa: A001 - the same
    taken.update(names.values())
    return names


def _first_free(prefix: str, taken: Iterable[str]) -> int:
    """The first number from which on no id with that prefix is taken."""
    ends = (id.removeprefix(prefix) for id in taken if id.startswith(prefix))  # noqa: A001 - the noun's own field name
    return max((int(end) for end in ends if end.isdigit()), default=0) + 1
