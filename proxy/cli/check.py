"""`gymtap check tools` and `gymtap check rows`: contracts looked at before a rollout is spent.

Exit status: 0 nothing wrong, 1 errors found, 2 it could not be looked at (a file, or an engine that is not there).
"""

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymtap.proxy.cli import screen
from gymtap.proxy.cli.options import EnginesOption, JsonOption, SourcesArgument
from gymtap.proxy.core.errors import UsageError

if TYPE_CHECKING:
    from gymtap.proxy.check.row_check import Against, RowReport
    from gymtap.proxy.check.tool_check import ToolReport
    from gymtap.proxy.check.vllm_rules import Route

_ROUTES = ("auto", "strict_tool", "required_json", "response_format", "all")
_BACKENDS = ("auto", "xgrammar", "guidance", "outlines")
_CLEAN, _FINDINGS, _COULD_NOT = 0, 1, 2


def register(app: typer.Typer) -> None:
    """Add the command, with its two."""
    check = typer.Typer(rich_markup_mode=None, help="Check data against the servers' rules.")
    check.command("tools")(_tools)
    check.command("rows")(_rows)
    app.add_typer(check, name="check")


def _tools(
    sources: SourcesArgument,
    *,
    backend: Annotated[str, typer.Option(help=f"vLLM's structured-output backend: {', '.join(_BACKENDS)}.")] = "auto",
    path: Annotated[str, typer.Option(help=f"How schemas reach vLLM: {', '.join(_ROUTES)}.")] = "auto",
    vllm: Annotated[str, typer.Option(metavar="VERSION", help="The vLLM release that will serve.")] = "0.32",
    no_grammar: Annotated[bool, typer.Option("--no-grammar", help="Leave vLLM's engines out.")] = False,
    engines_python: EnginesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every distinct tool and tool list: structure, JSON Schema, and vLLM's grammar verdict."""
    from gymtap.proxy.captured.requests import requests_of
    from gymtap.proxy.check.engines import Engines
    from gymtap.proxy.check.tool_check import ToolCheck
    from gymtap.proxy.check.vllm_rules import Backend

    _among("--backend", backend, _BACKENDS)
    _about_version(vllm)
    with Engines(python=engines_python) as engines:
        check = ToolCheck(None if no_grammar else engines, Backend(backend), _routes(path))
        for source in sources:
            check.feed(requests_of(Path(source)))
    report = check.report
    for source in sources:
        _add_routing(report, Path(source))
    if as_json:
        screen.write_json(report.as_json())
    else:
        _draw(report)
    if report.not_run and not as_json:
        screen.note("! not every verdict could be found out; `gymtap engines install` gets the engines, without torch")
    raise typer.Exit(_status(report))


def _add_routing(report: "ToolReport", source: Path) -> None:
    """Of a capture, also what its tools miss at its servers, and what its models' calls went into."""
    from gymtap.proxy.captured.routing import routing
    from gymtap.proxy.store import Capture, is_capture

    if is_capture(source):
        with Capture(source) as capture:
            for said in routing(capture):
                report.add(said.finding, said.where)


def _status(report: "ToolReport") -> int:
    if report.errors():
        return _FINDINGS
    return _COULD_NOT if report.not_run or report.unread else _CLEAN


def _rows(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.jsonl|CAPTURE...",
            help="JSON Lines of rows, of any size (- is what is piped in), or a capture of a run.",
        ),
    ],
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Of a capture, only the rows that failed.")] = False,
    server: Annotated[str | None, typer.Option(metavar="URL", help="The resources server that will verify.")] = None,
    openapi: Annotated[str | None, typer.Option(metavar="FILE", help="Its OpenAPI document, saved.")] = None,
    capture: Annotated[str | None, typer.Option(metavar="CAPTURE", help="A capture that met the server.")] = None,
    of: Annotated[str | None, typer.Option(metavar="SERVER", help="Which server of --capture.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODULE:CLASS", help="Its pydantic request model.")] = None,
    server_dir: Annotated[str | None, typer.Option(metavar="FOLDER", help="Its folder, with app.py.")] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="The interpreter with Gym that loads --model or --server-dir.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as cores if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check rows: JSON, shape, identities, tools, and the request model of the server they will meet."""
    from gymtap.proxy.captured.contracts import save_contract
    from gymtap.proxy.check.row_check import Against

    named = [option for option in (server, openapi, capture, model, server_dir) if option is not None]
    if len(named) > 1:
        raise UsageError(
            "rows are held against one model at a time", "--server, --openapi, --capture, --model or --server-dir"
        )
    if server_dir is not None and not Path(server_dir).is_dir():
        raise UsageError(f"{server_dir}: no such folder", "--server-dir takes a resources server's folder")
    with tempfile.TemporaryDirectory(prefix="gymtap-contract-") as folder:
        document = openapi if capture is None else str(save_contract(capture, of, Path(folder)))
        against = Against(openapi=document, server=server, model=model or server_dir, python=python)
        checks = [each for file in files for each in _files(file, against, Path(folder), failed=failed)]
        reports = [(_checked(each, jobs, quiet=as_json), each.labels) for each in checks]
    if as_json:
        screen.write_json([_report_json(report, labels) for report, labels in reports])
    errors = sum(report.errors for report, _labels in reports)
    raise typer.Exit(_FINDINGS if errors else _CLEAN)


@dataclass(frozen=True)
class _File:
    """A file to check, and against what. Of a capture `labels` are the rows of its lines, and `name` is the capture."""

    path: Path
    against: "Against"
    name: str
    labels: Sequence[str] = ()


def _files(source: Path, against: "Against", folder: Path, *, failed: bool) -> list[_File]:
    """The file itself, or the rows of a capture: each against what the capture knows of its server, if nothing else."""
    from gymtap.proxy.captured.contracts import save_contract
    from gymtap.proxy.captured.rows import captured_rows
    from gymtap.proxy.check.row_check import Against
    from gymtap.proxy.store import Capture, is_capture

    if not is_capture(source):
        return [_File(Path("/dev/stdin") if str(source) == "-" else source, against, str(source))]
    made = []
    place = Path(tempfile.mkdtemp(dir=folder))
    with Capture(source) as capture:
        for rows in captured_rows(capture, place, failed=failed):
            known = against
            if against == Against() and rows.server is not None:
                with contextlib.suppress(UsageError):  # the tap learned nothing of this server
                    known = Against(openapi=str(save_contract(str(source), rows.server, place)))
            made.append(_File(rows.file, known, source.name, rows.labels))
    if not made:
        screen.note(f"{source.name} has no rows" + (" that failed" if failed else ""))
    return made


def _report_json(report: "RowReport", labels: Sequence[str]) -> dict[str, Any]:
    """The documented JSON; of a capture's rows, their labels beside the lines."""
    said = report.as_json()
    if labels:
        for group in said["groups"]:
            group["rows"] = [labels[line - 1] for line in group["lines"]]
    return said


def _checked(file: _File, jobs: int | None, *, quiet: bool) -> "RowReport":
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn

    from gymtap.proxy.check.row_check import check_rows

    size = file.path.stat().st_size if file.path.is_file() else 0
    with screen.bar(BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(Path(file.name).name, total=size)
        report = check_rows(file.path, file.against, jobs=jobs, progress=lambda done: bar.advance(task, done))
    report.file = file.name
    if not quiet:
        _draw_rows(report, file.labels)
    return report


def _draw_rows(report: "RowReport", labels: Sequence[str]) -> None:
    from gymtap.proxy.views.finding_view import finding_lines

    console = screen.out()
    for group in report.groups:
        places = [labels[number - 1] if labels else str(number) for number in group.lines]
        where = ("row " if labels else "line ") + ", ".join(places) + (", …" if group.count > len(places) else "")
        for line in finding_lines(group.finding, where, times=group.count):
            console.print(line)
    if report.total.more_kinds:
        screen.note(f"! {report.total.more_kinds:,} findings of yet other kinds are not shown")
    rate = f"{report.total.rows / report.seconds:,.0f} rows/s" if report.seconds else ""
    against = f" against {report.against}" if report.against else ""
    console.print(f"{report.file}: {report.total.rows:,} rows{against}, {report.errors:,} errors ({rate})")


def _among(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"{option} {value}: not one of {', '.join(known)}")


def _routes(path: str) -> "tuple[Route, ...] | None":
    from gymtap.proxy.check.vllm_rules import Route

    _among("--path", path, _ROUTES)
    if path == "auto":
        return None
    return tuple(Route) if path == "all" else (Route(path),)


def _about_version(wanted: str) -> None:
    from gymtap.proxy.check.vllm_rules import RULES_VERSION, about_release

    if (differs := about_release(wanted)) is not None:
        screen.note(f"! the rules are those of vLLM {RULES_VERSION}; {differs}")


def _draw(report: "ToolReport") -> None:
    from gymtap.proxy.views.finding_view import finding_lines

    console = screen.out()
    for met in report.findings:
        more = f" (and {met.count - 1:,} more)" if met.count > 1 else ""
        for drawn in finding_lines(met.finding, met.where + more):
            console.print(drawn)
    for line in report.unread:
        screen.note(f"! {line}")
    for line in sorted(report.not_run):
        screen.note(f"! not checked: {line}")
    counts = f"{report.tools:,} tools in {report.requests:,} requests: {report.distinct_tools:,} distinct"
    console.print(f"{counts}, {len(report.schemas):,} schemas, {report.errors():,} errors")
