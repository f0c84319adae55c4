"""Draws the table of rules in docs/diagnosis.md from the rules themselves: `python docs/make_rules_table.py`."""

from itertools import groupby
from pathlib import Path

from gymtap.proxy.diagnose import all_rules
from gymtap.proxy.diagnose.rule import Rule

PAGE = Path(__file__).with_name("diagnosis.md")
BEGIN, END = "<!-- rules: drawn by make_rules_table.py -->\n", "<!-- end of rules -->"


def table() -> str:
    """The rules by layer: id, how sure, what each needs to see."""
    ordered = sorted(all_rules(), key=lambda rule: rule.layer)
    return "\n".join(
        _section(str(layer), list(rules)) for layer, rules in groupby(ordered, key=lambda rule: rule.layer)
    )


def _section(layer: str, rules: list[Rule]) -> str:
    rows = [f"| `{rule.id}` | {rule.strength.name.lower()} | {_cell(rule.needs)} |" for rule in rules]
    return "\n".join([f"### {layer}", "", "| rule | strength | needs to see |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def drawn(page: str) -> str:
    """The page with its table drawn anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
