"""Writes what `live_failures.py` saw as pages: Gym's log trimmed, gymtap's words whole, this machine left out.

What differs from run to run and tells nothing (ports, paths, times of day, generated ids) becomes a name of its own, so
that a page changes only when what is said changes; durations and exchange ids stay as they were.
"""

import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OURS = "gymtap: "
_PROGRESS = re.compile(r"^\w[\w ]*: +\d+(?:%\||it ).*?(?:it/s|s/it|\?it/s)\]")
_LINE_CHARS = 320
_TRACEBACK_TAIL = 6
_NOISE = re.compile(
    r"^\s*$|it/s\]|INFO:\s|"
    r"^Waiting for|^Checking for|servers ready|/ \d+ rollouts|Examples left|^\d+\. \w+_agent|^Found \d|"
    r'^[{}]$|^\s+"(?:reward|mask_sample)"|connection_pool|^Clearing output|^Limiting|^Reading rows|^Repeating|'
    r"^Writing|Querying with|route_failures_to_sidecar is on|'_default'"
)

_ABOUT = """\
NeMo Gym 0.7.0 with an environment and a provider that fail in these ways, behind `gymtap run`: on each page what Gym's
own logs say about it, trimmed, and what gymtap says, whole. All rows are of one run; task 1 is an ordinary row that
ran between any two. Ports, paths, ids and times of day are replaced."""
_AGAIN = """\
Drawn by `python benchmarks/live_failures.py --lab DIR --transcripts docs/transcripts`, which also checks every hop,
body, layer and finding against what was recorded. DIR holds `lab.sh`, the failing environment and its provider."""


@dataclass(frozen=True)
class Page:
    """One failure: the row, what Gym logged (a name and lines each), what gymtap said (a command and a text each)."""

    name: str
    title: str
    about: str
    row: dict[str, Any]
    logs: list[tuple[str, list[str]]]
    said: list[tuple[str, str]]


class Names:
    """Gives what is only this run's own a name, the same one wherever it stands."""

    _GIVEN = (
        (re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}|(?<=port )\d{4,5}"), "{:05d}", 20001),
        (re.compile(r"(?<=call_)[0-9a-f]{8}\b"), "{:08d}", 1),
        (re.compile(r"(?<=resp_)[0-9a-f]{32}|(?<=msg_)[0-9a-f]{32}"), "{:032d}", 1),
        (re.compile(r"(?<=chatcmpl-)[0-9a-f]{12}\b"), "{:012d}", 1),
    )

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = sorted(paths.items(), key=lambda item: -len(item[0]))
        self._known: list[dict[str, str]] = [{} for _ in self._GIVEN]

    def __call__(self, text: str) -> str:
        """The text without what is this machine's or this hour's."""
        for path, name in self._paths:
            text = text.replace(path, name)
        text = re.sub(r"~?(?:/[\w.+-]+)*/site-packages/", "…/site-packages/", text)
        text = re.sub(r"~?(?:/[\w.+-]+)*/lib/python3\.\d+/", "…/lib/python3/", text)
        text = text.replace(str(Path.home()), "~")
        text = re.sub(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d", r"2026-01-01\g<1>12:00:00", text)
        text = re.sub(r"(?m)^\d\d:\d\d:\d\d(?=  )", "12:00:00", text)
        text = re.sub(r'(?<="created_at": )\d{10}', "1767268800", text)
        text = re.sub(r"(?<=replays/)[\w-]+", "20260101-120000-0000", text)
        for rule, known in zip(self._GIVEN, self._known, strict=True):
            text = _renamed(text, *rule, known)
        return text


def _renamed(text: str, pattern: re.Pattern[str], form: str, first: int, known: dict[str, str]) -> str:
    for found in pattern.findall(text):
        known.setdefault(found, form.format(first + len(known)))
    return pattern.sub(lambda match: known[match[0]], text)


def write_pages(folder: Path, pages: Iterable[Page], index: list[tuple[str, str]], paths: dict[str, str]) -> None:
    """Write one page each and an index; `paths` maps this machine's to what to write in their place."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("[0-9][0-9]-*.md"):
        old.unlink()
    names = Names(paths)
    listed: list[tuple[str, Page]] = []
    for number, page in enumerate(pages, 1):
        file = f"{number:02d}-{page.name}.md"
        (folder / file).write_text(names(_page(page)))
        listed.append((file, page))
    (folder / "README.md").write_text(names(_index(listed, index)))


def _page(page: Page) -> str:
    parts = [
        f"# {page.title}",
        textwrap.fill(page.about, 118),
        "The row:",
        _block(json.dumps(page.row), "json"),
        "## What Gym says",
    ]
    logs = [(name, trimmed(found)) for name, found in page.logs]
    for name, lines in logs:
        parts += [f"The log of the {name}:", _block("\n".join(lines))] if lines else []
    if not any(lines for _, lines in logs):
        parts.append("Nothing: besides progress bars and access lines, no log has a line of that time.")
    parts.append("## What gymtap says")
    unasked = [line for _, found in page.logs for line in found if line.startswith(_OURS)]
    if unasked:
        parts += ["Unasked, in the terminal of `gymtap run`:", _block("\n".join(unasked))]
    parts += [_block(f"$ {command}\n{text.rstrip()}") for command, text in page.said]
    return "\n\n".join(parts) + "\n"


def _index(listed: list[tuple[str, Page]], said: list[tuple[str, str]]) -> str:
    parts = ["# Failures of a real run", _ABOUT]
    parts += ["\n".join(f"{number}. [{page.title}]({file})" for number, (file, page) in enumerate(listed, 1))]
    parts += ["## The run as a whole", *(_block(f"$ {command}\n{text.rstrip()}") for command, text in said)]
    parts += ["## Again", _AGAIN]
    return "\n\n".join(parts) + "\n"


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def trimmed(lines: list[str]) -> list[str]:
    """Without progress bars and access lines; a traceback keeps its ends, a long line its beginning."""
    told = [
        _PROGRESS.sub("", part).rstrip() for line in lines if not line.startswith(_OURS) for part in line.split("\r")
    ]
    kept = [line for line in told if not _NOISE.search(re.sub(r"^\(\w+\) ?", "", line))]
    return [_cut(line) for line in _short_tracebacks(kept)]


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} … ({len(line) - _LINE_CHARS:,} more characters)"


def _short_tracebacks(lines: list[str]) -> list[str]:
    """Of a traceback the first line, and the exception with the frame that raised it."""
    shown: list[str] = []
    start = 0
    while start < len(lines):
        if "Traceback (most recent call last)" not in lines[start]:
            shown.append(lines[start])
            start += 1
            continue
        end = start + 1
        while end < len(lines) and re.match(r"^(?:\(\w+\))?\s{2,}", lines[end]):
            end += 1
        frames = lines[start + 1 : end]
        shown.append(lines[start])
        if len(frames) > _TRACEBACK_TAIL:
            prefix = re.match(r"^(?:\(\w+\) )?", lines[start])
            shown.append(f"{prefix[0] if prefix else ''}  … {len(frames) - _TRACEBACK_TAIL} lines …")
        shown += frames[-_TRACEBACK_TAIL:]
        start = end
    return shown
