"""Rows that failed for one cause have one fingerprint; other causes have others."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.diagnose import fingerprint, normalise


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("request req_8f3a2b71 failed after 12.5 s", "request req_00aa11bb failed after 7 s"),
        ("Cannot connect to host 10.0.0.5:8000", "Cannot connect to host 10.0.0.77:8001"),
        ("no such file /lustre/a/b/run1/out.jsonl", "no such file /lustre/c/run2/x.jsonl"),
        ("2026-01-02T03:04:05.123Z engine died", "2026-11-12T13:14:15Z engine died"),
        ("The model `qwen` does not exist.", "The model `llama-3` does not exist."),
        ("KeyError('sf')", "KeyError('berlin')"),
        ("your prompt has 9691 tokens", "your prompt has 12,044 tokens"),
        ("row 3f2b8c1e-0000-4000-8000-123456789abc lost", "row 11111111-2222-4333-8444-555555555555 lost"),
        ("GET https://api.example/v1/x?id=1 gave 404", "GET https://other.example/v2 gave 404"),
    ],
)
def test_what_differs_from_row_to_row_is_taken_away(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)
    assert fingerprint("rule", one) == fingerprint("rule", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError('x')", "ValueError('x')"),
        ("maximum context length is 8192", "maximum output length is 8192"),
        ("don't do this", "don't do that"),
    ],
)
def test_other_causes_keep_other_fingerprints(one: str, other: str) -> None:
    assert fingerprint("rule", one) != fingerprint("rule", other)


def test_the_rule_and_the_boundary_are_part_of_the_cause() -> None:
    assert fingerprint("a", "model->provider", "x") != fingerprint("a", "agent->resources", "x")
    assert fingerprint("a", None) == fingerprint("a", "")


@given(st.text(max_size=400))
def test_normalising_is_stable_and_bounded(message: str) -> None:
    """Normalising again changes no fingerprint's length bound, and any text may be given."""
    once = normalise(message)
    assert len(once) <= 400
    assert len(fingerprint(message)) == 12
    assert set(fingerprint(message)) <= set(string.hexdigits)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_numbers_never_tell_rows_apart(one: int, other: int) -> None:
    assert normalise(f"row {one} of {other} failed") == normalise(f"row {other} of {one} failed")
