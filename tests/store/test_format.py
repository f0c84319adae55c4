"""Where WAL is safe, and how older files become readable."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.store.format import file_system, is_network, journal_mode, migrate
from gymtap.schemas import FORMAT_VERSION

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/me/fast tmpfs rw 0 0
host:/x /mnt/with\\040space lustre rw 0 0
sshfs /mnt/s fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind", "network"),
    [
        ("/var/x", "ext4", False),
        ("/home/me/captures", "nfs4", True),
        ("/home", "nfs4", True),
        ("/homestead", "ext4", False),
        ("/home/me/fast/c", "tmpfs", False),
        ("/mnt/with space/c", "lustre", True),
        ("/mnt/s/c", "fuse.sshfs", True),
    ],
)
def test_the_innermost_mount_decides(place: str, kind: str, network: bool) -> None:
    assert file_system(Path(place), MOUNTS) == kind
    assert is_network(kind) is network


def test_a_network_file_system_gets_a_safe_journal(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/x / ext4 rw 0 0\nserver:/x {tmp_path.resolve()} nfs rw 0 0\n")
    assert journal_mode(tmp_path, mounts) == "TRUNCATE"
    assert journal_mode(Path("/"), mounts) == "WAL"


def test_where_mounts_cannot_be_read_the_disk_is_taken_for_local(tmp_path: Path) -> None:
    assert journal_mode(tmp_path, tmp_path / "nothing") == "WAL"


def test_migrations_run_in_order_up_to_this_format() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('format', '-1')")
        steps: list[int] = []
        chain = {version: (lambda _, version=version: steps.append(version)) for version in range(-1, FORMAT_VERSION)}
        migrate(connection, -1, chain)
        assert steps == list(range(-1, FORMAT_VERSION))
        assert connection.execute("SELECT value FROM meta").fetchone() == (str(FORMAT_VERSION),)


def test_a_format_without_a_step_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(CaptureError, match="format -3"):
        migrate(connection, -3, {})
