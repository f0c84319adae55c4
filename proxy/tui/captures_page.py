"""What there is to look at, newest first: runs, then what replays have kept. Enter leaves this capture for another."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from gymtap.proxy.store import captures, captures_root
from gymtap.proxy.tui.text_page import TextPage
from gymtap.proxy.views.marks import FAILED_STYLE, OPEN_STYLE
from gymtap.proxy.views.plain import one_line, printable
from gymtap.proxy.views.words import age_ms, counted, duration
from gymtap.schemas import CaptureInfo

_NAME_CELLS = 23
_AGE_CELLS = 12

type Targeted = tuple[Text, str | None]


def listed() -> list[Targeted]:
    """Every capture, with its path."""
    root = captures_root()
    found = list(_of(root))
    replays = list(_of(root / "replays"))
    return [*found, *([(Text("replays", "bold"), None), *replays] if replays else [])] or [
        (Text(f"no captures in {root}"), None)
    ]


def _of(root: Path) -> Iterator[Targeted]:
    for info in captures(root):
        yield _line(info), info.path


def _line(info: CaptureInfo) -> Text:
    name = Path(info.path).name
    age = duration(age_ms(info.created_ns, time.time_ns()))
    line = Text.assemble((printable(name).ljust(_NAME_CELLS), "bold"), f"{age} ago".rjust(_AGE_CELLS), no_wrap=True)
    line.append(f"  {counted(info.rows, 'row')}")
    line.append(f", {info.failed_rows:,} failed" if info.failed_rows else "", FAILED_STYLE)
    line.append(f", {counted(len(info.gaps), 'gap')}" if info.gaps else "", FAILED_STYLE)
    line.append("  … live" if info.live else "", OPEN_STYLE)
    return line.append(f"  {one_line(' '.join(info.command))}", "dim")


class CapturesPage(TextPage):
    """The list."""

    def __init__(self) -> None:
        super().__init__("captures: Enter opens one", lambda: asyncio.to_thread(listed))

    def open_target(self) -> None:
        """Open the capture of the cursor's line."""
        if (path := self.target) is not None:
            self.tui.exit(Path(path))
