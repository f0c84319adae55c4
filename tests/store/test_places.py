"""Finding captures: by path, by name, or the newest."""

from pathlib import Path

import pytest

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store import CaptureWriter, captures, captures_root, fresh, is_capture, newest, resolve


def make(root: Path, name: str, created_ns: int) -> Path:
    CaptureWriter.create(root / name, now_ns=lambda: created_ns).close()
    return root / name


def test_the_root_is_what_the_environment_says() -> None:
    assert captures_root({"GYMTAP_HOME": "/x/y", "XDG_DATA_HOME": "/z"}) == Path("/x/y")
    assert captures_root({"XDG_DATA_HOME": "/z"}) == Path("/z/gymtap/captures")
    assert captures_root({}).parts[-4:] == (".local", "share", "gymtap", "captures")


def test_no_home_directory_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # a user whom the system does not know
    with pytest.raises(CaptureError, match="no home directory") as refused:
        captures_root({})
    assert "GYMTAP_HOME" in refused.value.hint


def test_captures_are_listed_newest_first(tmp_path: Path) -> None:
    make(tmp_path, "older", 1_000)
    make(tmp_path, "newer", 2_000)
    (tmp_path / "no-capture").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.sqlite").write_bytes(b"broken")
    assert [Path(info.path).name for info in captures(tmp_path)] == ["newer", "older"]
    assert newest(tmp_path) == tmp_path / "newer"


def test_a_capture_is_resolved_from_what_people_type(tmp_path: Path) -> None:
    one, two = make(tmp_path, "20260101-1", 1), make(tmp_path, "20260102-1", 2)
    assert resolve(None, tmp_path) == two
    assert resolve("20260101-1", tmp_path) == one
    assert resolve("20260101", tmp_path) == one
    assert resolve(str(one), tmp_path / "elsewhere") == one
    with pytest.raises(CaptureError, match="2 captures begin so"):
        resolve("2026", tmp_path)
    with pytest.raises(CaptureError, match="no such capture"):
        resolve("1999", tmp_path)


def test_without_captures_the_way_out_is_said(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CaptureError, match="no captures in") as error:
            newest(root)
        assert "gymtap run" in error.value.hint
        assert list(captures(root)) == []


def test_a_fresh_name_tells_its_time_and_is_free(tmp_path: Path) -> None:
    names = {fresh(tmp_path, 1_700_000_000_000_000_000).name for _ in range(5)}
    assert all(name.startswith("20231114-221320-") for name in names)
    assert not is_capture(fresh(tmp_path, 0))
