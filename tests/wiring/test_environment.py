"""The variables keep what was on PYTHONPATH, and are the same when they are added twice."""

from gymtap.proxy.wiring.environment import SHIM, Parts, wiring_variables


def test_keeps_the_path_behind_the_shim() -> None:
    """Ours is first, once; the rest keeps its order and its empty entries."""
    once = wiring_variables("http://127.0.0.1:1", "t", Parts(), {"PYTHONPATH": "/a::/b"})
    twice = wiring_variables("http://127.0.0.1:1", "t", Parts(), once)
    assert once["PYTHONPATH"] == f"{SHIM}:/a::/b"
    assert twice == once


def test_sets_nothing_but_the_shim_where_there_was_no_path() -> None:
    """An empty PYTHONPATH gets no entry for the current directory."""
    assert wiring_variables("u", "t", Parts(), {})["PYTHONPATH"] == str(SHIM)


def test_names_each_switch() -> None:
    """A part that is off says so; one that is on overrides an outer run's switch."""
    variables = wiring_variables("u", "t", Parts(takeover=False, egress=False), {"GYMTAP_NO_CAUSALITY": "1"})
    switches = {name: value for name, value in variables.items() if name.startswith("GYMTAP_NO_")}
    assert switches == {"GYMTAP_NO_TAKEOVER": "1", "GYMTAP_NO_CAUSALITY": "", "GYMTAP_NO_EGRESS": "1"}
