"""docs/diagnosis.md holds the rules as they are."""

import importlib.util
from pathlib import Path

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
