import copy

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.replay import compare
from gymtap.proxy.replay.patch import MISSING

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=15,
)


@given(JSON)
def test_a_value_does_not_differ_from_itself(value):
    assert compare.differences(value, copy.deepcopy(value)) == []


@given(JSON, JSON)
def test_no_difference_means_that_the_stable_parts_are_equal(before, after):
    if not compare.request_differences(before, after):
        assert compare.without_ids(before) == compare.without_ids(after)


@given(st.binary(max_size=40) | st.text(alphabet='data: {}[]"\\\n1', max_size=40).map(str.encode))
def test_any_bytes_can_be_read_compared_and_told(body):
    value = compare.parse(body)
    assert compare.differences(value, compare.parse(body)) == []
    assert all(str(one) for one in compare.differences(value, {"a": [value]}))


def test_a_stream_is_compared_event_by_event():
    before = b'data: {"id":"chatcmpl-1","created":1,"x":1}\n\ndata: [DONE]\n\n'
    after = before.replace(b'"created":1', b'"created":2')
    assert compare.differences(compare.parse(before), compare.parse(after)) == []
    other = compare.parse(before.replace(b'"x":1', b'"x":2'))
    assert [str(one) for one in compare.differences(compare.parse(before), other)] == ["/0/x: 1 -> 2"]


def answer(call_id, created, text="cold", total=15):
    return {
        "id": f"chatcmpl-{created}", "created": created, "usage": {"total_tokens": total},
        "choices": [{"message": {"content": text, "tool_calls": [{"id": call_id}]}}],
        "echo": {"tool_call_id": call_id},
    }  # fmt: skip


def test_ids_times_and_usage_are_no_difference():
    assert compare.differences(answer("call_1a2b3c4d", 1, total=3), answer("call_9f8e7d6c", 2, total=4)) == []


def test_a_link_to_another_thing_is_a_difference_even_though_ids_are_not():
    before, after = answer("call_1a2b3c4d", 1), answer("call_9f8e7d6c", 2)
    after["echo"]["tool_call_id"] = "call_0000aaaa"
    assert [one.pointer for one in compare.differences(before, after)] == ["/echo/tool_call_id"]


def test_a_difference_is_shown_with_what_really_crossed_the_wire():
    found = compare.differences(answer("call_1a2b3c4d", 1, "cold"), answer("call_9f8e7d6c", 2, "warm"))
    assert [str(one) for one in found] == ['/choices/0/message/content: "cold" -> "warm"']


def test_what_is_there_on_one_side_only_is_named():
    found = compare.differences({"a": 1, "b": None}, {"a": 1, "c": [1]})
    assert [(one.pointer, one.before, one.after) for one in found] == [("/b", None, MISSING), ("/c", MISSING, [1])]


def test_one_and_true_differ_and_one_and_one_point_nought_do_not():
    assert [one.pointer for one in compare.differences([1, 1], [1.0, True])] == ["/1"]


def test_names_of_tools_and_fields_are_never_taken_for_ids():
    for name in ("call_function", "run_python3_script", "msg_type", "get_weather_v2", "call_back_handler"):
        assert compare.without_ids(name) == name


def test_a_request_differs_where_its_dates_do_because_a_prompt_is_what_it_says():
    before, after = {"content": "Today is 2026-11-30 10:00:00"}, {"content": "Today is 2026-12-01 10:00:00"}
    assert [one.pointer for one in compare.request_differences(before, after)] == ["/content"]
    assert compare.differences(before, after) == []


def test_two_long_texts_are_shown_around_the_place_where_they_part():
    before = "x" * 500 + " the cat sat"
    told = str(compare.request_differences([before], ["x" * 500 + " the dog sat"])[0])
    assert "cat" in told
    assert "dog" in told
    assert len(told) < 220


def test_keys_can_be_ignored_by_name():
    assert compare.differences({"seed": 1, "a": 2}, {"seed": 9, "a": 2}, frozenset({"seed"})) == []


def test_a_body_that_is_no_json_is_compared_as_text():
    assert compare.parse(b"<html>") == "<html>"
    assert compare.parse(None) is MISSING
    assert compare.parse(b"\xff{") == "\ufffd{"
