from dataclasses import replace

from gymtap.proxy.replay.hops import first_difference
from gymtap.proxy.replay.inner import below, paired


def twin(one, **changes):
    return replace(one, **changes)


def test_the_first_hop_in_time_is_named_not_the_outermost(row):
    pairs = [(one, twin(one)) for one in row]
    changed = {"a5": b'{"choices": []}', "a9": b"{}", "a1": b'"other"'}
    pairs = [(old, twin(new, response_body=changed.get(old.exchange.id, new.response_body))) for old, new in pairs]
    found = first_difference(pairs)
    assert (found.exchange, found.side) == ("a5", "response")
    assert str(found).startswith("a5 ?->provider (provider) response differs: /choices/0")


def test_a_request_differs_before_the_answer_to_it(row):
    pairs = [(row[7], twin(row[7], request_body=b"{}", response_body=b"{}"))]
    assert first_difference(pairs).side == "request"


def test_a_call_that_was_not_made_and_one_that_is_new_are_named(row):
    assert first_difference([(row[5], None)]).side == "unsent"
    assert first_difference([(row[5], row[5])], [row[6]]).side == "new"
    assert first_difference([(row[5], row[5])]) is None


def test_another_status_is_a_difference_whatever_the_bodies_say(row):
    other = row[8].exchange.response.model_copy(update={"status": 500})
    failed = twin(row[8], exchange=row[8].exchange.model_copy(update={"response": other}))
    assert first_difference([(row[8], failed)]).text == "422 -> 500"


def test_calls_are_paired_with_their_repeats_by_server_call_and_path_in_order(row):
    repeats = [twin(one) for one in row if one.exchange.id != "a6"]
    pairs, new = paired(row[1:], repeats)
    assert {old.exchange.id: new and new.exchange.id for old, new in pairs} == {
        **{f"a{n}": f"a{n}" for n in range(2, 10)},
        "a6": None,
    }
    assert [one.exchange.id for one in new] == ["a1"]


def test_everything_below_a_parent_is_found_at_any_depth(row):
    found = below("a3", [one.exchange for one in row])
    assert {one.id for one in found} == {"a4", "a5", "a7", "a8"}
