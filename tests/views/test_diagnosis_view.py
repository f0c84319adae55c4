"""The leaf of a diagnosis as it is drawn."""

import json

from gymtap.proxy.core.unwrap import unwrap
from gymtap.proxy.views.diagnosis_view import draw_leaf


def drawn(body: object) -> str:
    leaf = unwrap(json.dumps(body)).leaf
    return "\n".join(line.plain for line in draw_leaf(leaf).lines)


def test_a_422_names_the_field_and_does_not_repeat_the_body_that_it_refuses() -> None:
    refused = {"prompt": "p" * 5_000}
    detail = {"type": "missing", "loc": ["body", "expected_answer"], "msg": "Field required", "input": refused}
    text = drawn({"detail": [detail]})
    assert '"expected_answer"' in text
    assert "5.0 kB of the refused body" in text
    assert "ppp" not in text


def test_a_short_value_that_is_refused_is_shown() -> None:
    detail = {"type": "list_type", "loc": ["body", "options"], "msg": "Input should be a list", "input": {"a": "hot"}}
    assert '"hot"' in drawn({"detail": [detail]})


def test_a_detail_that_is_no_list_is_drawn_as_it_is() -> None:
    assert "judge said no" in drawn({"detail": {"reason": "judge said no"}})
    assert "Not Found" in drawn({"detail": "Not Found"})
