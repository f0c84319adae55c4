"""Draws a finding of a check: how grave it is and what is wrong, then where, and what to do about it."""

from collections.abc import Iterator

from rich.text import Text

from gymtap.proxy.views.marks import OK_STYLE, SEVERITY
from gymtap.proxy.views.plain import printable
from gymtap.schemas import Finding

_INDENT = " " * 8


def finding_lines(finding: Finding, where: str = "", *, times: int = 1) -> Iterator[Text]:
    """One finding. An empty `where` is left out; `times` is how often it was found, told where that is not once."""
    style = SEVERITY[finding.severity][1]
    often = f"{times:,} times: " if times > 1 else ""
    yield Text.assemble((f"{finding.severity:<8}", style), f"{finding.rule}  {often}{printable(finding.message)}")
    if where:
        yield Text(f"{_INDENT}at {printable(where)}  {printable(finding.pointer or '')}".rstrip())
    if finding.expected is not None:
        yield Text(f"{_INDENT}expected {printable(finding.expected)}")
    if finding.found is not None:
        yield Text(f"{_INDENT}found {printable(finding.found)}")
    if finding.fix is not None:
        yield Text(f"{_INDENT}fix: {printable(finding.fix)}", OK_STYLE)
