"""Reads what a server's own exception tells: where it was raised, and what kind of value it stumbled over.

A server answers with the exception alone; its file and line are in the log, if anywhere. There the traceback's head is
often missing, so the exception's own line is looked for, and the frame right before it.
"""

import json
import re
from typing import Any

from gymtap.proxy.diagnose.evidence import Seen, listed

_FRAME = re.compile(r"File \"(?P<path>[^\"\n]+)\", line (?P<line>\d+), in \S+(?:\n(?P<code>[^\n]*))?")
_RAISED = re.compile(r"(?P<name>[A-Z]\w*)(?:\(|: )(?P<message>.*?)\)?,?\s*$", re.DOTALL)
_QUOTES = re.compile(r"[\\'\"\s]")
_PREFIX = re.compile(r"^\s*\([^()\n]{1,60}\)\s?")
_FRAME_LINES = 40
_ROWS_TOLD = 3


def raised_at(log: tuple[str, ...], exception: str) -> str:
    """`app/server.py:74 (precision = same / len(found))` for `Name('message')` or `Name: message`; empty if unknown."""
    wanted = _RAISED.search(exception)
    if wanted is None:
        return ""
    message = _QUOTES.sub("", wanted["message"])
    for number, line in enumerate(log):
        told = line.rpartition(f"{wanted['name']}: ")
        if told[1] and _QUOTES.sub("", told[2]) == message:
            before = [_PREFIX.sub("", one) for one in log[max(0, number - _FRAME_LINES) : number]]
            return frame_of("\n".join(before))
    return ""


def frame_of(traceback: str) -> str:
    """The last frame of a traceback, its file by its last two parts; empty where there is none."""
    frames = list(_FRAME.finditer(traceback))
    if not frames:
        return ""
    code = (frames[-1]["code"] or "").strip(" |\t")
    place = f"{'/'.join(frames[-1]['path'].split('/')[-2:])}:{frames[-1]['line']}"
    return f"{place} (`{code}`)" if code and not code.startswith(("File ", "^", "~")) else place


_MATCH = re.compile(r"'NoneType' object has no attribute '(?:group\w*|start|end|span)'")
_SHORT = re.compile(r"\bIndexError\b|not enough values to unpack|(?:max|min)\(\) (?:arg|iterable)|division by zero")
_MISSING = re.compile(r"KeyError(?:\(|: )\\*['\"](?P<name>[^'\"\\]+)")


def stumbled_over(exchange: Seen, exception: str) -> str:
    """What the next step is where an exception is not about a field that the request lacks; empty where it may be."""
    if _MATCH.search(exception):
        return (
            "A pattern found nothing in the text that it read, the model's answer most often, and the code takes a "
            f"match for granted: give such an answer a result of its own there (no match: reward 0). {_AGAIN}"
        )
    if _SHORT.search(exception):
        return (
            "The code takes a list or text for filled that is empty here (an answer without the part that it looks "
            f"for, a transcript without entries): allow for that there. {_AGAIN}"
        )
    missing = missing_key(exception)
    if missing and _has(exchange.request_json, missing):
        return (
            f"The recorded request has `{missing}`, so the code looks for it at another place: mend it there. {_AGAIN}"
        )
    return ""


_AGAIN = "`gymtap show EXCHANGE` shows what the call was given, `gymtap replay EXCHANGE` runs it again alone."


def missing_key(exception: str) -> str | None:
    """The key that a KeyError names."""
    match = _MISSING.search(exception)
    return match["name"] if match else None


def rows_without(body: Any, key: str) -> str:
    """`1 of 3 rows has no `result` (1.0)`, of the rows in a request's lists; empty where all have it."""
    lists = (listed(item) for item in body.values()) if isinstance(body, dict) else iter([listed(body)])
    rows = next((rows for rows in lists if rows and all(isinstance(row, dict) for row in rows)), [])
    without = [row for row in rows if not _has(row, key)]
    if not without or len(without) == len(rows):
        return f"none of the {len(rows)} rows has `{key}`" if without else ""
    named = ", ".join(
        f"{row.get('_ng_task_index', '?')}.{row.get('_ng_rollout_index', 0)}" for row in without[:_ROWS_TOLD]
    )
    more = ", …" if len(without) > _ROWS_TOLD else ""
    return f"{len(without)} of {len(rows)} rows {'has' if len(without) == 1 else 'have'} no `{key}` ({named}{more})"


def _has(found: Any, key: str) -> bool:
    return f'"{key}":' in json.dumps(found, separators=(",", ":"))
