"""`gymtap preflight`: a dataset's tools against the endpoint that will serve them, one token each.

Exit status: 0 all accepted, 1 something refused, 2 it could not be asked.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import JsonOption, SourcesArgument
from gymtap.proxy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymtap.proxy.preflight.sweep import LiveReport, Result

_CLEAN, _FINDINGS, _COULD_NOT = 0, 1, 2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("preflight")(_preflight)


def _preflight(
    sources: SourcesArgument,
    *,
    endpoint: Annotated[str, typer.Option(metavar="URL", help="The provider, as in policy_base_url (ends in /v1).")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model's name; the first one served.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests at a time.")] = 8,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for an answer.")] = 120.0,
    no_grammar: Annotated[bool, typer.Option("--no-grammar", help="Leave our own verdicts out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a live endpoint about every distinct tool list of a dataset, as Gym would, for one token each."""
    import asyncio

    key = _key(api_key_env)
    asking = _sweep(
        sources, endpoint, model=model, key=key, concurrency=concurrency, timeout_s=timeout_s, no_grammar=no_grammar
    )
    report = asyncio.run(asking)
    if as_json:
        screen.write_json(report.as_json())
    else:
        _draw(report)
    raise typer.Exit(_status(report))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(
            f"--api-key-env {variable}: that variable is not set", "export it; the key itself is no option"
        )
    return os.environ[variable]


async def _sweep(
    sources: list[str],
    url: str,
    *,
    model: str | None,
    key: str | None,
    concurrency: int,
    timeout_s: float,
    no_grammar: bool,
) -> "LiveReport":
    from contextlib import nullcontext
    from itertools import chain

    from gymtap.proxy.captured.requests import requests_of
    from gymtap.proxy.check.engines import Engines
    from gymtap.proxy.preflight.endpoint import Endpoint
    from gymtap.proxy.preflight.plan import plan
    from gymtap.proxy.preflight.sweep import sweep

    async with Endpoint(url, api_key=key, timeout_s=timeout_s) as endpoint:
        served = await endpoint.models()
        name = model or (served[0] if isinstance(served, list) and served else "")
        made = plan(chain.from_iterable(requests_of(Path(source)) for source in sources), name)
        with nullcontext() if no_grammar else Engines() as engines, _bar(len(made.asked)) as advance:
            return await sweep(endpoint, made, name, served, engines=engines, concurrency=concurrency, progress=advance)


@contextmanager
def _bar(total: int) -> "Iterator[Callable[[], None]]":
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    with screen.bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("preflight", total=total)
        yield lambda: bar.advance(task)


def _status(report: "LiveReport") -> int:
    if any(state.fatal for state in report.states) or (report.plan.unread and not report.plan.asked):
        return _COULD_NOT
    if report.states or any(not result.ok for result in report.results):
        return _FINDINGS
    return _COULD_NOT if report.plan.unread else _CLEAN


def _draw(report: "LiveReport") -> None:
    from gymtap.proxy.views.finding_view import finding_lines

    out = screen.out()
    for found, result in report.findings:
        for drawn in finding_lines(found, _where(result)):
            out.print(drawn)
    for line in report.plan.unread:
        screen.note(f"! {line}")
    accepted = sum(result.ok for result in report.results)
    told = f"{report.endpoint} {report.model}: {accepted:,} of {len(report.plan.asked):,} distinct requests accepted"
    others = ", ".join(f"{count:,} {name}" for name, count in sorted(report.outcomes.items()) if name != "accepted")
    out.print(told + (f"; {others}" if others else ""))
    different = [result for result in report.results if result.agrees is False]
    if different:
        screen.note(f"! our verdict differs from the endpoint's for {len(different):,} of them (see --json)")
    if report.plan.without:
        screen.note(f"{report.plan.without:,} of {report.plan.rows:,} rows have nothing that a grammar is made of")


def _where(result: "Result | None") -> str:
    if result is None:
        return ""
    return result.asked.where + (f" (and {result.asked.count - 1:,} more)" if result.asked.count > 1 else "")
