"""What checks say about one exchange now: its row, its tools, the answer; with what they said when it was captured."""

from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.provider_answers import check_answer
from gymtap.proxy.check.requests import carriers_in
from gymtap.proxy.check.row_check import Against, RowChecker
from gymtap.proxy.check.tool_check import ToolCheck
from gymtap.proxy.store import Capture
from gymtap.proxy.tui.exchange_texts import findings
from gymtap.proxy.views.answers import body_of
from gymtap.schemas import Call, Exchange, Finding

_GENERATIONS = frozenset({Call.RESPONSES, Call.MODEL, Call.PROVIDER, Call.JUDGE})


def validation(path: Path, name: str) -> list[Text]:
    """Every finding, once. It asks vLLM's own engines, which takes seconds: not for the reader's thread.

    Raises CaptureError.
    """
    capture = Capture(path)
    exchange = capture.exchange(name)
    not_run: set[str] = set()
    found = list(dict.fromkeys([*capture.findings(exchange=name), *_checked(capture, exchange, not_run)]))
    lines = list(findings(found)) or [Text("nothing to find fault with")]
    return [*lines, *(Text(f"not asked: {what}", "dim") for what in sorted(not_run))]


def _checked(capture: Capture, exchange: Exchange, not_run: set[str]) -> Iterator[Finding]:
    request = body_of(capture, exchange.request.body) or b""
    for carrier in carriers_in(exchange.id, request) if request else ():
        if isinstance(carrier, str):
            continue
        if exchange.call is Call.RUN:
            yield from RowChecker(Against()).check(carrier.row)
        elif "tools" in carrier.row:
            with Engines() as engines:
                checked = ToolCheck(engines)
                checked.feed([carrier])
            not_run |= set(checked.report.not_run)
            yield from (met.finding for met in checked.report.findings)
    response = exchange.response
    answer = body_of(capture, response.body) if response else None
    if answer and exchange.call in _GENERATIONS and not exchange.failed:
        yield from check_answer(answer)
