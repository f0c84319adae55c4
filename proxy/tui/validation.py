"""What checks say about one exchange now: its row, its tools, the answer; with what they said when it was captured.

What was asked is told as well, and that the server refused it all the same where it did: nothing found is no proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.provider_answers import check_answer
from gymtap.proxy.check.requests import carriers_in
from gymtap.proxy.check.row_check import Against, RowChecker
from gymtap.proxy.check.tool_check import ToolCheck, ToolReport
from gymtap.proxy.check.vllm_rules import RULES_VERSION
from gymtap.proxy.store import Capture
from gymtap.proxy.tui.exchange_texts import findings
from gymtap.proxy.views.answers import message_of
from gymtap.proxy.views.marks import FAILED_STYLE
from gymtap.proxy.views.plain import one_line
from gymtap.proxy.views.words import counted, exchange_status
from gymtap.schemas import Call, Exchange, Finding, Severity

_GENERATIONS = frozenset({Call.RESPONSES, Call.MODEL, Call.PROVIDER, Call.JUDGE})


def validation(path: Path, name: str) -> list[Text]:
    """Every finding, once. It asks vLLM's own engines, which takes seconds: not for the reader's thread.

    Raises CaptureError.
    """
    with Capture(path) as capture:
        exchange = capture.exchange(name)
        told = _Told()
        now = list(_checked(capture, exchange, told))
        found = list(dict.fromkeys([*capture.findings(exchange=name), *now]))
        lines = list(findings(found)) or [Text("nothing to find fault with")]
        lines += _refused(capture, exchange, found)
        lines += [Text(f"asked: {what}") for what in (*_when_captured(capture, exchange), *told.asked)]
    return [*lines, *(Text(f"not asked: {what}", "dim") for what in sorted(told.not_asked))]


@dataclass
class _Told:
    """Who was asked about what, and what could not be asked, and why."""

    asked: list[str] = field(default_factory=list)
    not_asked: set[str] = field(default_factory=set)


def _when_captured(capture: Capture, exchange: Exchange) -> Iterator[str]:
    if any(one.server == exchange.server and one.digest is not None for one in capture.contracts()):
        yield f"the contract of {one_line(exchange.server)}, when it was captured"


def _refused(capture: Capture, exchange: Exchange, found: list[Finding]) -> Iterator[Text]:
    """That it failed, where no check says that it had to."""
    if exchange.failed and not any(one.severity is Severity.ERROR for one in found):
        what = f"{exchange_status(exchange)} {message_of(capture, exchange)}"
        yield Text(f"✗ {one_line(exchange.server)} refused it nevertheless: {what}", FAILED_STYLE)


def _checked(capture: Capture, exchange: Exchange, told: _Told) -> Iterator[Finding]:
    request = capture.body(exchange.request.body) or b""
    for carrier in carriers_in(exchange.id, request) if request else ():
        if isinstance(carrier, str):
            continue
        if exchange.call is Call.RUN:
            told.asked.append("Gym's rules for a row")
            yield from RowChecker(Against()).check(carrier.row)
        elif "tools" in carrier.row:
            with Engines() as engines:
                checked = ToolCheck(engines)
                checked.feed([carrier])
            told.asked.append(_engines(checked.report))
            told.not_asked |= checked.report.not_run
            yield from (met.finding for met in checked.report.findings)
        else:
            told.not_asked.add("the grammar engines: the request has no tools")
    response = exchange.response
    answer = capture.body(response.body) if response else None
    if answer and exchange.call in _GENERATIONS and not exchange.failed:
        told.asked.append("the form of the answer")
        yield from check_answer(answer)


def _engines(report: ToolReport) -> str:
    """The engines by name and version, and what they were asked about."""
    there = ", ".join(f"{name} {version}" for name, version in report.engines.items() if version is not None)
    about = f"{counted(report.tools, 'tool')}, by the rules of vLLM {RULES_VERSION}"
    return f"{there or 'no engine, for none is installed'} about {about}"
