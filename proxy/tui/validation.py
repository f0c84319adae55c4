"""What checks say about one exchange now: its row, its tools, the answer; with what they said when it was captured."""

from collections.abc import Iterator

from rich.text import Text

from gymtap.proxy.check.provider_answers import check_answer
from gymtap.proxy.check.requests import carriers_in
from gymtap.proxy.check.row_check import Against, RowChecker
from gymtap.proxy.check.tool_check import ToolCheck
from gymtap.proxy.store import Capture
from gymtap.proxy.tui.exchange_texts import findings
from gymtap.proxy.views.answers import body_of
from gymtap.schemas import Call, Exchange, Finding

_GENERATIONS = frozenset({Call.RESPONSES, Call.MODEL, Call.PROVIDER, Call.JUDGE})


def validation(capture: Capture, name: str) -> list[Text]:
    """Every finding, once. Raises CaptureError."""
    exchange = capture.exchange(name)
    found = list(dict.fromkeys([*capture.findings(exchange=name), *_checked(capture, exchange)]))
    return list(findings(found)) or [Text("nothing to find fault with")]


def _checked(capture: Capture, exchange: Exchange) -> Iterator[Finding]:
    request = body_of(capture, exchange.request.body) or b""
    for carrier in carriers_in(exchange.id, request) if request else ():
        if isinstance(carrier, str):
            continue
        if exchange.call is Call.RUN:
            yield from RowChecker(Against()).check(carrier.row)
        elif "tools" in carrier.row:
            checked = ToolCheck(None)
            checked.feed([carrier])
            yield from (met.finding for met in checked.report.findings)
    response = exchange.response
    answer = body_of(capture, response.body) if response else None
    if answer and exchange.call in _GENERATIONS and not exchange.failed:
        yield from check_answer(answer)
