"""What goes out comes back equal."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.diagnose.capture import diagnose_row
from gymtap.proxy.export import Chosen, Wanted
from gymtap.proxy.export.flows import write_flows
from gymtap.proxy.export.har import har
from gymtap.proxy.export.lines import exchange_lines
from gymtap.proxy.imports import import_files
from gymtap.proxy.store import Capture
from gymtap.schemas import Exchange


def contents(capture: Capture) -> list[tuple[Exchange, bytes | None, bytes | None, tuple[str, ...]]]:
    return [
        (kept.exchange, kept.request_body, kept.response_body, tuple(finding.rule for finding in kept.findings))
        for kept in Chosen(capture, Wanted())
    ]


def as_lines(capture: Capture, file: Path) -> None:
    file.write_bytes(b"".join(exchange_lines(capture, Chosen(capture, Wanted()))))


def as_flows(capture: Capture, file: Path) -> None:
    with file.open("wb") as out:
        write_flows(Chosen(capture, Wanted()), out)


@pytest.mark.parametrize("write", [as_lines, as_flows], ids=["jsonl", "mitm"])
def test_an_export_comes_back_equal(capture: Capture, tmp_path: Path, write: Callable[[Capture, Path], None]) -> None:
    """Every field of every exchange, every body, every finding: also what was redacted, coded, missing or refused."""
    write(capture, tmp_path / "out")
    back = Capture(import_files([tmp_path / "out"], tmp_path / "capture").path)
    assert contents(back) == contents(capture)
    assert [row.model_dump() for row in back.rows()] == [row.model_dump() for row in capture.rows()]
    assert set(back.servers()) == set(capture.servers())


def test_gaps_come_back(capture: Capture, tmp_path: Path) -> None:
    """What the first capture lacks, the second says too."""
    as_lines(capture, tmp_path / "out")
    back = Capture(import_files([tmp_path / "out"], tmp_path / "capture").path)
    assert back.gaps() == capture.gaps() != ()


def test_ids_that_are_taken_are_changed_together(capture: Capture, tmp_path: Path) -> None:
    """Two exports in one capture: the second has new ids, and its call tree is whole."""
    as_lines(capture, tmp_path / "out")
    import_files([tmp_path / "out"], tmp_path / "capture")
    both = Capture(import_files([tmp_path / "out"], tmp_path / "capture").path)
    found = {exchange.id: exchange for exchange in both.exchanges()}
    assert len(found) == 2 * capture.count()
    parents = [exchange.parent for exchange in found.values() if exchange.parent is not None]
    assert all(parent in found for parent in parents)


def test_a_demo_comes_back_equal(demo_capture: Path, tmp_path: Path) -> None:
    """The traffic of real servers, with its call trees, survives both formats."""
    demo = Capture(demo_capture)
    for name, write in (("jsonl", as_lines), ("mitm", as_flows)):
        write(demo, tmp_path / name)
        back = Capture(import_files([tmp_path / name], tmp_path / f"capture-{name}").path)
        assert contents(back) == contents(demo)


def test_har_comes_back_attributed(demo_capture: Path, tmp_path: Path) -> None:
    """A HAR holds no verdicts that we take back, but the tree is there, so rows are found anew."""
    demo = Capture(demo_capture)
    (tmp_path / "a.har").write_bytes(b"".join(har(Chosen(demo, Wanted()), "0")))
    back = Capture(import_files([tmp_path / "a.har"], tmp_path / "capture").path)
    assert back.count() == demo.count()

    def bodies(capture: Capture) -> list[tuple[str, str, bytes | None, bytes | None]]:
        kept: list[Kept] = list(Chosen(capture, Wanted()))
        return sorted(
            (one.exchange.server, one.exchange.request.target, one.request_body or b"", one.response_body or b"")
            for one in kept
        )

    assert bodies(back) == bodies(demo)
    assert {row.key.label: row.reward for row in back.rows()} == {row.key.label: row.reward for row in demo.rows()}


def as_har(capture: Capture, file: Path) -> None:
    file.write_bytes(b"".join(har(Chosen(capture, Wanted()), "0")))


@pytest.mark.parametrize("write", [as_lines, as_flows, as_har], ids=["jsonl", "mitm", "har"])
def test_the_same_is_said_of_every_row(
    demo_capture: Path, tmp_path: Path, write: Callable[[Capture, Path], None]
) -> None:
    """Layer, rule, cause and fingerprint of each row are those of the capture that was exported."""

    def said(capture: Capture) -> dict[str, tuple[object, ...]]:
        found = [diagnose_row(capture, row, now_ns=0) for row in capture.rows()]
        return {str(one.row): (one.layer, one.rule, one.cause, one.fingerprint, one.next_action) for one in found}

    demo = Capture(demo_capture)
    write(demo, tmp_path / "out")
    back = Capture(import_files([tmp_path / "out"], tmp_path / "capture").path)
    assert said(back) == said(demo)
    assert len({layer for layer, *_ in said(demo).values()}) > 3


def test_mitmdump_reads_and_writes_it(capture: Capture, tmp_path: Path) -> None:
    """Through a stock mitmdump, which writes the flows anew, everything comes back equal."""
    as_flows(capture, tmp_path / "out.mitm")
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", "-n", "-r", str(tmp_path / "out.mitm")]
    subprocess.run([*command, "-w", str(tmp_path / "anew.mitm")], check=True, env=os.environ | {"HOME": str(tmp_path)})
    back = Capture(import_files([tmp_path / "anew.mitm"], tmp_path / "capture").path)
    assert contents(back) == contents(capture)
