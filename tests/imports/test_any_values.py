"""Records of the right shape with any value in any place: kept, or left out and counted, and never in the way."""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.imports import import_files
from gymtap.proxy.store import Capture

PAIRS = [{"name": "content-type", "value": "text/plain"}]
FLOW = {
    "seq": 1, "hop": "agent", "method": "POST", "path": "/run", "t0": 5.0, "t1": 6.0, "req_headers": [["a", "b"]],
    "req_body": "{}", "status": 200, "resp_headers": [["a", "b"]], "resp_body": "{}", "error": None, "parent": None,
    "peer": ["127.0.0.1", 9],
}  # fmt: skip
CALL = {
    "model_call_id": "f", "dialect": "chat", "model_ref": {"name": "policy"}, "started_at": 1.0, "completed_at": 2.0,
    "latency_ttft_ms": 1.0, "status_code": 200, "error_category": None, "request": {"a": 1}, "response": {"b": 1},
}  # fmt: skip
ENTRY = {
    "startedDateTime": "2026-11-30T02:29:14.250Z", "time": 30,
    "request": {"method": "POST", "url": "http://x/run", "headers": PAIRS, "postData": {"text": "{}"}},
    "response": {"status": 200, "statusText": "OK", "headers": PAIRS, "content": {"text": "{}"}, "_error": None},
    "timings": {"send": 1, "wait": 20, "receive": 9},
    "_gymtap": {"id": "a1", "server": "x", "kind": "model", "parent": None, "started_ns": 9, "target": "/run"},
    "_webSocketMessages": [{"type": "send", "time": 1.5, "opcode": 1, "data": "x"}],
}  # fmt: skip
ITEM = {
    "boundary": "agent->model", "t_ms": 1.0, "duration_ms": 2.0, "note": "", "id": 1,
    "request": {"method": "POST", "url": "http://x/run", "headers": {"a": "b"}, "body_text": "{}"},
    "response": {"status": 200, "headers": {"a": "b"}, "body_text": "{}"}, "transport_error": None,
}  # fmt: skip
FORMATS: dict[str, tuple[dict[str, Any], Callable[[Any, Any], str]]] = {
    "flows": (FLOW, lambda good, other: f"{json.dumps(good)}\n{json.dumps(other)}\n"),
    "calls": (CALL, lambda good, other: f"{json.dumps(good)}\n{json.dumps(other)}\n"),
    "har": (ENTRY, lambda good, other: json.dumps({"log": {"entries": [good, other]}})),
    "list": (ITEM, lambda good, other: json.dumps({"exchanges": [good, other]})),
}
NUMBERS = [float("nan"), float("inf"), -1e300, 1e300, -1, 0, 1e18, 9.3e9, 10**30, 2**63, -(2**63)]
TEXTS = ["", "\ud800", "\udc80", "\0", "\u00e9", "\r\nX: y", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "http://["]
OTHERS = [True, None, [], {}, {"a": "\udfff"}, [["a", "\ud800"]], "x" * 5000]
strange = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    made = inner = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return made


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_value_in_any_place(name: str, data: st.DataObject) -> None:
    """The good record is kept whatever the other holds; what is said to be imported is there; the rest is a gap."""
    good, write = FORMATS[name]
    other = changed(good, data.draw(st.sampled_from(list(places(good)))), data.draw(strange))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "in"
        file.write_text(write(good, other))
        done = import_files([file], Path(folder) / "capture")
        with closing(Capture(done.path)) as capture:
            assert done.exchanges == capture.count() == len(list(capture.exchanges())) >= 1
            assert done.exchanges + sum(gap.count or 0 for gap in capture.gaps()) == 2


def test_alone_it_is_refused(tmp_path: Path) -> None:
    """A file of nothing but such a record is an error that names it."""
    file = tmp_path / "in"
    file.write_text(json.dumps(FLOW | {"t0": float("inf")}))
    with pytest.raises(UsageError, match="in:1: t0: "):
        import_files([file], tmp_path / "capture")
