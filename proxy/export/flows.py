"""mitmproxy's flow file: each flow with its row as a comment, and failed ones marked, as mitmweb shows them."""

from collections.abc import Iterable
from typing import BinaryIO

from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.mitm.flow_file import FlowFile
from gymtap.schemas import Exchange


def write_flows(chosen: Iterable[Kept], out: BinaryIO) -> None:
    """Write them all."""
    flows = FlowFile(out)
    for kept in chosen:
        flows.add(kept, comment(kept.exchange), marked=kept.exchange.failed)


def comment(exchange: Exchange) -> str:
    """`a7 · row 12.3 · agent->model · model`; the row is left out where it is not known."""
    row = exchange.attribution.row
    parts = [exchange.id, *([f"row {row.label}"] if row else []), exchange.boundary, str(exchange.call)]
    return " · ".join(parts)
