"""Contracts in a capture: what is kept of them, with several writers, in a bundle, and in captures that have none."""

from pathlib import Path

from gymtap.proxy.store import Capture, CaptureWriter

GOLDEN = Path(__file__).parents[1] / "data" / "capture-format-1"


def test_a_document_comes_back_without_its_secrets(tmp_path: Path) -> None:
    writer = CaptureWriter.create(tmp_path / "c")
    writer.contract("chaos", b'{"paths":{},"info":{"description":"Bearer sk-' + b"a" * 40 + b'"}}')
    writer.close()
    capture = Capture(tmp_path / "c")
    (contract,) = capture.contracts()
    document = capture.document(contract)
    assert document is not None
    assert document.startswith(b'{"paths":{}')
    assert b"aaaa" not in document
    capture.close()


def test_why_there_is_none_is_kept(tmp_path: Path) -> None:
    writer = CaptureWriter.create(tmp_path / "c")
    writer.contract("env", None, "404 Not Found")
    writer.close()
    capture = Capture(tmp_path / "c")
    (contract,) = capture.contracts()
    assert (contract.server, contract.digest, contract.problem) == ("env", None, "404 Not Found")
    assert capture.document(contract) is None
    capture.close()


def test_of_several_writers_the_one_that_knows_is_believed(tmp_path: Path) -> None:
    for document, problem in ((None, "refused"), (b'{"paths":{}}', ""), (None, "refused")):
        writer = CaptureWriter.create(tmp_path / "c")
        writer.contract("chaos", document, problem)
        writer.close()
    capture = Capture(tmp_path / "c")
    assert [one.problem for one in capture.contracts()] == [None]
    capture.close()


def test_a_capture_from_before_has_none() -> None:
    """The format is the same; what is not there was not known."""
    capture = Capture(GOLDEN)
    assert capture.contracts() == ()
    capture.close()
