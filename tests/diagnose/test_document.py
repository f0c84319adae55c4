"""What `why`, `causes` and `doctor` write as JSON has all keys, and a bound."""

import json

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.diagnose.document import FINDINGS_OF_A_RULE, document
from gymtap.schemas import Diagnosis, Finding, Layer, Severity


def diagnosis(body: bytes, findings: tuple[Finding, ...] = ()) -> Diagnosis:
    return Diagnosis(
        symptom="s", layer=Layer.INFRA, cause="c", next_action="n", innermost=unwrap(body), findings=findings
    )


def sight(rule: str, number: int) -> Finding:
    return Finding(rule=rule, severity=Severity.ERROR, message="m", exchange=f"a{number}")


def test_a_small_diagnosis_is_dumped_whole() -> None:
    found = diagnosis(b'{"error": {"message": "no"}}', (sight("infra.reset", 1),))
    assert document(found) == {**found.model_dump(mode="json"), "findings_left_out": 0}


def test_a_body_of_megabytes_does_not_come_along() -> None:
    """Whatever its shape: one long string, or many short ones."""
    for value in ("x" * 5_000_000, ["short"] * 500_000):
        told = document(diagnosis(json.dumps({"error": {"message": "refused", "input": value}}).encode()))
        assert len(json.dumps(told)) < 20_000
        assert told["innermost"]["leaf"]["value"] is None
        assert told["innermost"]["leaf"]["text"].startswith('{"error": {"message": "refused"')


def test_a_storm_is_told_by_its_first_sights_and_hides_no_other_rule() -> None:
    storm = tuple(sight("infra.reset", number) for number in range(1_000))
    told = document(diagnosis(b"", (*storm, sight("config.url", 1_000))))
    assert [one["exchange"] for one in told["findings"]] == [f"a{n}" for n in range(FINDINGS_OF_A_RULE)] + ["a1000"]
    assert told["findings_left_out"] == 1_000 - FINDINGS_OF_A_RULE
