"""The tap as a whole: what it does when recording fails, and whose addons it takes."""

import asyncio
import gc
import shutil
import sys
from pathlib import Path

import aiohttp
import pytest

from gymtap.proxy.core.errors import CaptureError, UsageError
from gymtap.proxy.store import Capture
from gymtap.proxy.tap import GAPS_EXIT_CODE, NEW_OBJECTS, Tap, TapSettings
from gymtap.proxy.wiring.wrap import Wrapping, conclude, wrap
from gymtap.schemas import Call, GapKind, Server

_NO_ROOM = 0


def _server(url: str) -> Server:
    return Server(name="policy", listen="http://127.0.0.1:0", upstream=url)


async def _post(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=b"x" * 1000) as response:
        await response.read()
        return response.status


async def test_traffic_goes_on_when_it_cannot_be_kept(provider, tmp_path) -> None:
    """Every exchange has its record, what is missing is counted, and the capture says so."""
    async with Tap(TapSettings(capture=tmp_path / "c", queue_bytes=_NO_ROOM)) as tap:
        listener = await tap.listen(_server(provider.url))
        assert [await _post(listener.server.listen) for _ in range(3)] == [200, 200, 200]
    info = Capture(tmp_path / "c").info()
    assert info.exchanges == 3
    assert {gap.kind for gap in info.gaps} == {GapKind.QUEUE_FULL}


@pytest.mark.parametrize(("before", "during"), [(700, NEW_OBJECTS), (0, 0), (10 * NEW_OBJECTS, 10 * NEW_OBJECTS)])
async def test_the_process_has_its_collector_of_cycles_back(before, during, tmp_path) -> None:
    """A tap makes it wait for more, though never for less, and not where it is off; afterwards all is as it was."""
    theirs = gc.get_threshold()
    try:
        gc.set_threshold(before, 7, 9)
        async with Tap(TapSettings(capture=tmp_path / "c")):
            assert gc.get_threshold()[:2] == (during, 7)
        assert gc.get_threshold()[:2] == (before, 7)
    finally:
        gc.set_threshold(*theirs)


@pytest.mark.parametrize(
    ("name", "said"), [("redact", "cannot be left out"), ("nonesuch", "no addon is called nonesuch")]
)
def test_only_an_addon_that_is_no_safeguard_can_be_left_out(name, said, tmp_path) -> None:
    with pytest.raises(UsageError, match=said):
        Tap(TapSettings(capture=tmp_path / "c", without=(name,)))


async def test_an_addon_can_be_left_out(provider, tmp_path) -> None:
    """Without identity, nothing says which row an exchange is of, nor what it asks for."""
    async with Tap(TapSettings(capture=tmp_path / "c", without=("identity",))) as tap:
        listener = await tap.listen(_server(provider.url))
        await _post(f"{listener.server.listen}/run")
    (exchange,) = Capture(tmp_path / "c").exchanges()
    assert exchange.call is Call.OTHER


async def test_a_strict_tap_lets_nothing_pass_after_a_gap(provider, tmp_path) -> None:
    """It says why, and from then on clients are refused."""
    async with Tap(TapSettings(capture=tmp_path / "c", strict=True, queue_bytes=_NO_ROOM)) as tap:
        listener = await tap.listen(_server(provider.url))
        assert await _post(listener.server.listen) == 200
        assert await tap.broken()
        with pytest.raises(aiohttp.ClientConnectionError):
            await _post(listener.server.listen)
    assert len(provider.seen) == 1


async def test_a_lenient_tap_is_never_broken(provider, tmp_path) -> None:
    """Whoever waits for that waits for ever."""
    async with Tap(TapSettings(capture=tmp_path / "c", queue_bytes=_NO_ROOM)) as tap:
        listener = await tap.listen(_server(provider.url))
        await _post(listener.server.listen)
        waiting = asyncio.ensure_future(tap.broken())
        await _post(listener.server.listen)
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize(("own", "status"), [(0, GAPS_EXIT_CODE), (9, 9)])
async def test_gaps_show_in_the_exit_status_of_a_run_that_succeeded(wrapped, miniature, provider, own, status) -> None:
    """A command that failed keeps its own status; either way one line says what is missing."""
    miniature.only_calling(provider.url)
    ended, _, said = await wrapped(1, own, queue_bytes=_NO_ROOM)
    assert ended == status
    (told,) = [line for line in said if "NOT everything was captured" in line]
    assert "queue_full" in told


async def test_a_strict_run_is_stopped(wrapped, miniature, provider) -> None:
    """The command gets SIGINT instead of running on unrecorded."""
    miniature.only_calling(provider.url)
    ended, _, said = await wrapped(10**6, strict=True, queue_bytes=_NO_ROOM)
    assert ended != 0
    assert any(line.startswith("gymtap: --strict-capture: ") for line in said)


async def test_a_capture_is_not_mixed_with_other_files(tmp_path) -> None:
    """A directory that holds something else is refused."""
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(CaptureError):
        async with Tap(TapSettings(capture=tmp_path)):
            raise AssertionError("entered")


async def test_a_capture_that_cannot_be_read_is_not_joined(tmp_path) -> None:
    """It is refused before anything passes, and nothing is added to it."""
    (tmp_path / "a.sqlite").write_bytes(b"no database")
    with pytest.raises(CaptureError, match="not a capture, or damaged"):
        async with Tap(TapSettings(capture=tmp_path)):
            raise AssertionError("entered")
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite"]


async def test_a_capture_that_another_tap_begins_just_now_is_joined(tmp_path) -> None:
    """Its file is there and still empty."""
    (tmp_path / "a.sqlite").touch()
    async with Tap(TapSettings(capture=tmp_path)):
        assert (tmp_path / "b.sqlite").exists()


async def test_a_run_keeps_its_status_when_its_capture_cannot_be_read(tmp_path) -> None:
    """One line says so, and the status is the command's own where that is not 0."""
    code = f"import pathlib, sys; pathlib.Path({str(tmp_path / 'c' / 'z.sqlite')!r}).write_text('no database')"
    for own, status in ((0, 3), (9, 9)):
        said: list[str] = []
        command = [sys.executable, "-c", f"{code}; sys.exit({own})"]
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        assert await wrap(Wrapping(command, TapSettings(capture=tmp_path / "c")), said.append) == status
        assert "z.sqlite: not a capture, or damaged" in said[-1]


async def test_what_tls_refused_is_said_at_the_end(provider, tmp_path) -> None:
    """Once, however often it happened: the application saw nothing but broken connections."""
    async with Tap(TapSettings(capture=tmp_path / "c")) as tap:
        port = provider.url.rpartition(":")[2]
        listener = await tap.listen(_server(f"https://localhost:{port}"))
        for _ in range(2):
            with pytest.raises(aiohttp.ClientConnectionError):
                await _post(listener.server.listen)
    said: list[str] = []
    assert conclude(tap, 0, said.append, nothing="") == 0
    (told,) = [line for line in said if "TLS" in line]
    assert told.startswith("gymtap: the TLS handshake with localhost failed: ")


def _install(directory: Path, target: str) -> None:
    """A distribution with one addon, as pip would leave it."""
    info = directory / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gymtap.addons]\nother = {target}\n")


async def test_an_addon_of_a_third_party_is_taken(provider, tmp_path, monkeypatch) -> None:
    """It sees every exchange, after redaction."""
    site = tmp_path / "site"
    site.mkdir()
    _install(site, "other_addon:Other")
    (site / "other_addon.py").write_text(
        "from gymtap.proxy.core.addon import Addon\n"
        "seen = []\n"
        "class Other(Addon):\n"
        "    def __init__(self, setup): pass\n"
        "    def ended(self, flow): seen.append((flow.target, flow.header('authorization')))\n"
    )
    monkeypatch.syspath_prepend(str(site))
    async with Tap(TapSettings(capture=tmp_path / "c")) as tap:
        listener = await tap.listen(_server(provider.url))
        headers = {"Authorization": "Bearer sk-planted-secret-0123456789"}
        async with aiohttp.ClientSession(headers=headers) as session:
            await (await session.get(listener.server.listen + "/v1/models")).read()
    ((target, authorization),) = sys.modules["other_addon"].seen
    assert target == "/v1/models"
    assert "planted" not in authorization


async def test_an_addon_that_cannot_be_loaded_is_a_gap(provider, tmp_path, monkeypatch) -> None:
    """The tap records without it, and says which."""
    site = tmp_path / "site"
    site.mkdir()
    _install(site, "no_such_module:Other")
    monkeypatch.syspath_prepend(str(site))
    async with Tap(TapSettings(capture=tmp_path / "c")) as tap:
        listener = await tap.listen(_server(provider.url))
        assert await _post(listener.server.listen) == 200
    (gap,) = Capture(tmp_path / "c").info().gaps
    assert gap.kind is GapKind.ADDON_FAILED
    assert "the addon other cannot be loaded" in gap.detail
