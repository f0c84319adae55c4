"""What a run left on disk: each thing that can be wrong with it, and that a healthy one has none of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.doctor.report import Outcome
from gymtap.proxy.doctor.run_files import beside, read_rows

type Doctor = Callable[..., Any]
NOW_S = 1_806_000_000
"""As the fixture has it."""


def test_a_healthy_run_is_healthy(run: Any, doctor: Doctor) -> None:
    """Exit status 0; what cannot be known from files is not called ok."""
    looked = doctor(output=run.output, source=run.source)
    assert (looked.verdict, looked.problems, looked.report.exit_code) == (("none", None), [], 0)
    outcomes = [str(step.outcome) for step in looked.report.steps]
    assert outcomes == ["not checked", "ok", "ok", "ok", "ok", "ok", "ok", "not checked"]
    assert looked.step(5).why == "6 of 6 rows agree with the source; not older than the source"
    assert "6 results of 6 dispatched, 0 failures" in looked.step(6).why


def test_data_that_changed_after_they_were_materialized(run: Any, doctor: Doctor) -> None:
    rows = run.read("data.jsonl")
    rows[1]["expected_answer"] = "two"
    run.write("data.jsonl", rows, 1_796_000_500)
    looked = doctor(output=run.output, source=run.source)
    assert looked.verdict == ("cache_resume", "cache.stale_inputs")
    assert 5 in looked.problems
    assert "rollouts_materialized_inputs.jsonl:3 differs from row 2 of data.jsonl in expected_answer" in str(
        looked.report
    )


def test_a_source_that_lost_rows(run: Any, doctor: Doctor) -> None:
    run.write("data.jsonl", run.read("data.jsonl")[:2], 1_796_000_500)
    looked = doctor(output=run.output, source=run.source)
    assert looked.verdict == ("cache_resume", "cache.stale_inputs")
    assert "is task 2, which data.jsonl does not have" in looked.step(5).why


def test_a_source_that_was_only_touched_is_not_stale(run: Any, doctor: Doctor) -> None:
    os.utime(run.source, (1_796_000_900, 1_796_000_900))
    looked = doctor(output=run.output, source=run.source)
    assert looked.report.exit_code == 0
    assert "older than the source, with the same content" in looked.step(5).why


def test_parameters_that_the_run_overrides_are_not_stale(run: Any, doctor: Doctor) -> None:
    """`++responses_create_params.temperature=0` is in every materialized row, and in no source row."""
    rows = run.read("rollouts_materialized_inputs.jsonl")
    for row in rows:
        row["responses_create_params"]["temperature"] = 0.0
    run.write("rollouts_materialized_inputs.jsonl", rows)
    looked = doctor(output=run.output, source=run.source)
    assert looked.report.exit_code == 0
    assert "parameters overridden" in looked.step(5).why


def cut_last(run: Any) -> None:
    text = run.output.read_text()
    run.output.write_text(text[:-40])


def fuse(run: Any) -> None:
    lines = run.output.read_text().splitlines()
    run.output.write_text("\n".join([lines[0], lines[1][:50] + lines[2], *lines[3:]]) + "\n")


def repeat_a_row(run: Any) -> None:
    rows = run.read()
    run.write("rollouts.jsonl", [*rows, rows[2]])


def mix_in_a_stranger(run: Any) -> None:
    rows = run.read()
    run.write("rollouts.jsonl", [*rows, rows[0] | {"_ng_task_index": 77}])


def lose_results(run: Any) -> None:
    run.write("rollouts.jsonl", run.read()[:2])


def empty_the_metrics(run: Any) -> None:
    (run.folder / "rollouts_aggregate_metrics.json").write_text("[]")


def lose_usage(run: Any) -> None:
    rows = run.read()
    rows[3]["response"]["usage"] = None
    run.write("rollouts.jsonl", rows)


def lose_all(run: Any) -> None:
    run.write("rollouts.jsonl", [])


@pytest.mark.parametrize(
    ("spoil", "rule", "said"),
    [
        (cut_last, "cache.cut_line", "rollouts.jsonl:6 is cut"),
        (fuse, "cache.cut_line", "rollouts.jsonl:2 is not JSON"),
        (repeat_a_row, "cache.duplicate_keys", "task 1 rollout 0 2 times"),
        (mix_in_a_stranger, "doctor.strangers", "1 results in rollouts.jsonl are of rows that"),
        (lose_results, "cache.counts", "4 of 6 dispatched rows have neither a result nor a failure"),
        (empty_the_metrics, "cache.empty_profile", "rollouts_aggregate_metrics.json is empty"),
        (lose_usage, "cache.usage_missing", "rollouts.jsonl:4 has no response.usage (1 of 6 rows)"),
        (lose_all, "doctor.no_result", "6 rows in rollouts_materialized_inputs.jsonl, and no result"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_each_thing_that_can_be_wrong_is_named(
    run: Any, doctor: Doctor, spoil: Callable[[Any], None], rule: str, said: str
) -> None:
    spoil(run)
    looked = doctor(output=run.output)
    assert looked.report.exit_code == 1
    assert 6 in looked.problems
    assert looked.verdict[1] == rule
    assert said in looked.step(6).why


def test_a_run_that_is_under_way_is_not_partial(run: Any, doctor: Doctor) -> None:
    """Its output was written five seconds ago."""
    run.write("rollouts.jsonl", run.read()[:2], NOW_S - 5)
    looked = doctor(output=run.output)
    assert (looked.problems, looked.report.exit_code) == ([], 0)
    assert [note.text for note in looked.step(6).notes] == ["2 of 6 dispatched rows have ended so far"]


def test_no_result_and_no_reason_is_an_honest_unknown(run: Any, doctor: Doctor) -> None:
    lose_all(run)
    assert doctor(output=run.output).verdict[0] == "unknown"


def test_tasks_with_different_numbers_of_rollouts(run: Any, doctor: Doctor) -> None:
    """And a number that is not the one that the collector says."""
    rows, log = run.read("rollouts_materialized_inputs.jsonl"), run.log("Repeating rows 4 times (in a pattern)!\n")
    looked = doctor(output=run.output, logs=(log,))
    assert "the log says 4 rollouts a task, the file has 2" in looked.step(5).why
    run.write("rollouts_materialized_inputs.jsonl", rows[:-1])
    run.write("rollouts.jsonl", run.read()[:-1])
    assert "tasks have different numbers of rollouts" in doctor(output=run.output).step(5).why


def test_a_row_far_down_that_should_not_count_is_found(run: Any, doctor: Doctor) -> None:
    """A tool's 404 that was fed to the model, in the thousandth row; the reward is there all the same."""
    rows = [run.read()[0] | {"_ng_task_index": task} for task in range(1_000)]
    call = {"type": "function_call", "name": "no_such_tool", "call_id": "c", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "c", "output": '{"detail":"Not Found"}'}
    response = rows[-1]["response"]
    rows[-1] = rows[-1] | {"response": response | {"output": [call, answer, *response["output"]]}}
    run.write("rollouts.jsonl", rows)
    run.write("rollouts_materialized_inputs.jsonl", [source | {"response": None} for source in rows])
    looked = doctor(output=run.output)
    assert looked.verdict == ("model_serving", "model.unknown_tool")
    assert looked.problems == [4]
    assert "rollouts.jsonl:1000" in looked.step(4).why


def test_a_line_of_the_source_that_is_no_row(run: Any, doctor: Doctor) -> None:
    """However far down it stands."""
    text = run.source.read_text()
    run.source.write_text(text * 300 + '{"responses_create_params": {"input": "x"}}{"a": 1}\n' + text)
    looked = doctor(source=run.source)
    assert looked.verdict == ("data_schema", "data.line")
    assert "data.jsonl:901 holds a second record" in looked.step(5).why


def test_nothing_is_ever_changed(run: Any, doctor: Doctor) -> None:
    cut_last(run)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.folder.iterdir()}
    doctor(output=run.output, source=run.source, logs=(run.log("Traceback (most recent call last):\nE: x\n"),))
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.folder.iterdir()}
    assert {path: after[path] for path in before} == before


def test_a_folder_with_one_run_names_it_and_with_two_does_not(run: Any, tmp_path: Path) -> None:
    assert beside(tmp_path).output == run.output
    run.write("other_materialized_inputs.jsonl", [])
    with pytest.raises(UsageError, match="holds 2 runs"):
        beside(tmp_path)


def test_a_run_that_died_before_its_first_result_has_inputs_only(run: Any, doctor: Doctor) -> None:
    run.output.unlink()
    looked = doctor(output=run.output)
    assert (looked.verdict[1], looked.step(6).outcome) == ("doctor.no_result", Outcome.PROBLEM)
    with pytest.raises(UsageError, match="no such file"):
        beside(tmp := run.folder / "nothing.jsonl")
    assert not tmp.exists()


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(json.dumps({"_ng_task_index": 1}).encode())), max_size=8))
def test_any_bytes_are_read_and_every_line_is_counted(tmp_path_factory: Any, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    rows = read_rows(path)
    assert rows.count == sum(1 for line in path.read_bytes().split(b"\n") if line.strip())
