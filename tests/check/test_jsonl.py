import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.check.jsonl import other_format, parse_line

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(values, st.booleans(), st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")]))
def test_whatever_python_writes_is_read_without_a_finding(value: Any, ascii_only: bool, separators: Any) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode() + b"\n"
    assert parse_line(line) == (value, ())


@given(st.binary(max_size=60), st.booleans(), st.booleans())
def test_any_bytes_give_a_value_or_a_reason(line: bytes, first: bool, last: bool) -> None:
    value, findings = parse_line(line, first=first, last=last)
    assert value is not None or findings or line.strip() == b"null"


@pytest.mark.parametrize(
    ("line", "rule", "part"),
    [
        (b'{"a": 1, "b": \n', "rows.truncated", "column 14"),
        (b'{"a": "x\n', "rows.truncated", "column 9"),
        (
            b'{"responses_create_params":{"input":"a"}}{"b":1}\n',
            "rows.fused",
            "Extra data at column 42: 2 whole objects",
        ),
        (b'{"a":1} {"b":2\n', "rows.fused", "1 whole objects and a broken one"),
        (b'{"a": NaN}\n', "rows.nan", "NaN at column 7"),
        (b'{"NaN": "NaN", "b": -Infinity}\n', "rows.nan", "-Infinity at column 21"),
        (b'{"a": "\\ud83d x"}\n', "rows.surrogate", "column 8"),
        (b'{"a": "\\ud83d\\ude00 \\ude00"}\n', "rows.surrogate", "column 21"),
        (b'{"a": 1,}\n', "rows.json", "column"),
        (b"{'a': 1}\n", "rows.json", "column 2"),
        ("{\"é\": 'x'}\n".encode(), "rows.json", "column 7"),
        (b'{"a": "\xff"}\n', "rows.encoding", "column 8"),
        (b"[1] trailing\n", "rows.json", "Extra data at column 5"),
    ],
)
def test_a_broken_line_is_named_with_its_column(line: bytes, rule: str, part: str) -> None:
    value, findings = parse_line(line)
    assert value is None
    assert [finding.rule for finding in findings] == [rule]
    assert part in findings[0].message


def test_a_byte_order_mark_is_an_error_at_the_start_of_a_file_and_the_row_is_still_read() -> None:
    value, findings = parse_line(b'\xef\xbb\xbf{"a": 1}\n', first=True)
    assert (value, [finding.rule for finding in findings]) == ({"a": 1}, ["rows.bom"])


def test_a_last_line_without_its_end_says_that_the_file_was_cut() -> None:
    (finding,) = parse_line(b'{"reward":0.0,"_ng_task_ind', last=True).findings
    assert finding.rule == "rows.truncated"
    assert "the file was cut" in finding.message


def test_cr_lf_is_a_note_since_gym_reads_it_and_an_empty_line_an_error_since_gym_does_not() -> None:
    assert [finding.severity for finding in parse_line(b'{"a": 1}\r\n').findings] == ["note"]
    assert [(found.rule, found.severity) for found in parse_line(b"  \n").findings] == [("rows.empty_line", "error")]


def test_a_doubled_key_is_named_and_a_colon_in_text_is_no_key() -> None:
    (finding,) = parse_line(b'{"a": {"x": 1, "y": ": \\":", "x": 2}}\n').findings
    assert "'x' occurs twice" in finding.message


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (gzip.compress(b"{}"), "gzip"),
        (b"PAR1\x15\x04", "Parquet"),
        ('{"a": 1}\n'.encode("utf-16"), "UTF-16"),
        (b'[\n{"a": 1},\n', "one JSON document"),
        (b'[{"a": 1}]', "one JSON document"),
        (b'{\n  "a": 1\n}\n', "one JSON document"),
    ],
)
def test_a_file_of_another_format_is_named_once_by_how_it_begins(head: bytes, what: str) -> None:
    found = other_format(head)
    assert found is not None
    assert (found.rule, what in found.message) == ("rows.format", True)


@pytest.mark.parametrize("head", [b"", b"\n", b'{"a": [\n', b'{"a": 1}\n{"a": 2}\n', b"{\n{}\n", b"\xef\xbb\xbf{}\n"])
def test_json_lines_are_json_lines_however_broken(head: bytes) -> None:
    assert other_format(head) is None
