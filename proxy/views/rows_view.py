"""Draws tables of rows and of captures: one line each, figures to the right, what went wrong last.

The last column takes what is left of the width, and on a narrow terminal figures make room for it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from types import MappingProxyType

from rich.text import Text

from gymtap.proxy.views.columns import Column, Columns
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE, row_mark
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import age_ms, counted, duration, size
from gymtap.schemas import CaptureInfo, Row, RowKey, RowState


def rows_table(rows: Sequence[Row], now_ns: int, findings: Mapping[RowKey, int] = MappingProxyType({})) -> Columns:
    """Every row on one line; the agent's column is there only when agents differ.

    `findings` is how many error findings a row's exchanges have; without any there is no such column.
    """
    agents = len({row.key.agent for row in rows}) > 1
    spare = {"time": 2, "status": 0, "reward": 0, "calls": 5, "failed": 3}
    figures = [Column(heading, right=True, spare=order) for heading, order in spare.items()]
    columns = [Column("row"), Column("state"), *figures]
    checked = any(row.key in findings for row in rows)
    columns += [Column("findings", right=True, spare=4)] if checked else []
    columns += [Column("agent", spare=1)] if agents else []
    lines = [_row_cells(row, now_ns, agents, findings.get(row.key, 0) if checked else None) for row in rows]
    return Columns([*columns, Column("error", least=24)], lines)


def _row_cells(row: Row, now_ns: int, agents: bool, findings: int | None) -> list[Text]:
    running = row.state is RowState.RUNNING
    took = age_ms(row.started_ns, now_ns) if running else row.duration_ms
    cells = [
        Text(printable(row.key.label), "bold"),
        Text.assemble(row_mark(row), f" {row.state}"),
        Text(duration(took), OPEN_STYLE if running else ""),
        Text("" if row.status is None else str(row.status), FAILED_STYLE if row.state is RowState.FAILED else ""),
        Text("" if row.reward is None else f"{row.reward:g}"),
        Text(f"{row.exchanges:,}"),
        Text(f"{row.failed_exchanges:,}" if row.failed_exchanges else "", OPEN_STYLE),
    ]
    cells += [] if findings is None else [Text(f"{findings:,}" if findings else "", FAILED_STYLE)]
    agent = [Text(printable(row.key.agent or ""))] if agents else []
    return [*cells, *agent, Text(one_line(row.error or ""), "red")]


def rows_summary(rows: Sequence[Row]) -> str:
    """`20 rows: 8 failed, 1 running, 11 done`."""
    tally = {state: sum(row.state is state for row in rows) for state in RowState}
    told = [f"{tally[state]:,} {state}" for state in (RowState.FAILED, RowState.RUNNING, RowState.DONE) if tally[state]]
    return counted(len(rows), "row") + (f": {', '.join(told)}" if told else "")


def captures_table(captures: Sequence[CaptureInfo], now_ns: int) -> Columns:
    """The newest first, as given; the command last."""
    spare = {"length": 2, "rows": 0, "failed": 0, "exchanges": 3, "size": 4}
    figures = [Column(heading, right=True, spare=order) for heading, order in spare.items()]
    started, command = Column("started (UTC)", spare=1), Column("command", least=12)
    columns = [Column("capture"), started, *figures, Column("state"), command]
    return Columns(columns, [_capture_cells(info, now_ns) for info in captures])


def _capture_cells(info: CaptureInfo, now_ns: int) -> list[Text]:
    end_ns = info.ended_ns or (now_ns if info.live else None)
    started = datetime.fromtimestamp(info.created_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return [
        Text(printable(PurePath(info.path).name), "bold"),
        Text(started),
        Text("" if end_ns is None else duration(age_ms(info.created_ns, end_ns))),
        Text(f"{info.rows:,}"),
        Text(f"{info.failed_rows:,}" if info.failed_rows else "", FAILED_STYLE),
        Text(f"{info.exchanges:,}"),
        Text(size(info.size_bytes)),
        _capture_state(info),
        Text(one_line(" ".join(info.command)), "dim"),
    ]


def _capture_state(info: CaptureInfo) -> Text:
    gaps = Text(f" {counted(len(info.gaps), 'gap')}", FAILED_STYLE) if info.gaps else Text()
    if info.live:
        return Text.assemble(("… live", OPEN_STYLE), gaps)
    if info.ended_ns is None:
        return Text.assemble(("✗ tap died", FAILED_STYLE), gaps)
    return Text.assemble(("✓", OK_STYLE), " whole" if not info.gaps else " ended", gaps)
