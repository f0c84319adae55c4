"""Cache and resume: what was kept from an earlier run does not fit this one."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from gymtap.proxy.diagnose.evidence import SeenFile, listed, read_json
from gymtap.proxy.diagnose.rule import Rule, Sight, Strength, View, said
from gymtap.schemas import Layer, Severity

_OWN_FIELDS = re.compile(r"^_ng_|^agent_ref$")


def _materialized(view: View) -> list[SeenFile]:
    return [file for file in view.material.files if "materialized" in file.name]


def _sources(view: View) -> list[SeenFile]:
    """Files that hold dataset rows: JSON lines with no mark of a run in them."""
    wanted = []
    for file in view.material.files:
        first = read_json(file.lines[0]) if file.lines else None
        if (
            isinstance(first, dict)
            and "responses_create_params" in first
            and "_ng_task_index" not in first
            and "reward" not in first
        ):
            wanted.append(file)
    return wanted


def _outputs(view: View) -> list[SeenFile]:
    found = []
    for file in view.material.files:
        marked = any('"_ng_task_index"' in line or '"reward"' in line for line in file.lines)
        if marked and "materialized" not in file.name and "failures" not in file.name and file.name.endswith("l"):
            found.append(file)
    return found


def _stale(view: View) -> Iterator[Sight]:
    """Materialized inputs that are older than the source, or that hold other rows than it."""
    for source in _sources(view):
        for kept in _materialized(view):
            older = bool(source.modified and kept.modified and kept.modified < source.modified)
            differing = _first_difference(source, kept)
            lacking = len(source.lines) - _tasks(kept)
            if older and differing is None and source.lines and kept.lines and lacking <= 0:
                continue  # written again with the same content
            if older or differing:
                rows = f" and lacks {lacking} of its rows" if lacking > 0 and kept.lines else ""
                reason = differing or f"{kept.name} is older than {source.name}{rows}"
                yield Sight("file", kept.name, reason, what=reason)


def _tasks(kept: SeenFile) -> int:
    """How many tasks materialized rows are of."""
    rows = [read_json(line) for line in kept.lines]
    return len({row["_ng_task_index"] for row in rows if isinstance(row, dict) and "_ng_task_index" in row})


def _first_difference(source: SeenFile, kept: SeenFile) -> str | None:
    """The first field in which a kept row differs from its source row; None when the ones compared agree."""
    rows = [read_json(line) for line in source.lines]
    for number, line in enumerate(kept.lines, 1):
        row = read_json(line)
        if not isinstance(row, dict) or not isinstance(row.get("_ng_task_index"), int):
            continue
        index = row["_ng_task_index"]
        if not 0 <= index < len(rows) or not isinstance(rows[index], dict):
            return f"{kept.name}:{number} is task {index}, which {source.name} does not have"
        name = differing_field(rows[index], row)
        if name:
            return f"{kept.name}:{number} differs from {source.name}:{index + 1} in {name}"
    return None


def differing_field(source: dict[str, Any], kept: dict[str, Any]) -> str | None:
    """The first field of a source row that its materialized row does not hold; None when it holds all of them."""
    for name, item in source.items():
        if not _OWN_FIELDS.match(name) and not _within(item, kept.get(name)):
            return name
    return None


def _within(source: Any, kept: Any) -> bool:
    """Whether the kept value holds all of the source's: Gym fills in defaults, and merges parameters into the row."""
    if isinstance(source, dict) and isinstance(kept, dict):
        return all(_within(item, kept.get(name)) for name, item in source.items())
    if isinstance(source, str) and isinstance(kept, list):
        return True  # a string input becomes a list of messages
    return (type(source) is type(kept) and bool(source == kept)) or source is None


def _duplicates(view: View) -> Iterator[Sight]:
    """One (task, rollout) of one agent more than once in an output."""
    for file in _outputs(view):
        keys = Counter(key for key in map(_key, file.lines) if key is not None)
        repeated = [key for key, count in keys.items() if count > 1]
        if repeated:
            task, rollout, *_ = repeated[0]
            times, count = keys[repeated[0]], len(repeated)
            text = f"{file.name} holds (task {task}, rollout {rollout}) {times} times, {count} such keys"
            yield Sight("file", file.name, text, what=text)


def _key(line: str) -> tuple[Any, ...] | None:
    row = read_json(line)
    if not isinstance(row, dict) or row.get("_ng_task_index") is None:
        return None
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, dict) else None
    return row["_ng_task_index"], row.get("_ng_rollout_index"), row.get("_ng_attempt_index", 0), name


def _foreign_rows(view: View) -> Iterator[Sight]:
    """Results of (task, rollout) pairs that the materialized inputs of the same run do not hold."""
    for file in _outputs(view):
        inputs = [
            kept for kept in _materialized(view) if kept.name.partition("_materialized")[0] == PurePath(file.name).stem
        ]
        kept = {key[:2] for each in inputs for key in map(_key, each.lines) if key is not None}
        foreign = [key for key in map(_key, file.lines) if kept and key is not None and key[:2] not in kept]
        if foreign:
            text = f"{file.name} holds (task {foreign[0][0]}, rollout {foreign[0][1]}), which no materialized row has"
            yield Sight("file", file.name, text, what=f"{text} ({len(foreign)} such rows)")


def _other_inputs(view: View) -> Iterator[Sight]:
    """A result whose own prompt is not the one that the materialized row of its identity has.

    Only where the other results agree with their rows, or the inputs were written after the output.
    """
    for file in _outputs(view):
        for kept in _materialized(view):
            wanted = {key[:2]: _prompt(line) for line in kept.lines if (key := _key(line)) is not None}
            compared = [
                (number, key, _prompt(line) == wanted[key[:2]])
                for number, line in enumerate(file.lines, 1)
                if (key := _key(line)) is not None and _prompt(line) and wanted.get(key[:2])
            ]
            later = bool(kept.modified and file.modified and kept.modified > file.modified)
            if later or any(agrees for *_, agrees in compared):
                yield from (_other_input(file, number, key) for number, key, agrees in compared if not agrees)


def _other_input(file: SeenFile, number: int, key: tuple[Any, ...]) -> Sight:
    text = f"{file.name}:{number} (task {key[0]}, rollout {key[1]}) answers another prompt than its input has"
    return Sight("file", f"{file.name}:{number}", text, number, text)


def _prompt(line: str) -> str:
    """The words of a row's input, without the fields that Gym fills in; empty where it has none."""
    row = read_json(line)
    params = row.get("responses_create_params") if isinstance(row, dict) else None
    given = params.get("input") if isinstance(params, dict) else None
    return given if isinstance(given, str) else "\n".join(_words(item) for item in listed(given))


def _words(item: Any) -> str:
    content = item.get("content", item.get("output")) if isinstance(item, dict) else None
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in listed(content) if isinstance(part, dict))


def _cut_line(view: View) -> Iterator[Sight]:
    """An output whose last line is not whole: a run was killed while it wrote, and appending fuses two rows."""
    for file in view.material.files:
        lines = [line for line in file.lines if line.strip()]
        if not lines or not re.search(r"\.jsonl|\.ndjson", file.name) or file in _sources(view):
            continue
        for number, line in enumerate(lines, 1):
            if _is_json(line):
                continue
            last = number == len(lines)
            text = f"{file.name}:{number} " + (
                "is cut (its last line)" if last else "is not JSON: a cut line and the next row in one"
            )
            yield Sight("file", f"{file.name}:{number}", text, what=text)
            break


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _missing_usage(view: View) -> Iterator[Sight]:
    """Rows without usage, on which profiles and metrics fail or are empty."""
    for file in _outputs(view):
        rows = [row for row in map(read_json, file.lines) if isinstance(row, dict)]
        without = [
            number
            for number, row in enumerate(rows, 1)
            if isinstance(row.get("response"), dict) and not row["response"].get("usage")
        ]
        if without:
            text = f"{file.name}:{without[0]} has no response.usage ({len(without)} of {len(rows)} rows)"
            yield Sight("file", file.name, text, what=text)


def _counts(view: View) -> Iterator[Sight]:
    """Fewer results than rows that were dispatched, with nothing to say where the rest is."""
    dispatched = sum(len([line for line in file.lines if line.strip()]) for file in _materialized(view))
    outputs = _outputs(view)
    ended = sum(len({_key(line) for line in file.lines} - {None}) for file in outputs)
    ended += sum(len(file.lines) for file in view.material.files if "failures" in file.name)
    if dispatched and outputs and 0 < ended < dispatched:
        text = f"{ended} of {dispatched} dispatched rows have a result"
        yield Sight("file", outputs[0].name, text, what=text)


def _empty_profile(view: View) -> Iterator[Sight]:
    profiles = [
        f
        for f in view.material.files
        if re.search(r"profil|metrics", f.name) and "".join(f.lines).strip() in {"", "[]", "{}", "null"}
    ]
    if profiles and _outputs(view):
        yield Sight("file", profiles[0].name, f"{profiles[0].name} is empty", what=f"{profiles[0].name} is empty")


RULES: tuple[Rule, ...] = (
    Rule(
        id="cache.stale_inputs",
        layer=Layer.CACHE_RESUME,
        needs="Materialized inputs older than the source, or with other content",
        sees=_stale,
        cause="The run resumed from materialized inputs that no longer are the data: {what}.",
        next_action="Run into a fresh output path, or remove the materialized inputs knowingly, after any change of "
        "data or schema.",
        source="Gym resume_from_cache",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="cache.cut_line",
        layer=Layer.CACHE_RESUME,
        needs="An output line that is not whole JSON",
        sees=_cut_line,
        cause="An earlier run was ended while it wrote: {what}.",
        next_action="Drop the cut line (keep a copy), so that resuming runs that row again.",
        source="JSON Lines appended by a process that was killed",
        strength=Strength.PROVEN,
        failure_kind="persistence_failed",
    ),
    Rule(
        id="cache.duplicate_keys",
        layer=Layer.CACHE_RESUME,
        needs="The same (task, rollout) twice in one output",
        sees=_duplicates,
        cause="Resuming wrote rows again that were there: {what}.",
        next_action="Keep the last attempt of each (task, rollout), and resume only with the same inputs and repeats.",
        source="Gym identifies a row by _ng_task_index and _ng_rollout_index",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="cache.foreign_rows",
        layer=Layer.CACHE_RESUME,
        needs="Results of rows that the materialized inputs do not hold",
        sees=_foreign_rows,
        cause="The output mixes runs: {what}.",
        next_action="Run into a fresh output path, or keep only results whose (task, rollout) the inputs hold.",
        source="Gym identifies a row by _ng_task_index and _ng_rollout_index",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="cache.other_inputs",
        layer=Layer.CACHE_RESUME,
        needs="A result whose prompt is another than the materialized row of its identity has",
        sees=_other_inputs,
        cause="The output keeps a result of an older input: {what}.",
        next_action="Take that row out of the output (keep a copy) and resume, or run into a fresh output path.",
        source="Gym identifies a row by _ng_task_index and _ng_rollout_index, whatever it asks",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="cache.usage_missing",
        layer=Layer.CACHE_RESUME,
        needs="Results without response.usage",
        sees=_missing_usage,
        cause="Results hold no token usage, on which profiling relies: {what}.",
        next_action="Profile only rows that have usage, and keep missing usage explicit; check that the provider "
        "sends it.",
        source="Gym reward profiling",
        severity=Severity.WARNING,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="cache.empty_profile",
        layer=Layer.CACHE_RESUME,
        needs="An empty profile or metrics file beside results",
        sees=_empty_profile,
        cause="Profiling wrote nothing although results are there: {what}.",
        next_action="Join by (task, rollout) and profile a materialized file and an output of one and the same run.",
        source="Gym reward profiling",
    ),
    Rule(
        id="cache.counts",
        layer=Layer.CACHE_RESUME,
        needs="Fewer results than materialized rows",
        sees=_counts,
        cause="The output is partial: {what}.",
        next_action="Look for the first failure of the rows that are missing; resume only if the inputs are unchanged.",
        source="Gym output files",
        strength=Strength.STATUS,
        severity=Severity.WARNING,
    ),
    Rule(
        id="cache.told",
        layer=Layer.CACHE_RESUME,
        needs="A log's words about a cache, resuming, or results that do not match their inputs",
        sees=said(
            r"resum(?:e|ing) from[^\n]{0,60}(?:mismatch|stale|partial|not found)|"
            r"stale (?:cache|materialized|checkpoint)|"
            r"\b(?:cache|cached rows?|materialized[_ ]inputs?)\b[^\n]{0,60}(?:mismatch|corrupt|stale|"
            r"(?:do|does) not match|don't match|outdated|truncat)|duplicate (?:rollout|row|key|\(task)|"
            r"(?:rollouts?|results?|rows?)[^\n]{0,40}(?:do not|does not|don't) match[^\n]{0,40}(?:input|materialized|"
            r"repeat)|KeyError: '_ng_(?:task|rollout)_index'|mixed runs?|lock file[^\n]{0,40}(?:stale|exists)",
            sources=("log",),
        ),
        cause="What an earlier run left does not fit this one: {what}.",
        next_action="Compare times and counts of source, materialized inputs and output; run into a fresh output path.",
        source="Gym 0.7.0 resume messages",
        strength=Strength.STATUS,
    ),
)
