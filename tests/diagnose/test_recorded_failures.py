"""Real failures of Gym 0.7.0: the diagnosis names the hop at fault and shows the body that the recording proves."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.recorded import exchanges_of

from gymtap.proxy.diagnose import Material, diagnose
from gymtap.schemas import Diagnosis, Layer

DATA = Path(__file__).parents[1] / "data" / "failures"
SHARED = Path(__file__).parents[3] / "shared" / "gym" / "samples" / "failures"

PROVIDER, RESOURCES, MODEL, RUN = "model->provider", "agent->resources", "agent->model", "environment->agent"
HOPS = {
    "dbg_p400schema": (PROVIDER, Layer.DATA_SCHEMA),
    "dbg_p429": (PROVIDER, Layer.THROUGHPUT_RESOURCES),
    "dbg_p500empty": (PROVIDER, Layer.MODEL_SERVING),
    "dbg_preset": (PROVIDER, Layer.INFRA),
    "dbg_tool500": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "dbg_verify422": (RESOURCES, Layer.DATA_SCHEMA),
    "dbg_verify_raise": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "obs_p400schema": (PROVIDER, Layer.DATA_SCHEMA),
    "p400ctx": (PROVIDER, Layer.DATA_SCHEMA),
    "p400plain": (PROVIDER, Layer.MODEL_SERVING),
    "p400schema": (PROVIDER, Layer.DATA_SCHEMA),
    "p401": (PROVIDER, Layer.CONFIG),
    "p401_then_ok": (MODEL, Layer.CONFIG),
    "p429": (PROVIDER, Layer.THROUGHPUT_RESOURCES),
    "p429quota": (PROVIDER, Layer.CONFIG),
    "p500empty": (PROVIDER, Layer.MODEL_SERVING),
    "p500json": (PROVIDER, Layer.THROUGHPUT_RESOURCES),  # its words are `CUDA out of memory`
    "p502html": (PROVIDER, Layer.INFRA),
    "pbadjson": (PROVIDER, Layer.MODEL_SERVING),
    "pnochoices": (PROVIDER, Layer.THROUGHPUT_RESOURCES),  # a 200 whose words are `model overloaded`
    "preset": (PROVIDER, Layer.INFRA),
    "presetmid": (PROVIDER, Layer.INFRA),
    "run422b": (RUN, Layer.DATA_SCHEMA),
    "run422c": (RUN, Layer.DATA_SCHEMA),
    "tool404": (RESOURCES, Layer.MODEL_SERVING),
    "tool422": (RESOURCES, Layer.DATA_SCHEMA),
    "tool500": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "verify422": (RESOURCES, Layer.DATA_SCHEMA),
    "verify422type": (RESOURCES, Layer.DATA_SCHEMA),
    "verify_http": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "verify_noreward": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "verify_notjson": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "verify_raise": (RESOURCES, Layer.VERIFIER_RUNTIME),
    "verify_wrongtype": (RESOURCES, Layer.VERIFIER_RUNTIME),
}


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "boundaries.jsonl").read_text().splitlines()]


def body_at(records: list[dict[str, Any]], diagnosis: Diagnosis) -> str:
    """What the recording holds of the exchange at the end of the diagnosed chain, found by its path and status."""
    hop = diagnosis.chain[-1]
    order = sorted(records, key=lambda record: record["t0"])
    record = order[int(hop.exchange[1:]) - 1]
    assert record.get("status") == hop.status
    return record.get("resp_body") or record.get("error") or ""


def check(folder: Path) -> None:
    records = recorded(folder)
    diagnosis = diagnose(Material(exchanges=exchanges_of(records)))
    assert (diagnosis.chain[-1].boundary, diagnosis.layer) == HOPS[folder.name]
    assert diagnosis.innermost is not None
    proven, shown = body_at(records, diagnosis), diagnosis.innermost.leaf.text
    told = diagnosis.evidence[0].text
    unquoted = json.loads(proven) if proven.startswith('"') else proven
    # a poisoned model server wraps the old body; an unusable 200 is evidence, and its caller's words are the leaf
    is_evidence = proven[:150] in told or (proven.startswith("{") and all(name in told for name in json.loads(proven)))
    assert shown in (proven, unquoted) or repr(shown.encode())[2:-1] in unquoted or is_evidence
    assert diagnosis.next_action


@pytest.mark.parametrize("folder", sorted(DATA.iterdir()), ids=lambda folder: folder.name)
def test_the_hop_and_the_leaf_of_a_failure_kept_here(folder: Path) -> None:
    check(folder)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded Gym failures are not beside the repository")
@pytest.mark.parametrize("tag", sorted(HOPS))
def test_the_hop_and_the_leaf_of_every_recorded_failure(tag: str) -> None:
    check(SHARED / tag)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded Gym failures are not beside the repository")
def test_a_row_that_was_never_sent_is_told_from_the_collectors_log() -> None:
    """Nothing crossed a boundary, so only the log can say it."""
    log = tuple((SHARED / "run422" / "collector.log").read_text().splitlines())
    diagnosis = diagnose(Material(log=log))
    assert (diagnosis.layer, diagnosis.rule) == (Layer.DATA_SCHEMA, "data.preflight")
    assert "a row has no `responses_create_params`" in diagnosis.cause
    assert "gymtap check rows" in diagnosis.next_action


@pytest.mark.parametrize("tag", ["p400schema", "p401_then_ok"])
def test_a_sidecar_alone_leads_to_the_same_layer_as_the_exchanges(tag: str) -> None:
    rows = [json.loads(line) for line in (DATA / tag / "rollouts_failures.jsonl").read_text().splitlines()]
    assert diagnose(Material(results=tuple(rows))).layer is HOPS[tag][1]


FLOWS = [
    *(Path(__file__).parents[1] / "data").glob("flow_*.jsonl"),
    *(SHARED.parent.glob("flow_*.jsonl") if SHARED.is_dir() else ()),
]


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_healthy_recording_has_no_error_however_many_rows_were_in_flight(path: Path) -> None:
    """Sixty rollouts at once, four environments, random ports, prefixes: nothing may look like a fault."""
    diagnosis = diagnose(Material(exchanges=exchanges_of(json.loads(line) for line in path.read_text().splitlines())))
    assert diagnosis.layer is Layer.NONE, (diagnosis.rule, diagnosis.cause)
    assert [finding.rule for finding in diagnosis.findings] == []
