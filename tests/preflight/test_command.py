"""`gymtap preflight` as it is typed: exit statuses, the key from a variable, JSON."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.cli.program import execute

TOOL = {"type": "function", "name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    bad = {**TOOL, "parameters": {"type": "object", "properties": {"a": {"type": "str"}}}}
    rows = [{"responses_create_params": {"input": "x", "tools": [tool]}} for tool in (TOOL, bad)]
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(file)


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(execute, ["preflight", *arguments])


async def test_a_refusal_is_exit_status_one(provider: Any, dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command(dataset, "--endpoint", provider.url, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["outcomes"] == {"accepted": 1, "schema_rejected": 1}
    assert told["model"] == "tiny"
    assert [one["where"].rpartition(":")[2] for one in told["requests"]] == ["1", "2"]


async def test_all_accepted_is_exit_status_nought(
    provider: Any, dataset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.bad = "nothing"
    assert await command(dataset, "--endpoint", provider.url, "--no-grammar") == 0
    assert "2 of 2 distinct requests accepted" in capsys.readouterr().out


async def test_a_server_that_cannot_be_asked_is_exit_status_two(
    provider: Any, dataset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command(dataset, "--endpoint", provider.url, "--model", "nope") == 2
    assert "--model tiny" in capsys.readouterr().out


async def test_the_key_comes_from_the_environment(
    provider: Any, dataset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is printed nowhere."""
    provider.key = "k-3f9c2a7e"
    monkeypatch.setenv("PROVIDER_KEY", provider.key)
    assert await command(dataset, "--endpoint", provider.url, "--api-key-env", "PROVIDER_KEY") == 1
    out = capsys.readouterr()
    assert provider.key not in out.out + out.err


async def test_a_variable_that_is_not_set_is_said(provider: Any, dataset: str) -> None:
    assert await command(dataset, "--endpoint", provider.url, "--api-key-env", "GYMTAP_TEST_NO_SUCH") == 2
    assert provider.asked == []
