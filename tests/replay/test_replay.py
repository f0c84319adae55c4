"""Replays on the miniature Gym: real servers on loopback, a capture that a real tap made of them."""

import asyncio
import json
import resource

import pytest

from gymtap.proxy.demo.dataset import rows
from gymtap.proxy.replay.edits import assignment
from gymtap.proxy.replay.prepare import Changes, changed, of_row
from gymtap.proxy.replay.run import Order, replay
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import Tap, TapSettings
from gymtap.schemas import Call, RowKey


async def recorded(live):
    """Until a running tap has written what has ended."""
    while Capture(live).info().open_exchanges or not list(Capture(live).rows()):  # noqa: ASYNC110 - another thread's
        await asyncio.sleep(0.02)


@pytest.fixture(name="replay")
def replay_command(gym, gymtap):
    """`replay("11.0", …)`: with `--yes`, on the miniature's capture; the JSON results."""

    def call(*arguments, code=0):
        said = gymtap("replay", *arguments, "--yes", "--json", "--capture", str(gym.capture))
        assert said.code == code, said.err
        return said.json()

    return call


def test_a_verify_that_failed_fails_again_in_a_fresh_session(replay):
    [found] = replay("11.0", "--from", "verify", "-n", "2")["results"]
    assert (found["verdict"], found["count"], found["total"]) == ("REPRODUCED", 2, 2)
    assert found["how"] == "422 body.expected_weather: Field required"
    assert found["first_difference"] is None


def test_setting_the_field_that_was_missing_fixes_it_and_shows_the_reward(replay):
    [found] = replay("11.0", "--from", "verify", "--set", "/expected_weather=sunny")["results"]
    assert (found["verdict"], found["edited"]) == ("FIXED", True)
    assert (found["reward_before"], found["attempts"][0]["reward"]) == (None, 1.0)


def test_another_wrong_value_fails_in_another_way_which_is_named(replay):
    [found] = replay("11.0", "--from", "verify", "--set", "/expected_weather=tepid")["results"]
    assert found["verdict"] == "DIFFERENT"
    assert found["how"] == "KeyError('tepid'); it was: 422 body.expected_weather: Field required"


def test_every_failed_row_fails_again_as_it_did(replay, gym):
    results = replay("--failed")["results"]
    assert {found["name"]: found["verdict"] for found in results} == {
        row.key.label: "REPRODUCED" for row in Capture(gym.capture).rows(failed=True)
    }
    assert len(results) == 8


def test_a_row_that_went_well_gives_the_same_reward(replay):
    [found] = replay("0.0")["results"]
    assert (found["verdict"], found["reward_before"], found["attempts"][0]["reward"]) == ("REPRODUCED", 1.0, 1.0)


@pytest.mark.parametrize("start", ["seed", "model", "model:2", "tool", "responses", "provider:2"])
def test_a_row_can_be_begun_at_any_hop(replay, monkeypatch, start):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    [found] = replay("0.0", "--from", start)["results"]
    assert found["verdict"] == "REPRODUCED"


def test_an_exchange_is_sent_again_by_its_id_and_by_its_id_within_a_row(replay, gym):
    tool = next(Capture(gym.capture).exchanges(row=RowKey(task=0, rollout=0), call=Call.TOOL))
    for arguments in ([tool.id], ["0.0", "--from", tool.id]):
        [found] = replay(*arguments)["results"]
        assert (found["exchange"], found["verdict"]) == (tool.id, "REPRODUCED")


def test_each_replay_is_a_new_tree_in_a_capture_of_its_own_linked_to_its_original(replay, gym, tmp_path):
    into = tmp_path / "kept"
    [found] = replay("11.0", "--from", "verify", "-n", "2", "--into", str(into))["results"]
    kept = Capture(into)
    assert [row.key.label for row in kept.rows()] == ["11.0", "r2:11.0"]
    calls = [one.call for one in kept.exchanges(row=RowKey(task=11, rollout=0))]
    assert calls == [Call.SEED_SESSION, Call.TOOL, Call.VERIFY]
    judged = kept.exchange(found["attempts"][1]["exchange"])
    assert judged.attribution.evidence == f"replays {found['exchange']}, attempt 2"
    links = [json.loads(line) for line in (into / "replay.jsonl").read_text().splitlines()]
    assert {"exchange": judged.id, "replays": found["exchange"], "capture": str(gym.capture), "attempt": 2} in links
    assert b"Bearer" not in b"".join(file.read_bytes() for file in into.iterdir())


def test_a_replay_is_not_kept_where_something_is_already_least_of_all_in_its_original(gym, gymtap, tmp_path):
    (tmp_path / "file").write_text("x")
    for into in (gym.capture, tmp_path, tmp_path / "file"):
        said = gymtap("replay", "11.0", "--yes", "--capture", str(gym.capture), "--into", str(into))
        assert (said.code, "is not empty" in said.err) == (2, True)
    within = str(gym.capture / "new" / "deep")
    said = gymtap("replay", "11.0", "--yes", "--capture", str(gym.capture), "--into", within)
    assert (said.code, "would lie in the capture" in said.err) == (2, True)


def test_a_disk_that_is_full_ends_a_replay_in_one_line(gym, gymtap, tmp_path):
    """Nothing more is sent then, and what was kept can be read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    into = str(tmp_path / "kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        said = gymtap("replay", "2.0", "-n", "500", "--yes", "--capture", str(gym.capture), "--into", into)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (said.code, said.err.count("gymtap: ")) == (3, 1)
    assert "cannot keep the replay" in said.err
    assert 0 < len(gymtap("rows", "--json", "--capture", into).json()["rows"]) < 500


def test_rows_that_never_came_to_the_call_are_left_out_where_others_did(gym, gymtap):
    """Of the failed rows, those that reached the verifier."""
    command = ("replay", "--failed", "--from", "verify", "--yes", "--json", "--capture", str(gym.capture))
    said = gymtap(*command)
    assert {one["name"] for one in said.json()["results"]} == {"11.0", "14.0", "17.0"}
    assert "5 rows without such a call left out" in said.err
    said = gymtap("replay", "--failed", "--from", "judge", "--yes", "--capture", str(gym.capture))
    assert (said.code, "has no judge call" in said.err) == (2, True)


def test_the_tool_calls_of_a_session_are_left_out_when_asked(replay, tmp_path):
    replay("11.0", "--from", "verify", "--no-tools", "--into", str(tmp_path / "kept"))
    assert [one.call for one in Capture(tmp_path / "kept").exchanges()] == [Call.SEED_SESSION, Call.VERIFY]


def test_what_may_change_something_is_said_and_not_sent_where_nobody_can_agree(gym, gymtap, tmp_path):
    said = gymtap("replay", "0.0", "--capture", str(gym.capture), "--into", str(tmp_path / "kept"))
    assert said.code == 2
    assert f"! run at {gym.miniature.private['weather_environment_server']}/run: runs the agent" in said.err
    assert "add --yes" in said.err
    assert not (tmp_path / "kept").exists()


def test_what_changes_nothing_is_sent_without_asking(gym, gymtap):
    said = gymtap("replay", "0.0", "--from", "model", "--capture", str(gym.capture))
    assert (said.code, said.out.split()[:3]) == (0, ["0.0", "REPRODUCED", "1/1"])
    assert f"1. POST {gym.miniature.private['policy_model']}/v1/responses" in said.err


def test_a_missing_credential_is_said_before_anything_is_sent(gym, gymtap, tmp_path):
    said = gymtap("replay", "0.0", "--from", "provider", "--capture", str(gym.capture), "--into", str(tmp_path / "k"))
    assert said.code == 2
    assert "provider needs a credential, which no capture has; nothing was sent" in said.err
    assert not (tmp_path / "k").exists()


def test_a_server_that_is_gone_is_said_before_anything_is_sent(gym, gymtap, tmp_path):
    to = f"weather_environment_server=http://127.0.0.1:{gym.stub_port}"
    said = gymtap("replay", "0.0", "--yes", "--to", to, "--capture", str(gym.capture))
    assert said.code == 1
    assert f"weather_environment_server does not listen at http://{gym.stub}" in said.err
    said = gymtap("replay", "0.0", "--yes", "--gym", f"http://{gym.stub}", "--capture", str(gym.capture))
    assert said.code == 1
    assert f"no Gym head answers at http://{gym.stub}" in said.err


def test_a_gym_that_runs_where_the_captures_head_was_says_where_its_servers_are(gym, gymtap):
    head = gym.miniature.private["head_server"]
    moved = dict(gym.miniature.egress.addresses)
    gym.miniature.egress.addresses["policy_model"] = "http://127.0.0.1:1"
    said = gymtap("replay", "0.0", "--from", "model", "--capture", str(gym.capture))
    gym.miniature.egress.addresses.update(moved)
    assert said.code == 1
    assert "policy_model does not listen at http://127.0.0.1:1" in said.err
    said = gymtap("replay", "0.0", "--from", "model", "--capture", str(gym.capture))
    assert f"servers are where the Gym at {head} says" in said.err


def test_servers_are_found_through_a_head(replay, gym):
    [found] = replay("0.0", "--gym", gym.miniature.private["head_server"])["results"]
    assert found["verdict"] == "REPRODUCED"


def test_a_server_can_be_somewhere_else(replay, gym):
    [found] = replay("0.0", "--from", "verify", "--to", f"weather={gym.miniature.private['weather']}")["results"]
    assert found["verdict"] == "REPRODUCED"


def test_the_provider_can_be_another_endpoint_with_another_model(replay, gym, monkeypatch):
    monkeypatch.setenv("MY_KEY", "any")
    endpoint = gym.miniature.private["provider"] + "/v1"
    more = ("--endpoint", endpoint, "--model", "other", "--api-key-env", "MY_KEY")
    [found] = replay("0.0", "--from", "provider", *more)["results"]
    assert found["edited"]
    assert found["verdict"] == "REPRODUCED"


def test_through_a_running_tap_the_first_hop_that_differs_is_found_inside_the_run(gym, stand_before, tmp_path):
    """Without it only what was sent and what came back is known."""
    weather = "/responses_create_params/input/1/content=What is the weather like in Bergen?"

    async def recorded_and_replayed():
        live = tmp_path / "live"
        async with Tap(TapSettings(capture=live)) as tap:
            await stand_before(tap, gym.miniature)
            await gym.miniature.collect(rows()[:1], 1)
            await recorded(live)
            draft = changed(of_row(Capture(live), RowKey(task=0, rollout=0), "run"), Changes((assignment(weather),)))
            order = Order([draft], Capture(live).servers(), live, tmp_path / "kept", live=live)
            [result] = await replay(order, {}, lambda _: True)
        gym.miniature.egress.addresses.update(gym.miniature.private)
        return result, Capture(live)

    result, live = gym.call(recorded_and_replayed())
    assert (result.first.boundary, result.first.call, result.first.side) == ("environment->agent", "run", "request")
    roots = [one for one in live.exchanges(call=Call.RUN) if (one.parent or "").startswith("replay-")]
    assert len(roots) == 1
    assert [row.key.label for row in live.rows()] == ["0.0"]


@pytest.mark.parametrize("start", ["verify", "run", "model", "tool", "seed"])
def test_through_a_running_tap_a_replay_changes_nothing_that_is_known_of_the_row(
    gym, gymtap, stand_before, tmp_path, start
):
    """What the tap records of it is marked, of no row, and below one parent; the row stays as it was."""
    live = tmp_path / "live"

    async def recorded_and_replayed():
        async with Tap(TapSettings(capture=live)) as tap:
            await stand_before(tap, gym.miniature)
            await gym.miniature.collect([rows()[11]], 1)
            await recorded(live)
            before = await asyncio.to_thread(known_of_rows, gymtap, live)
            draft = of_row(Capture(live), RowKey(task=11, rollout=0), start)
            order = Order([draft], Capture(live).servers(), live, tmp_path / "kept", live=live)
            [result] = await replay(order, {}, lambda _: True)
            await gym.miniature.collect([rows()[12]], 1)
            await recorded(live)
        gym.miniature.egress.addresses.update(gym.miniature.private)
        return result, before

    result, before = gym.call(recorded_and_replayed())
    after = known_of_rows(gymtap, live)
    assert result.verdict.word == "REPRODUCED"
    assert [row["label"] for row in after.pop("rows")] == ["11.0", "12.0"]
    assert [row["label"] for row in before.pop("rows")] == ["11.0"]
    assert after["why"] == before["why"]
    assert [one["rows"] for one in before["causes"]] == [["11.0"]]
    assert ["11.0"] in [one["rows"] for one in after["causes"]]
    assert after["exchanges"] == before["exchanges"]
    replayed = [one for one in Capture(live).exchanges() if (one.parent or "").startswith("replay-")]
    assert replayed
    assert all(one.attribution.row is None and "replay-" in one.attribution.evidence for one in replayed)


def known_of_rows(gymtap, capture):
    """What the faces say of a capture's rows, and of the exchanges of row 11.0."""
    why = gymtap("why", "11.0", "--json", "--capture", str(capture)).json()
    return {
        "rows": gymtap("rows", "--json", str(capture)).json()["rows"],
        "why": why,
        "causes": gymtap("causes", "--json", str(capture)).json()["causes"],
        "exchanges": [one.id for one in Capture(capture).exchanges(row=RowKey(task=11, rollout=0))],
    }


def test_rows_can_come_from_a_file(replay, tmp_path):
    (tmp_path / "rows").write_text("11.0\n\n# a comment\n14.0  # KeyError\n")
    assert [found["name"] for found in replay("--rows", str(tmp_path / "rows"))["results"]] == ["11.0", "14.0"]


def test_rows_can_be_those_of_one_cause(replay, gym, gymtap):
    found = gymtap("causes", "--json", str(gym.capture)).json()["causes"]
    cause = next(one for one in found if "11.0" in one["rows"])
    assert [one["name"] for one in replay("--cause", cause["fingerprint"])["results"]] == cause["rows"]
    said = gymtap("replay", "--cause", "nothing", "--yes", "--capture", str(gym.capture))
    assert (said.code, "no row has the cause nothing" in said.err) == (2, True)


def test_a_file_of_rows_that_holds_something_else_is_refused_with_its_line(gym, gymtap, tmp_path):
    (tmp_path / "rows").write_text("11.0\neleven\n")
    said = gymtap("replay", "--rows", str(tmp_path / "rows"), "--yes", "--capture", str(gym.capture))
    assert (said.code, "line 2: 'eleven' is not a row" in said.err) == (2, True)


def test_an_editor_changes_the_body_and_a_broken_body_is_not_sent(gym, gymtap, monkeypatch, tmp_path):
    editor = tmp_path / "editor.sh"
    monkeypatch.setenv("VISUAL", f"sh {editor}")
    command = ("replay", "11.0", "--from", "verify", "--edit", "--yes", "--capture", str(gym.capture))
    editor.write_text('sed -i \'s/"agent_ref"/"expected_weather": "sunny", "agent_ref"/\' "$1"\n')
    said = gymtap(*command)
    assert "11.0  FIXED 1/1" in said.out
    assert '+  "expected_weather": "sunny",' in said.err
    editor.write_text('echo "{" > "$1"\n')
    said = gymtap(*command)
    assert (said.code, "what was written is not JSON" in said.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["0.0", "--failed"],
        ["0.0", "--from", "nowhere"],
        ["0.0", "--from", "tool:9"],
        ["0.0", "--set", "x=1"],
        ["0.0", "--from", "verify", "--model", "m"],
        ["0.0", "--stub-loose"],
        ["0.0", "--stub", "nobody"],
        ["0.0", "--stub", "provider", "--stub-listen", "here"],
        ["0.0", "--patch", "/nonexistent"],
        ["0.0", "--to", "weather"],
        ["0.0", "--to", "wether=http://127.0.0.1:1"],
        ["0.0", "--to", "provider=http://127.0.0.1:1"],
        ["0.0", "--to", "weather=http://127.0.0.1:x"],
        ["0.0", "--gym", "http://[::1"],
        ["0.0", "--endpoint", "http://127.0.0.1:1/v1"],
        ["0.0", "--rows", "/dev/null"],
        ["--rows", "/dev/null"],
        [__file__],
        ["a1", "--from", "verify"],
        ["--failed", "--edit"],
        ["eleven"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_in_one_line(gym, gymtap, arguments):
    said = gymtap("replay", *arguments, "--yes", "--capture", str(gym.capture))
    assert said.code == 2
    assert "Traceback" not in said.err
    assert said.err.count("gymtap: ") == 1
