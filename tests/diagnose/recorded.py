"""Makes a recorder's JSON lines the exchanges that a case file lists: what a server is follows from its paths.

A record has `hop` (the callee's name), `method`, `path`, `t0` and `t1` (seconds), `req_body`, `status`, `resp_body`
and, where the connection failed, `error`; it does not say who called.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gymtap.proxy.diagnose import Seen, from_exchanges

CALLERS = {"environment": "collector", "resources": "agent", "model": "agent", "provider": "model", "head": "collector"}


def exchanges_of(records: Iterable[Mapping[str, Any]]) -> tuple[Seen, ...]:
    """A recording's exchanges in the order in which they began, named a1, a2, … in it."""
    ordered = sorted(records, key=lambda record: record["t0"])
    paths: dict[str, set[str]] = {}
    for record in ordered:
        paths.setdefault(record["hop"], set()).add(record["path"].partition("?")[0].rsplit("/", 1)[-1])
    kinds = {hop: kind_of(hop, names) for hop, names in paths.items()}
    return from_exchanges(item_of(record, kinds[record["hop"]], ordered[0]["t0"]) for record in ordered)


def kind_of(hop: str, names: set[str]) -> str:
    if names & {"global_config_dict_yaml", "server_instances"}:
        return "head"
    if names & {"seed_session", "verify"}:
        return "resources"
    if names & {"agent_sessions", "close"}:
        return "agent"
    if "run" in names:
        return "environment" if "environment" in hop and "responses" not in names else "agent"
    if "provider" in hop or "completions" in names:
        return "provider"
    return "model" if "responses" in names else "?"


def item_of(record: Mapping[str, Any], callee: str, began_s: float) -> dict[str, Any]:
    own = callee == "agent" and record["path"].rstrip("/").endswith("/responses")
    caller = "agent" if own else "environment" if callee == "agent" else CALLERS.get(callee, "?")
    request = {"method": record.get("method", "POST"), "url": f"http://{record['hop']}{record['path']}"}
    answer = {"headers": record.get("resp_headers"), "body": record.get("resp_body"), "status": record.get("status")}
    return {
        "boundary": f"{caller}->{callee}",
        "request": {**request, "headers": record.get("req_headers"), "body": record.get("req_body")},
        "response": answer if record.get("status") is not None else None,
        "transport_error": record.get("error"),
        "t_ms": (record["t0"] - began_s) * 1_000,
        "duration_ms": None if record.get("t1") is None else (record["t1"] - record["t0"]) * 1_000,
    }
