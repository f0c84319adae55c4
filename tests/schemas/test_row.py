import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.schemas import RowKey

indices = st.integers(min_value=0, max_value=10**9)
named = st.builds(RowKey, task=indices, rollout=indices, attempt=indices, run=st.integers(1, 99))
explicit = st.builds(RowKey, rollout_id=st.from_regex(r"[\w.:/-]+", fullmatch=True), run=st.integers(1, 99))


@given(named | explicit)
def test_a_label_reads_back_as_the_same_row(key: RowKey) -> None:
    assert RowKey.parse(key.label) == key


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("12.3", RowKey(task=12, rollout=3)),
        ("12.3a1", RowKey(task=12, rollout=3, attempt=1)),
        ("r2:0.0", RowKey(task=0, rollout=0, run=2)),
        ("@my-id", RowKey(rollout_id="my-id")),
        ("1.2~judge_agent", RowKey(task=1, rollout=2, agent="judge_agent")),
    ],
)
def test_labels_are_what_one_types(label: str, key: RowKey) -> None:
    assert RowKey.parse(label) == key


@pytest.mark.parametrize("text", ["", "12", "a42", "12.", "12.3a", "r:1.1", "12.3 "])
def test_what_is_no_label_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"12\.3 \(task 12, rollout 3\)"):
        RowKey.parse(text)
