"""How the faces say things: durations, sizes, names of calls, doubts."""

from gymtap.proxy.views.plain import one_line, printable
from gymtap.schemas import Attribution, Confidence, Exchange, Gap


def duration(ms: float | None) -> str:
    """`0.4 ms`, `38 ms`, `12.3 s`, `2 m 05 s`, `3 h 07 m`; empty for None."""
    if ms is None:
        return ""
    if ms < 9.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} m" if hours else f"{minutes} m {seconds:02d} s"


def size(count: int | None) -> str:
    """`0 B`, `438 B`, `1.2 kB`, `3.4 MB`, in powers of ten; empty for None."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95 or unit == "TB":
            break
    return f"{amount:.1f} {unit}"


def counted(number: int, noun: str) -> str:
    """`1 row`, `1,280 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def exchange_status(exchange: Exchange) -> str:
    """The status, or how the connection ended, or `open`."""
    if exchange.error is not None:
        return str(exchange.error.kind).replace("_", " ")
    if exchange.response is not None:
        return str(exchange.response.status)
    return "open"


def age_ms(started_ns: int, now_ns: int) -> float:
    """How long ago something started that has not ended; never negative."""
    return max(now_ns - started_ns, 0) / 1e6


def call_name(exchange: Exchange) -> str:
    """`verify → weather`, `tool /get_weather → weather`; what has no name of its own is called by its request."""
    call = str(exchange.call)
    path = printable(exchange.request.target.partition("?")[0])
    if call == "tool":
        call = f"tool {path}"
    elif call == "other":
        call = f"{printable(exchange.request.method)} {path}"
    return call if call == exchange.server else f"{call} → {printable(exchange.server)}"


def doubt(attribution: Attribution) -> str:
    """What to say of an attribution that is not certain: empty when it is."""
    match attribution.confidence:
        case Confidence.CERTAIN:
            return ""
        case Confidence.NONE:
            return "row unknown"
        case Confidence.AMBIGUOUS:
            labels = [key.label for key in attribution.candidates]
            return f"row is one of {', '.join(labels[:5])}{', …' if len(labels) > 5 else ''}"
        case _:
            return f"row found by {attribution.method.replace('_', ' ')}, confidence {attribution.confidence}"


def gap_line(gap: Gap) -> str:
    """`queue full, 3 exchanges, 1.2 MB, a42: the tape had no room`."""
    parts = [gap.kind.replace("_", " ")]
    parts += [counted(gap.count, "exchange")] if gap.count is not None else []
    parts += [size(gap.size_bytes)] if gap.size_bytes is not None else []
    parts += [gap.exchange] if gap.exchange else []
    return f"{', '.join(parts)}: {one_line(gap.detail)}"
