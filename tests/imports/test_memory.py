"""How much of a recording is held at a time, and where the rest waits."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.recorded import Foreign
from gymtap.proxy.imports import read
from gymtap.proxy.imports.spool import Spool

BODY_BYTES = 2**19
COUNT = 60
REQUEST = {"method": "POST", "url": "http://x/run", "postData": {"text": "x" * BODY_BYTES}}
ENTRY = {"startedDateTime": "2026-11-30T02:29:14Z", "request": REQUEST, "response": {"status": 200}}
LINE = {"hop": "agent", "method": "POST", "path": "/run", "t0": 1.0, "req_body": "x" * BODY_BYTES}
ITEM = {"boundary": "a->b", "request": {"url": "http://x/run", "body_text": "x" * BODY_BYTES}}


def as_har(file: Path) -> None:
    file.write_text(json.dumps({"log": {"entries": [ENTRY] * COUNT}}))


def as_lines(file: Path) -> None:
    file.write_text(f"{json.dumps(LINE)}\n" * COUNT)


def as_report(file: Path) -> None:
    file.write_text(json.dumps({"exchanges": [ITEM] * COUNT}, indent=1))


@pytest.mark.parametrize("write", [as_har, as_lines, as_report])
def test_a_few_bodies_are_held_at_a_time(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Reading a recording takes the memory of a few of its exchanges, however many there are."""
    file = tmp_path / "long"
    write(file)
    tracemalloc.start()
    try:
        held = [counted(item) for one in read(file) for item in one.items]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held == [BODY_BYTES] * COUNT
    assert peak_bytes < COUNT * BODY_BYTES / 2


def counted(item: object) -> int:
    assert isinstance(item, Foreign)
    return len(item.request_body)


def test_what_waits_is_in_no_folder(tmp_path: Path) -> None:
    """Values come back in any order, from memory and from a file that nobody sees."""
    spool = Spool(tmp_path, memory_bytes=100)
    values = [(number, b"x" * number) for number in range(50)]
    places = [spool.put(value) for value in values]
    assert list(tmp_path.iterdir()) == []
    assert [spool.get(at) for at in reversed(places)] == values[::-1]
    spool.close()


def test_no_room(tmp_path: Path) -> None:
    """Where nothing can wait, that is said with its way out."""
    spool = Spool(tmp_path / "gone", memory_bytes=100)
    with pytest.raises(GymtapError, match="no room"):
        spool.put(b"x" * 200)
    spool.close()
