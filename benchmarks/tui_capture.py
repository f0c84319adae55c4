"""Makes a capture of any size for benchmarks of the terminal UI: the demo's rows, copied with times of their own."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from gymtap.proxy.demo.play import play

_ROW_EVERY_NS = 20_000_000


def make(directory: Path, exchanges: int) -> int:
    """Write a capture of at least `exchanges` exchanges into `directory`; how many there are."""
    asyncio.run(play(directory))
    (file,) = directory.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        (template,) = connection.execute("SELECT max(CAST(substr(id, 2) AS INTEGER)) FROM exchanges").fetchone()
        (rows,) = connection.execute("SELECT max(id) FROM rows").fetchone()
        connection.execute("CREATE TEMP TABLE one AS SELECT * FROM exchanges WHERE row IS NOT NULL")
        connection.execute("CREATE TEMP TABLE one_rows AS SELECT * FROM rows")
        (kept,) = connection.execute("SELECT count(*) FROM one").fetchone()
        for copy in range(1, exchanges // kept + 1):
            _copy(connection, copy, copy * template, copy * rows)
        connection.commit()
        (total,) = connection.execute("SELECT count(*) FROM exchanges").fetchone()
        return int(total)


def _copy(connection: sqlite3.Connection, copy: int, ids: int, rows: int) -> None:
    connection.execute(
        "INSERT INTO rows SELECT id + ?, run, task + ?, rollout, attempt, rollout_id, agent FROM one_rows", (rows, rows)
    )
    connection.execute(
        "INSERT INTO exchanges SELECT 'a' || (CAST(substr(id, 2) AS INTEGER) + ?), server, kind, call, state, failed,"
        " started_ns + ?, duration_ms, status, reward, error, caller,"
        " CASE WHEN parent IS NULL THEN NULL ELSE 'a' || (CAST(substr(parent, 2) AS INTEGER) + ?) END,"
        " attempt, row + ?, attribution, record, changed + ? FROM one",
        (ids, copy * 20 * _ROW_EVERY_NS, ids, rows, ids),
    )


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), int(sys.argv[2])))
