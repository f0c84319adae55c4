"""The capture format on disk: tables, format version, migrations, and the journal mode of a directory.

A file of an older format is never changed by reading it: its reader migrates a private copy in memory.
The format version is apart from the release; docs/capture-format.md describes the tables.
"""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gymtap.proxy.core.errors import CaptureError
from gymtap.schemas import FORMAT_VERSION

SUFFIX = ".sqlite"

CONTRACT_KEY = "contract:"
"""In `meta`, before a server's name: what is known of its OpenAPI document (a `ServerContract`)."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE servers (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, listen TEXT NOT NULL, upstream TEXT NOT NULL);
CREATE TABLE rows (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, task INTEGER, rollout INTEGER, attempt INTEGER NOT NULL,
    rollout_id TEXT, agent TEXT);
CREATE TABLE exchanges (
    id TEXT PRIMARY KEY, server TEXT NOT NULL, kind TEXT NOT NULL, call TEXT NOT NULL, state TEXT NOT NULL,
    failed INTEGER NOT NULL, started_ns INTEGER NOT NULL, duration_ms REAL, status INTEGER, reward REAL, error TEXT,
    caller TEXT, parent TEXT, attempt INTEGER NOT NULL, row INTEGER, attribution TEXT,
    record TEXT NOT NULL, changed INTEGER NOT NULL);
CREATE INDEX exchanges_by_start ON exchanges (started_ns);
CREATE INDEX exchanges_by_row ON exchanges (row, failed);
CREATE INDEX exchanges_by_change ON exchanges (changed);
CREATE INDEX runs ON exchanges (row) WHERE call = 'run';
CREATE INDEX open_exchanges ON exchanges (id) WHERE state = 'open';
CREATE TABLE bodies (
    digest BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, spool INTEGER,
    base BLOB, prefix_bytes INTEGER, suffix_bytes INTEGER, data BLOB);
CREATE TABLE segments (
    spool INTEGER NOT NULL, number INTEGER NOT NULL, exchange TEXT NOT NULL, side TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (spool, number));
CREATE INDEX segments_by_exchange ON segments (exchange);
CREATE TABLE findings (id INTEGER PRIMARY KEY, exchange TEXT, rule TEXT NOT NULL, finding TEXT NOT NULL);
CREATE INDEX findings_by_exchange ON findings (exchange);
CREATE TABLE gaps (id INTEGER PRIMARY KEY, name TEXT UNIQUE, gap TEXT NOT NULL);
"""

type Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: Mapping[int, Migration] = MappingProxyType({})
"""From a format version to the step that makes the next one of it. Format 1 is the first."""

_NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs",
        "panfs", "smb3", "smbfs", "virtiofs", "vastnfs", "wekafs",
    }
)  # fmt: skip


def migrate(connection: sqlite3.Connection, version: int, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
    """Bring an older file's tables to this release's format. Raises CaptureError where a step is missing."""
    for step in range(version, FORMAT_VERSION):
        if step not in migrations:
            raise CaptureError(f"capture format {step} is no longer readable", "read it with the gymtap that wrote it")
        migrations[step](connection)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(FORMAT_VERSION),))


def file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that holds `directory`, given the text of /proc/mounts; "" if it is not there."""
    place = str(directory)
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind


def is_network(kind: str) -> bool:
    """Whether shared memory, which WAL needs, cannot be trusted on that type of file system."""
    return kind in _NETWORK_FILE_SYSTEMS or kind.startswith("fuse")


def journal_mode(directory: Path, mounts_file: Path = Path("/proc/mounts")) -> str:
    """`WAL` on a local disk; `TRUNCATE` on a network file system, where WAL may corrupt (sqlite.org/wal.html)."""
    try:
        mounts = mounts_file.read_text(errors="replace")
    except OSError:
        return "WAL"
    return "TRUNCATE" if is_network(file_system(directory.resolve(), mounts)) else "WAL"
