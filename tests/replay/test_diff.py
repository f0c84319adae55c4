"""Two rows, or two exchanges, side by side."""

from gymtap.proxy.replay.sides import compare
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, RowKey


def provider_calls(gym, task):
    return [one.id for one in Capture(gym.capture).exchanges(row=RowKey(task=task, rollout=0), call=Call.PROVIDER)]


def test_an_exchange_does_not_differ_from_itself(gym, gymtap):
    [first, _] = provider_calls(gym, 0)
    said = gymtap("diff", first, first, "--json", "--capture", str(gym.capture))
    assert said.code == 0
    [hop] = said.json()["hops"]
    assert (hop["same"], hop["request"], hop["response"]) == (True, [], [])


def test_two_rows_are_compared_hop_by_hop_with_their_rewards(gym, gymtap):
    said = gymtap("diff", "0.0", "11.0", "--json", "--capture", str(gym.capture))
    assert said.code == 1
    found = said.json()
    assert found["rewards"] == [1.0, None]
    calls = [hop["call"] for hop in found["hops"]]
    assert calls == [
        "run",
        "run",
        "seed_session",
        "responses",
        "model",
        "provider",
        "tool",
        "model",
        "provider",
        "verify",
    ]
    verify = found["hops"][-1]
    assert (verify["before"]["status"], verify["after"]["status"]) == ("200", "422")
    assert {"pointer": "/expected_weather", "before": "cold"} in verify["request"]


def test_a_hop_that_one_side_does_not_have_is_shown_with_nothing_on_the_other(gym, gymtap):
    found = gymtap("diff", "0.0", "3.0", "--json", "--capture", str(gym.capture)).json()
    extra = [hop for hop in found["hops"] if hop["before"] is None]
    assert [hop["call"] for hop in extra] == ["provider"] * 4
    said = gymtap("diff", "0.0", "3.0", "--capture", str(gym.capture))
    assert "≠ provider  - | " in said.out
    assert "reward 1 | 1" in said.out


def test_the_second_may_be_of_another_capture_and_keys_can_be_ignored(gym, gymtap, tmp_path):
    into = str(tmp_path / "kept")
    command = ("replay", "11.0", "--from", "verify", "--yes", "--json", "--into", into, "--capture", str(gym.capture))
    [found] = gymtap(*command).json()["results"]
    judged = found["attempts"][0]["exchange"]
    more = ("--capture", str(gym.capture), "--other", into)
    assert gymtap("diff", found["exchange"], judged, *more).code == 0
    [first, _], [other, _] = provider_calls(gym, 0), provider_calls(gym, 4)
    whole = gymtap("diff", first, other, "--json", "--capture", str(gym.capture)).json()["hops"][0]
    less = gymtap("diff", first, other, "--json", "--ignore", "choices", "--capture", str(gym.capture)).json()["hops"][
        0
    ]
    assert whole["response"]
    assert not less["response"]
    assert whole["request"]
    assert not gymtap("diff", first, other, "--json", "--ignore", "messages", "--capture", str(gym.capture)).json()[
        "hops"
    ][0]["request"]


def test_a_row_and_an_exchange_cannot_be_compared(gym, gymtap):
    assert gymtap("diff", "0.0", "a1", "--capture", str(gym.capture)).code == 2


def test_a_replay_is_compared_with_what_it_replayed(gym, gymtap, tmp_path):
    """Both the exchange and its row, in the capture in which the original is."""
    into = str(tmp_path / "kept")
    command = ("replay", "11.0", "--from", "verify", "--yes", "--json", "--into", into, "--capture", str(gym.capture))
    [found] = gymtap(*command, "--set", "/expected_weather=sunny").json()["results"]
    judged = found["attempts"][0]["exchange"]
    said = gymtap("diff", judged, "--json", "--capture", into).json()
    assert (said["before"], said["before_capture"]) == (found["exchange"], str(gym.capture))
    assert (said["after"], said["after_capture"]) == (judged, into)
    assert {"pointer": "/expected_weather", "after": "sunny"} in said["hops"][0]["request"]
    row = gymtap("diff", "11.0", "--json", "--capture", into).json()
    assert row["before"].startswith("11.0")
    assert {hop["call"] for hop in row["hops"]} >= {"run", "seed_session", "verify"}


def test_an_attempt_is_compared_with_the_one_before(gym, gymtap):
    retries = provider_calls(gym, 3)
    pairs = [gymtap("diff", one, "--json", "--capture", str(gym.capture)).json()["before"] for one in retries[1:3]]
    assert pairs == retries[:2]


def test_what_has_no_original_says_so(gym, gymtap):
    said = gymtap("diff", "11.0", "--capture", str(gym.capture))
    assert said.code == 2
    assert "replays nothing, and is the first attempt" in said.err


def test_requests_for_two_things_differ_whatever_their_bodies_are(make):
    """The rollout in a path is an id, and no difference."""
    there, same, other = (
        make("a1", Call.TOOL, {"city": "sf"}, {}, at=0, target=target)
        for target in ("/ng-rollout/1-0/get_weather", "/ng-rollout/2-0/get_weather", "/ng-rollout/1-0/get_time")
    )
    assert compare(there, same).same
    pair = compare(there, other)
    assert not pair.same
    assert str(pair.request[0]) == '(what is asked for): "POST /get_weather" -> "POST /get_time"'
