from gymtap.proxy.views.finding_view import finding_lines
from gymtap.schemas import Finding, Severity

FOUND = Finding(
    rule="tools.name",
    severity=Severity.WARNING,
    message="the name \x1b[31mis\x1b[0m refused",
    pointer="/tools/0/name",
    expected="1 to 64",
    found="\x1b]0;x\x07",
    fix="Rename \u202eit.",
)


def test_a_finding_says_what_where_and_what_to_do() -> None:
    """What it quotes cannot steer the terminal, whichever of its parts quotes it."""
    assert [line.plain for line in finding_lines(FOUND, "a\x1b.jsonl:1", times=1_000)] == [
        "warning tools.name  1,000 times: the name ␛[31mis␛[0m refused",
        "        at a␛.jsonl:1  /tools/0/name",
        "        expected 1 to 64",
        "        found ␛]0;x␇",
        "        fix: Rename <202E>it.",
    ]


def test_what_it_does_not_know_takes_no_line() -> None:
    bare = Finding(rule="endpoint.model", severity=Severity.ERROR, message="no such model")
    assert [line.plain for line in finding_lines(bare)] == ["error   endpoint.model  no such model"]
