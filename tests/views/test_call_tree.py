from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymtap.proxy.views.call_tree import Node, call_tree, connected
from gymtap.schemas import Call

type Make = Callable[..., Any]


def _shape(node: Node) -> object:
    ids = "+".join(one.id for one in node.attempts)
    return {ids: [_shape(child) for child in node.children]} if node.children else ids


def _shapes(nodes: list[Node]) -> list[object]:
    return [_shape(node) for node in nodes]


def test_children_stand_under_their_parent_in_order_of_time(exchange: Make) -> None:
    found = [
        exchange(4, Call.VERIFY, 1, at_ms=9),
        exchange(1, Call.RUN),
        exchange(3, Call.RESPONSES, 1, at_ms=5),
        exchange(2, Call.SEED_SESSION, 1, at_ms=2),
    ]
    assert _shapes(call_tree(found, "a1").roots) == [{"a1": ["a2", "a3", "a4"]}]


def test_retries_of_a_call_are_one_node_whose_last_attempt_counts(exchange: Make) -> None:
    found = [exchange(1, Call.MODEL), *(exchange(2 + n, Call.PROVIDER, 1, 429, attempt=n) for n in range(3))]
    tree = call_tree(found, "a1")
    assert _shapes(tree.roots) == [{"a1": ["a2+a3+a4"]}]
    assert tree.roots[0].children[0].exchange.id == "a4"
    assert _shapes(call_tree(found, "a1", fold=False).roots) == [{"a1": ["a2", "a3", "a4"]}]


def test_an_attempt_that_caused_calls_is_never_folded_away(exchange: Make) -> None:
    found = [
        exchange(1, Call.RESPONSES),
        exchange(2, Call.MODEL, 1, 500),
        exchange(3, Call.PROVIDER, 2, 500),
        exchange(4, Call.MODEL, 1, attempt=1),
    ]
    assert _shapes(call_tree(found, "a1").roots) == [{"a1": [{"a2": ["a3"]}, "a4"]}]


def test_the_same_call_made_twice_on_purpose_is_two_nodes(exchange: Make) -> None:
    found = [exchange(1, Call.RESPONSES), exchange(2, Call.MODEL, 1), exchange(3, Call.MODEL, 1)]
    assert _shapes(call_tree(found, "a1").roots) == [{"a1": ["a2", "a3"]}]


def test_what_has_no_known_caller_is_an_orphan(exchange: Make) -> None:
    found = [exchange(1, Call.RUN), exchange(2, Call.TOOL), exchange(3, Call.PROVIDER, parent=77)]
    tree = call_tree(found, "a1")
    assert _shapes(tree.roots) == ["a1"]
    assert _shapes(tree.orphans) == ["a2", "a3"]


def test_blame_lies_where_a_call_failed_and_nothing_beneath_it_did(exchange: Make) -> None:
    found = [exchange(1, Call.RUN, status=500), exchange(2, Call.RESPONSES, 1), exchange(3, Call.TOOL, 2, 404)]
    tree = call_tree(found, "a1")
    assert [node.exchange.id for node in tree.walk() if node.blamed] == ["a1", "a3"]


def test_what_is_connected_is_all_of_one_tree(exchange: Make) -> None:
    """Whichever of its exchanges is asked about; parents that go round in a circle end the climb."""
    tree = [exchange(1, Call.OTHER), exchange(2, Call.MODEL, 1), exchange(4, Call.PROVIDER, 2)]
    among = [tree[0], tree[1], exchange(3, Call.OTHER), tree[2], exchange(5, Call.TOOL, 9)]
    assert [connected(one, among) for one in tree] == [tree] * 3
    circle = [exchange(6, Call.TOOL, 7), exchange(7, Call.TOOL, 6)]
    assert connected(circle[0], circle) == circle


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.sampled_from([Call.RUN, Call.TOOL])), max_size=12))
def test_no_exchange_is_lost_or_shown_twice_whatever_the_parents_say(
    exchange: Make, links: list[tuple[int, int, Call]]
) -> None:
    found = [exchange(n, call, parent or None, attempt=attempt) for n, (parent, attempt, call) in enumerate(links, 1)]
    for fold in (True, False):
        shown = [one.id for node in call_tree(found, "a1", fold=fold).walk() for one in node.attempts]
        assert sorted(shown) == sorted(one.id for one in found)
