"""`gymtap tree`: a row's calls, from `/run` to the provider."""

import time
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import CaptureOption, JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from gymtap.proxy.store import Capture
    from gymtap.proxy.views.call_tree import CallTree, Node
    from gymtap.schemas import Exchange, Finding, Row


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tree")(_tree)


def _tree(
    row: Annotated[
        str, typer.Argument(metavar="ROW", help="A row (12.3, 12.3a1, r2:12.3, @id, 12.3~agent) or an exchange in it.")
    ],
    *,
    capture: CaptureOption = None,
    attempts: Annotated[bool, typer.Option("--attempts", help="Give every retry a line of its own.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a row's call tree: every call it caused, and how each went."""
    from gymtap.proxy.cli.choose import open_capture

    opened = open_capture(capture)
    seen = see(opened, row, fold=not attempts)
    if as_json:
        screen.write_json(_document(opened, seen))
        return
    show_tree(screen.out(), seen)
    if (failure := seen.deepest_failure) is not None:
        screen.hint(f"show {failure}", capture)


@dataclass(frozen=True)
class Seen:
    """A row (None where the exchange that was named has none), its exchanges, their tree, and what they answered.

    `deepest_failure` is the id of the exchange to look at first, the one that `gymtap why` blames; None where none is.
    """

    row: "Row | None"
    exchanges: "list[Exchange]"
    tree: "CallTree"
    marked: str | None
    messages: dict[str, str]
    findings: "dict[str, list[Finding]]"
    deepest_failure: str | None


def see(capture: "Capture", name: str, *, fold: bool = True) -> Seen:
    """Read a row's tree, by its label or by an exchange in it. Raises UsageError and CaptureError."""
    from gymtap.proxy.views.answers import message_of
    from gymtap.proxy.views.call_tree import call_tree

    row, exchanges, marked = _find(capture, name)
    tree = call_tree(exchanges, row.root if row else None, fold=fold, rowless=row is None)
    messages = {node.exchange.id: message_of(capture, node.exchange) for node in tree.walk() if node.blamed}
    return Seen(row, exchanges, tree, marked, messages, _findings(capture, row, exchanges), _blamed(capture, exchanges))


def _blamed(capture: "Capture", exchanges: "list[Exchange]") -> str | None:
    """The exchange at fault, as the diagnosis sees it."""
    from gymtap.proxy.diagnose import diagnose
    from gymtap.proxy.diagnose.capture import material_of

    return diagnose(material_of(capture, exchanges, now_ns=time.time_ns())).exchange


def _findings(capture: "Capture", row: "Row | None", exchanges: "list[Exchange]") -> "dict[str, list[Finding]]":
    """What checks said, by exchange."""
    found: dict[str, list[Finding]] = {}
    if row is not None:
        said = capture.findings(row=row.key)
    else:
        said = chain.from_iterable(capture.findings(exchange=one.id) for one in exchanges)
    for finding in said:
        found.setdefault(finding.exchange or "", []).append(finding)
    return found


def _find(capture: "Capture", name: str) -> "tuple[Row | None, list[Exchange], str | None]":
    """The row, its exchanges, and the exchange that was named. An exchange of no row comes with its own tree."""
    from gymtap.proxy.cli.choose import is_exchange_id, row_of
    from gymtap.proxy.views.call_tree import connected

    row, marked = row_of(capture, name), name if is_exchange_id(name) else None
    if row is None:
        return None, connected(capture.exchange(name), capture.exchanges(attributed=False)), marked
    return row, list(capture.exchanges(row=row.key)), marked


def _document(capture: "Capture", seen: Seen) -> dict[str, Any]:
    return {
        "capture": str(capture.path),
        "gaps": [gap.model_dump(mode="json") for gap in capture.gaps()],
        "label": seen.row.key.label if seen.row else None,
        "row": seen.row.model_dump(mode="json") if seen.row else None,
        "marked": seen.marked,
        "deepest_failure": seen.deepest_failure,
        "messages": seen.messages,
        "findings": [one.model_dump(mode="json") for found in seen.findings.values() for one in found],
        "tree": [_branch(node) for node in seen.tree.roots],
        "orphans": [_branch(node) for node in seen.tree.orphans],
        "exchanges": [exchange.model_dump(mode="json") for exchange in seen.exchanges],
    }


def _branch(node: "Node") -> dict[str, Any]:
    return {"attempts": [one.id for one in node.attempts], "calls": [_branch(child) for child in node.children]}


def show_tree(out: "Console", seen: Seen) -> None:
    """Draw a heading and the tree."""
    from gymtap.proxy.views.tree_view import TreeView, row_heading

    now_ns = time.time_ns()
    if seen.row is not None:
        out.print(row_heading(seen.row, now_ns, len(seen.exchanges)))
    out.print(TreeView(seen.tree, seen.messages, now_ns, seen.marked, seen.findings).drawn())
