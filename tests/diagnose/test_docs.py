"""docs/diagnosis.md holds the rules and the JSON report as they are."""

import importlib.util
import re
from pathlib import Path

from gymtap.schemas import Diagnosis, Evidence, Hop, Leaf, Wrapper

SCRIPT = Path(__file__).parents[2] / "docs" / "make_rules_table.py"


def test_the_table_of_rules_is_drawn_from_the_rules() -> None:
    spec = importlib.util.spec_from_file_location("make_rules_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text()
    assert module.drawn(page) == page, "run `python docs/make_rules_table.py`"
    assert page.count("| `") >= 100


def test_the_keys_of_the_json_report_are_documented() -> None:
    """`gymtap why --json` writes a diagnosis with all of its fields, what was left out, and the sibling beside them."""
    page = (SCRIPT.parent / "diagnosis.md").read_text()
    section = page.partition("## As JSON\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == {*Diagnosis.model_fields, "findings_left_out", "sibling"}
    for model in (Evidence, Hop, Leaf, Wrapper):
        assert all(f'"{name}"' in section for name in model.model_fields), model
