"""What a case is made of may be named, ordered or recorded otherwise: its layer must not become another one."""

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.diagnose import diagnose, from_case
from gymtap.schemas import Diagnosis, Layer, Severity

HERE = Path(__file__).parent
FOLDERS = (HERE / "cases", HERE.parents[2] / "shared" / "cases")
INPUTS = ("exchanges", "row", "rows", "log", "files", "collector_result")
type Case = dict[str, Any]


def diagnosed(case: Case) -> Diagnosis:
    return diagnose(from_case(case))


@pytest.fixture(scope="module")
def cases() -> list[tuple[str, Case, Diagnosis]]:
    """Every sixth of our cases, and every second of those beside the repository: name, inputs, diagnosis."""
    paths = [*sorted(FOLDERS[0].glob("*.json"))[::6], *sorted(FOLDERS[1].glob("*.json"))[::2]]
    found = []
    for path in paths:
        case = json.loads(path.read_text())
        inputs = {name: case[name] for name in INPUTS if case.get(name) is not None}
        found.append((path.stem, inputs, diagnosed(inputs)))
    return found


def strays(
    cases: list[tuple[str, Case, Diagnosis]], perturb: Callable[[Case], Case | None], *, lossy: bool
) -> tuple[int, list[str]]:
    """(how many cases were changed, the names of those that then have another layer than before, and a confident one).

    Where a part was taken away with all that told of a failure, `none` is the honest answer, too, and so is the layer
    as the runner-up.
    """
    changed, strayed = 0, []
    for name, case, before in cases:
        other = perturb(deepcopy(case))
        if other is None or other == case:
            continue
        changed += 1
        after = diagnosed(other)
        allowed = {before.layer, Layer.UNKNOWN} | ({Layer.NONE, before.runner_up} if lossy else set())
        false_alarm = before.layer is Layer.NONE and any(f.severity is Severity.ERROR for f in after.findings)
        named = lossy and after.runner_up is before.layer
        if (after.layer not in allowed and not named) or false_alarm:
            strayed.append(f"{name}: {before.layer} -> {after.layer} ({after.rule})")
    return changed, strayed


def rewritten(case: Case, *pairs: tuple[str, str]) -> Case:
    text = json.dumps(case)
    for pattern, put in pairs:
        text = re.sub(pattern, put, text)
    found: Case = json.loads(text)
    return found


# --- nothing is lost: the layer stays ---------------------------------------------------------------------------


def other_servers(case: Case) -> Case:
    return rewritten(
        case,
        (r"SimpleAgent", "TerminalBenchAgent"),
        (r"VLLMModel", "RouterModel"),
        (r"my_env", "crm_sim"),
        (r"policy_model", "student_model"),
        (r"my_agent", "crm_agent"),
    )


def other_addresses(case: Case) -> Case:
    return rewritten(
        case, (r"127\.0\.0\.1:1500(\d)", r"10.7.3.21:2771\1"), (r"127\.0\.0\.1:8000", "inference.pool:8443")
    )


def other_indexes(case: Case) -> Case:
    if "files" in case:  # there an index is a place in the source
        return case
    return rewritten(
        case, (r"(_ng_task_index\\?\": ?)(\d+)", r"\g<1>1\2"), (r"client_port\": (\d+)", r'client_port": 5\1')
    )


def other_language(case: Case) -> Case:
    return rewritten(
        case, (r"What is 2 \+ 2\?", "二加二等于几"), (r"What is 12 \* 12\?", "Combien font douze fois douze, déjà ?")
    )


def shouting_headers(case: Case) -> Case:
    for _, message in messages(case):
        message["headers"] = {name.upper(): value for name, value in (message.get("headers") or {}).items()}
    return case


def header_pairs(case: Case) -> Case:
    for _, message in messages(case):
        message["headers"] = [[name.title(), value] for name, value in (message.get("headers") or {}).items()]
    return case


def bodies_as_values(case: Case) -> Case:
    for _, message in messages(case):
        text = message.get("body_text")
        try:
            value = json.loads(text, parse_constant=_refuse) if text else None
        except ValueError:
            continue
        if text and isinstance(value, dict) and "\\ud" not in text.lower():
            message["body"] = message.pop("body_text") and value
    return case


def spaced_bodies(case: Case) -> Case:
    for call, message in messages(case):
        text = message.get("body_text")
        try:
            value = json.loads(text, parse_constant=_refuse) if text else None
        except ValueError:
            continue
        if text and isinstance(value, dict) and "provider" in call and "\\ud" not in text.lower():
            message["body_text"] = json.dumps(value, indent=2, ensure_ascii=False)
    return case


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def shuffled(case: Case) -> Case | None:
    exchanges = case.get("exchanges", [])
    times = [exchange.get("t_ms") for exchange in exchanges]
    if None in times or len(set(times)) < len(times):
        return None
    random.Random(7).shuffle(exchanges)
    return case


def moved_in_time(case: Case) -> Case:
    for exchange in case.get("exchanges", []):
        if exchange.get("t_ms") is not None:
            exchange["t_ms"] += 1_790_000_000_000.0
    return case


def httpx_words(case: Case) -> Case:
    told = r'", "message": "[^"]*'
    return rewritten(
        case,
        (f"ServerDisconnectedError{told}", 'RemoteProtocolError", "message": "Server disconnected without a response.'),
        (
            f'ClientConnectorError{told}(?:failed|refused)[^"]*',
            'ConnectError", "message": "All connection attempts failed',
        ),
        (f"TimeoutError{told}", 'ReadTimeout", "message": "'),
    )


def with_shutdown_noise(case: Case) -> Case | None:
    if not isinstance(case.get("log"), str):
        return None
    case["log"] += (
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nasyncio.exceptions.CancelledError\n"
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 11000)\n"
    )
    return case


LOSSLESS = (
    other_servers, other_addresses, other_indexes, other_language, shouting_headers, header_pairs, bodies_as_values,
    spaced_bodies, shuffled, moved_in_time, httpx_words, with_shutdown_noise,
)  # fmt: skip


# --- something is lost: the layer stays, or is unknown, but for a few -------------------------------------------------


def messages(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    for exchange in case.get("exchanges", []):
        for side in ("request", "response"):
            if exchange.get(side):
                yield exchange["boundary"], exchange[side]


def without_log(case: Case) -> Case | None:
    return None if case.keys() <= {"log"} else {name: item for name, item in case.items() if name != "log"}


def without_exchanges(case: Case) -> Case | None:
    rest = {name: item for name, item in case.items() if name != "exchanges"}
    return rest if rest.keys() & {"log", "collector_result", "files", "rows"} else None


def without_results(case: Case) -> Case | None:
    rest = {name: item for name, item in case.items() if name not in {"collector_result", "row"}}
    return rest or None


def without_times(case: Case) -> Case:
    for exchange in case.get("exchanges", []):
        exchange.pop("t_ms", None)
    return case


def without_the_collector(case: Case) -> Case | None:
    rest = [e for e in case.get("exchanges", []) if not e["boundary"].startswith("collector->")]
    return {**case, "exchanges": rest} if rest else None


def without_seed(case: Case) -> Case | None:
    rest = [e for e in case.get("exchanges", []) if not e["request"]["url"].endswith("/seed_session")]
    return {**case, "exchanges": rest} if rest else None


def without_providers(case: Case) -> Case | None:
    rest = [e for e in case.get("exchanges", []) if not e["boundary"].endswith("provider")]
    return {**case, "exchanges": rest} if len(rest) > 3 else None


LOSSY = (
    without_log, without_exchanges, without_results, without_times, without_the_collector, without_seed,
    without_providers,
)  # fmt: skip


@pytest.mark.parametrize("perturb", LOSSLESS, ids=lambda perturb: perturb.__name__)
def test_what_is_only_written_otherwise_keeps_its_layer(
    cases: list[tuple[str, Case, Diagnosis]], perturb: Callable[[Case], Case | None]
) -> None:
    changed, strayed = strays(cases, perturb, lossy=False)
    assert changed > 0
    assert strayed == []


@pytest.mark.parametrize("perturb", LOSSY, ids=lambda perturb: perturb.__name__)
def test_what_lacks_a_part_seldom_gets_another_confident_layer(
    cases: list[tuple[str, Case, Diagnosis]], perturb: Callable[[Case], Case | None]
) -> None:
    changed, strayed = strays(cases, perturb, lossy=True)
    if not changed:
        pytest.skip("only the shared cases have that part and others, and they are not beside the repository")
    assert len(strayed) <= max(0.03 * changed, 1), strayed
