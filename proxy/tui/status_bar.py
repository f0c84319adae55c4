"""The line above every view: which capture, whether it is live, and what is known to be missing."""

from rich.text import Text

from gymtap.proxy.tui.feed import Feed
from gymtap.proxy.views.marks import FAILED_STYLE, OK_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import clipped, printable
from gymtap.proxy.views.words import counted

_NAME_CELLS = 26


def status_line(feed: Feed, width: int) -> Text:
    """`gymtap  NAME  … live 120/s · 109,300 rows · 1,000,099 exchanges · ! 2 gaps`, the gaps never cut off."""
    pulse, rows = feed.pulse, feed.rows
    state = Text(f"… live {pulse.rate:,.0f}/s", OPEN_STYLE) if pulse.live else Text("✓ ended", OK_STYLE)
    parts = [state, Text(counted(len(rows.lines), "row") + ("" if rows.complete else " so far"))]
    if pulse.gaps:
        parts.insert(1, Text(f"! {counted(len(pulse.gaps), 'gap')}", FAILED_STYLE))
    parts.append(Text(counted(pulse.exchanges, "exchange")))
    if pulse.in_flight:
        parts.append(Text(f"{len(pulse.in_flight):,} in flight", OPEN_STYLE))
    if feed.undiagnosed:
        parts.append(Text(f"{feed.undiagnosed:,} to diagnose", "dim"))
    line = Text.assemble((" gymtap ", "bold"), (clipped(printable(feed.path.name), _NAME_CELLS), ""), "  ")
    line.append_text(Text(" · ", "dim").join(parts))
    line.truncate(width, overflow="ellipsis")
    return line
