"""A diagnosis as the JSON that `why`, `causes` and `doctor` write: whole in its words, bounded in its size.

A run that hangs has a sight for each of its thousand tries, and an innermost body may be megabytes: whoever reads the
document, a program or a coding agent, has to hold all of it. `gymtap show EXCHANGE` has what is left out.
"""

import json
from collections import Counter
from typing import Any

from gymtap.proxy.core.unwrap import LEAF_MAX_CHARS
from gymtap.schemas import Diagnosis, Finding

FINDINGS_OF_A_RULE = 5


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """`Diagnosis` dumped, with `findings_left_out`: how many findings beyond the first five of each rule there are.

    The leaf's `value` is null also where its JSON is longer than what the leaf's `text` holds (8,000 characters).
    """
    told = _first_of_each_rule(diagnosis.findings)
    bounded = diagnosis.model_copy(update={"findings": told}).model_dump(mode="json")
    if bounded["innermost"] is not None:
        leaf = bounded["innermost"]["leaf"]
        leaf["value"] = leaf["value"] if len(json.dumps(leaf["value"])) <= LEAF_MAX_CHARS else None
    return {**bounded, "findings_left_out": len(diagnosis.findings) - len(told)}


def _first_of_each_rule(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    seen: Counter[str] = Counter()
    told = []
    for finding in findings:
        seen[finding.rule] += 1
        if seen[finding.rule] <= FINDINGS_OF_A_RULE:
            told.append(finding)
    return tuple(told)
