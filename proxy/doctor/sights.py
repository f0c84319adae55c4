"""What the doctor itself sees, as sights by rule: counts, identities, staleness, live answers, configurations.

Nothing here decides. Each function looks at one thing, and says nothing about what was not given.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gymtap.proxy.check.contract import VerifyContract
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.diagnose.evidence import read_json
from gymtap.proxy.diagnose.rows import line_flaws, row_flaws
from gymtap.proxy.diagnose.rule import Sight
from gymtap.proxy.doctor.config_files import agents_without_servers, entries, fixed_ports, unresolved
from gymtap.proxy.doctor.looked import Looked
from gymtap.proxy.doctor.run_files import lines_of
from gymtap.proxy.listening import holder_of
from gymtap.schemas import Severity

if TYPE_CHECKING:
    from gymtap.proxy.doctor.live import Live, ProviderSeen

_LOOKED_INTO = 400
_TAKEN = re.compile(r"(?:address|port)[^\n]{0,60}?[\s:(,](\d{2,5})\b[^\n]{0,40}(?:already )?in use", re.IGNORECASE)
_MOST = 5
_RULE_OF_FLAW = {
    "line": "data.line",
    "not_finite": "data.not_finite",
    "surrogate": "data.surrogate",
    "row": "data.row",
    "params": "data.row",
    "input": "data.row",
    "license": "data.license",
    "chat_tool": "data.chat_tools",
    "duplicate_tool": "data.duplicate_tools",
    "tools": "data.tool_schema",
    "schema": "data.tool_schema",
}

type Found = tuple[str, Sight]
"""A rule's id, and what it saw."""


def own_sights(looked: Looked) -> dict[str, list[Sight]]:
    """Everything that the doctor sees by itself, by rule."""
    found: dict[str, list[Sight]] = {}
    looks = (_staleness, _inputs, _outputs, _counts, _source, _configs, _ports, _servers, _live, _versions, _contracts)
    for look in looks:
        for rule, sight in look(looked):
            found.setdefault(rule, []).append(sight)
    return found


def _sight(where: str, text: str, source: str = "file", what: str | None = None) -> Sight:
    return Sight(source=source, where=where, text=text[:500], what=what or text)


# --- files --------------------------------------------------------------------------------------------------------


def _staleness(looked: Looked) -> Iterator[Found]:
    compared = looked.comparison
    if compared is not None and compared.difference is not None:
        yield "cache.stale_inputs", _sight(compared.difference.split(" ", 1)[0], compared.difference)


def _inputs(looked: Looked) -> Iterator[Found]:
    inputs = looked.inputs
    if inputs is None:
        return
    for number in [*inputs.broken, *([inputs.cut] if inputs.cut else [])][:1]:
        yield "cache.cut_line", _sight(f"{inputs.path.name}:{number}", f"{inputs.path.name}:{number} is not whole JSON")
    if len(inputs.repeats) > 1:
        counts = ", ".join(f"{tasks} with {count}" for count, tasks in sorted(inputs.repeats.items())[:_MOST])
        yield "doctor.repeats", _sight(inputs.path.name, f"tasks have different numbers of rollouts ({counts})")
    asked = looked.logs.numbers("repeats")
    if asked and len(inputs.repeats) == 1 and asked[0] not in inputs.repeats:
        has = next(iter(inputs.repeats))
        yield "doctor.repeats", _sight(inputs.path.name, f"the log says {asked[0]} rollouts a task, the file has {has}")


def _outputs(looked: Looked) -> Iterator[Found]:
    for rows in (looked.rollouts, looked.failures):
        if rows is None:
            continue
        if rows.cut is not None:
            yield "cache.cut_line", _sight(f"{rows.name}:{rows.cut}", f"{rows.name}:{rows.cut} is cut (its last line)")
        for number in rows.broken[:1]:
            text = f"{rows.name}:{number} is not JSON: a cut line and the next row in one"
            yield "cache.cut_line", _sight(f"{rows.name}:{number}", text)
    rows = looked.rollouts
    if rows is not None and rows.repeated:
        (task, rollout, *_), count = next(iter(rows.repeated.items()))
        text = f"{rows.name} holds task {task} rollout {rollout} {count} times ({len(rows.repeated)} such keys)"
        yield "cache.duplicate_keys", _sight(rows.name, text)
    if rows is not None and rows.usage_missing:
        where = f"{rows.name}:{rows.first_without_usage}"
        text = f"{where} has no response.usage ({rows.usage_missing} of {rows.responses} rows)"
        yield "cache.usage_missing", _sight(where, text)
    for path in looked.files.metrics if looked.files and rows and rows.count else ():
        if path.stat().st_size < 8 and path.read_bytes().strip() in {b"", b"[]", b"{}", b"null"}:
            yield "cache.empty_profile", _sight(path.name, f"{path.name} is empty")


def _counts(looked: Looked) -> Iterator[Found]:
    inputs = looked.inputs
    if inputs is None:
        return
    results = looked.rollouts.count if looked.rollouts else 0
    failed = looked.failures.count if looked.failures else 0
    files = looked.files
    if inputs.missing and files is not None and looked.fresh(files.output, files.failures, files.inputs):
        text = f"{inputs.count - inputs.missing} of {inputs.count} dispatched rows have ended so far"
        yield "doctor.under_way", _sight(inputs.path.name, text)
    elif inputs.missing and (results or failed):
        task, rollout = inputs.first_missing or ("?", "?")
        text = f"{inputs.missing} of {inputs.count} dispatched rows have neither a result nor a failure"
        yield "cache.counts", _sight(inputs.path.name, text, what=f"{text}, the first is task {task} rollout {rollout}")
    elif inputs.count and not results and not failed:
        text = f"{inputs.count} rows in {inputs.path.name}, and no result"
        yield "doctor.no_result", _sight(inputs.path.name, text)
    if inputs.strangers and looked.rollouts:
        text = f"{inputs.strangers} results in {looked.rollouts.name} are of rows that {inputs.path.name} does not have"
        yield "doctor.strangers", _sight(looked.rollouts.name, text)


def _source(looked: Looked) -> Iterator[Found]:
    """The source's own lines: all of them for JSON that is none, the first ones for what no consumer accepts."""
    path = looked.given.source
    if path is None:
        return
    told = 0
    for number, line, _ in lines_of(path):
        text = line.decode("utf-8", "replace")
        for flaw in line_flaws(text):
            told += 1
            where = f"{path.name}:{number}"
            yield _RULE_OF_FLAW[flaw.check], _sight(where, f"{where} {flaw.message}")
        if told >= _MOST:
            return
        if number <= _LOOKED_INTO and (value := read_json(text)) is not None:
            yield from _row(f"{path.name}:{number}", value)


def _row(where: str, row: object) -> Iterator[Found]:
    for flaw in row_flaws(row):
        pointer = f"{flaw.pointer} " if flaw.pointer else ""
        yield _RULE_OF_FLAW.get(flaw.check, "data.row"), _sight(where, f"{where} {pointer}{flaw.message}")


# --- configurations, ports, versions --------------------------------------------------------------------------------


def _configs(looked: Looked) -> Iterator[Found]:
    flaws = [
        *looked.config_flaws,
        *unresolved(looked.configs, looked.config, looked.given.environment),
        *agents_without_servers(looked.config),
    ]
    for flaw in flaws:
        yield flaw.rule if flaw.certain else "doctor.unresolved", _sight(flaw.where, flaw.text)


def _ports(looked: Looked) -> Iterator[Found]:
    """Ports that the logs say are taken, with who has them now; and ports that the configuration fixes and are taken.

    The latter not where the run that was given is up: then it has them itself.
    """
    for port in dict.fromkeys(port for line in looked.logs.lines for port in _TAKEN.findall(line)):
        holder = holder_of(int(port))
        if holder is not None:
            yield "infra.port_in_use", _sight(f"port {port}", f"port {port} is taken now by {holder}", "live")
    if looked.live is not None and looked.live.servers:
        return
    for port, name in fixed_ports(looked.config).items():
        holder = holder_of(port)
        if holder is not None:
            text = f"port {port} of {name} is taken by {holder}"
            yield "infra.port_in_use", _sight(f"port {port}", text)


def _servers(looked: Looked) -> Iterator[Found]:
    """Servers that were still waited for when the log ended."""
    ready, waited = looked.logs.numbers("servers_ready"), looked.logs.facts.get("servers_waiting")
    if ready is None or ready[0] >= ready[1] or looked.fresh(*(file.path for file in looked.logs.files)):
        return
    names = f", waiting for {waited[0]}" if waited else ""
    text = f"{ready[0]} of {ready[1]} servers ready{names} is the last that the log says"
    yield "infra.never_up", _sight("logs", text, "log")


def _versions(looked: Looked) -> Iterator[Found]:
    """Several releases of nemo_gym installed for the processes of one run, where tracebacks name their folders."""
    installed = {
        file.name.removeprefix("nemo_gym-").removesuffix(".dist-info"): folder
        for folder in sorted(looked.logs.packages)
        for file in Path(folder).glob("nemo_gym-*.dist-info")
    }
    if len(installed) > 1:
        text = "; ".join(f"nemo_gym {version} in {folder}" for version, folder in installed.items())
        yield "doctor.versions", _sight("logs", text, "log")


# --- live ---------------------------------------------------------------------------------------------------------


def _live(looked: Looked) -> Iterator[Found]:
    live = looked.live
    if live is None:
        return
    if live.head_error:
        yield "infra.head_server", _sight(str(live.head), live.head_error, "live")
    for one in live.servers:
        if not one.health.answered:
            text = f"{one.server.name} at {one.server.origin.url}: {one.health.error}"
            yield "doctor.server_down", _sight(one.server.name, text, "live")
    for provider in live.providers:
        yield from _provider(provider)


def _provider(seen: "ProviderSeen") -> Iterator[Found]:
    asked = f" (of {seen.asked_by})" if seen.asked_by else ""
    url, status = f"{seen.url}/models", seen.models.status
    if status is None or status >= 500:
        text = f"{url}{asked}: {seen.models.error or status}"
        yield "doctor.provider_down", _sight(seen.url, text, "live")
    elif status == 401:
        yield "config.api_key", _sight(seen.url, f"{url}{asked} answers 401", "live")
    elif status == 200 and seen.wanted and seen.served and seen.wanted not in seen.served:
        served = ", ".join(seen.served[:_MOST])
        text = f"{seen.asked_by} asks for {seen.wanted}, {url} lists {served}"
        yield "config.model_name", _sight(seen.url, text, "live")


# --- step 8 -------------------------------------------------------------------------------------------------------


def _contracts(looked: Looked) -> Iterator[Found]:
    """The failing row, else the first rows, against the request model of the server that they meet."""
    told = 0
    for where, row in rows_for_contracts(looked):
        contract = contract_for(looked, row)
        for finding in contract.check(row) if contract is not None else ():
            if finding.severity is Severity.ERROR and told < _MOST:
                told += 1
                at = f" at {finding.pointer}" if finding.pointer else ""
                yield "doctor.contract", _sight(where, f"{where}{at}: {finding.message}", "row")


def rows_for_contracts(looked: Looked) -> list[tuple[str, dict[str, object]]]:
    """(where, row): what a captured /run sent, else rows of the inputs."""
    captured = looked.captured
    runs = [e for e in captured.exchanges if e.call == "run"] if captured else []
    sent = [(f"{run.id} /run", run.request_json) for run in runs[:1] if isinstance(run.request_json, dict)]
    if sent or looked.inputs is None:
        return sent
    return [(f"{looked.inputs.path.name}:{number}", row) for number, row in looked.inputs.kept]


def contract_for(looked: Looked, row: dict[str, object]) -> VerifyContract | None:
    """The one contract with a /verify that the row will meet; None where none is known, or several may be meant."""
    known = dict(_known(looked))
    if len(known) == 1:
        return next(iter(known.values()))
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, dict) else None
    return known.get(_resources_of(looked.live, name) or "")


def _known(looked: Looked) -> Iterator[tuple[str, VerifyContract]]:
    documents: list[tuple[str, object]] = []
    if looked.captured is not None:
        documents += [(contract.server, read_json(text.decode())) for contract, text in looked.captured.contracts]
    if looked.live is not None:
        documents += [(one.server.name, one.document) for one in looked.live.servers if one.document is not None]
    for name, document in documents:
        try:
            yield name, VerifyContract(document, name)
        except UsageError:  # a server without /verify
            continue


def _resources_of(live: "Live | None", agent: object) -> str | None:
    for name, _, entry in entries(live.config) if live else ():
        server = entry.get("resources_server")
        if name == agent and isinstance(server, dict):
            return str(server.get("name"))
    return None
