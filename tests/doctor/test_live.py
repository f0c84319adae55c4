"""A run that is up: real servers on loopback, their head, a provider, ports that are taken, configurations."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from gymtap.proxy.listening import holder_of, listeners

type Doctor = Callable[..., Any]

OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "math", "version": "0"},
    "paths": {
        "/verify": {
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Verify"}}},
                    "required": True,
                },
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
    "components": {
        "schemas": {
            "Verify": {
                "type": "object",
                "required": ["expected_answer", "response"],
                "properties": {"expected_answer": {"type": "string"}, "response": {"type": "object"}},
            }
        }
    },
}


@dataclass
class Up:
    """A Gym of three servers and a head; a test changes `config`, or stops a server."""

    head: str
    provider: str
    config: dict[str, Any] = field(default_factory=dict)
    servers: dict[str, TestServer] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


def entry(server_type: str, server: TestServer, **more: Any) -> dict[str, Any]:
    return {server_type: {"impl": {"host": "127.0.0.1", "port": server.port, **more}}}


async def started(routes: dict[str, Callable[[web.Request], Any]]) -> TestServer:
    app = web.Application()
    for path, answer in routes.items():

        async def handle(request: web.Request, answer: Callable[[web.Request], Any] = answer) -> web.Response:
            return web.json_response(answer(request))

        app.router.add_get(path, handle)
    server = TestServer(app)
    await server.start_server()
    return server


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    resources = await started({"/": lambda _: {"status": "ok"}, "/openapi.json": lambda _: OPENAPI})
    agent, model = [await started({"/": lambda _: {"status": "ok"}}) for _ in range(2)]
    keys: list[str] = []

    def models(request: web.Request) -> dict[str, Any]:
        keys.append(request.headers.get("Authorization", ""))
        return {"data": [{"id": "small-model"}, {"id": "other"}]}

    provider = await started({"/v1/models": models})
    url = f"http://127.0.0.1:{provider.port}/v1"
    config: dict[str, Any] = {
        "policy_base_url": url,
        "policy_api_key": "sk-of-the-config",
        "policy_model_name": "small-model",
        "math": entry("resources_servers", resources),
        "math_agent": entry(
            "responses_api_agents", agent, resources_server={"type": "resources_servers", "name": "math"}
        ),
        "policy_model": entry(
            "responses_api_models",
            model,
            base_url="${policy_base_url}",
            api_key="${policy_api_key}",
            model="${policy_model_name}",
        ),
    }
    head = await started(
        {"/global_config_dict_yaml": lambda _: yaml.safe_dump(config), "/server_instances": lambda _: []}
    )
    servers = {"math": resources, "math_agent": agent, "policy_model": model, "provider": provider, "head": head}
    yield Up(f"http://127.0.0.1:{head.port}", url, config, servers, keys)
    for server in servers.values():
        await server.close()


async def looked_at(doctor: Doctor, **given: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, lambda: doctor(**given))


async def test_all_is_up(up: Up, doctor: Doctor, run: Any) -> None:
    """Every server, the provider with the model's name, rows that fit; and the key went where it belongs alone."""
    looked = await looked_at(doctor, gym=up.head, output=run.output)
    assert (looked.verdict[0], looked.problems, looked.report.exit_code) == ("none", [], 0)
    assert looked.step(2).why == f"{up.provider} lists small-model, other"
    assert looked.step(3).why == "all 3 servers of the head's configuration answer"
    assert looked.step(8).why == "6 rows fit the request model of their resources server"
    assert up.keys == ["Bearer sk-of-the-config"]
    assert "sk-of-the-config" not in json.dumps(looked.report.as_json())


async def test_a_server_that_does_not_answer(up: Up, doctor: Doctor) -> None:
    await up.servers["math"].close()
    looked = await looked_at(doctor, gym=up.head)
    assert looked.verdict == ("infra", "doctor.server_down")
    assert looked.problems == [3]
    assert "math at http://127.0.0.1:" in looked.step(3).why


async def test_a_model_name_that_the_provider_does_not_serve(up: Up, doctor: Doctor) -> None:
    up.config["policy_model_name"] = "big-model"
    looked = await looked_at(doctor, gym=up.head)
    assert looked.verdict == ("config", "config.model_name")
    assert "policy_model asks for big-model" in str(looked.step(2).notes)


async def test_a_provider_that_is_down(up: Up, doctor: Doctor) -> None:
    """Named by the configuration, or given by itself."""
    await up.servers["provider"].close()
    for given in ({"gym": up.head}, {"provider": up.provider}):
        looked = await looked_at(doctor, **given)
        assert (looked.verdict, looked.problems) == (("model_serving", "doctor.provider_down"), [2])


async def test_a_head_that_is_not_there(up: Up, doctor: Doctor) -> None:
    await up.servers["head"].close()
    looked = await looked_at(doctor, gym=up.head)
    assert (looked.verdict, looked.problems) == (("infra", "infra.head_server"), [3])


async def test_rows_that_the_resources_server_would_refuse(up: Up, doctor: Doctor, run: Any) -> None:
    rows = run.read("rollouts_materialized_inputs.jsonl")
    del rows[4]["expected_answer"]
    run.write("rollouts_materialized_inputs.jsonl", rows)
    looked = await looked_at(doctor, gym=up.head, output=run.output)
    assert looked.verdict == ("data_schema", "doctor.contract")
    assert looked.problems == [8]
    assert "rollouts_materialized_inputs.jsonl:5" in looked.step(8).why
    assert "expected_answer is missing" in looked.step(8).why


def configured(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_variable_that_is_not_set(tmp_path: Path, doctor: Doctor) -> None:
    """With a default, or once it is set, there is nothing to say."""
    path = configured(tmp_path, "policy_api_key: ${oc.env:MY_KEY}\nother: ${oc.env:ALSO,none}\n")
    looked = doctor(configs=(path,))
    assert (looked.verdict, looked.problems) == (("config", "config.credentials_missing"), [3])
    assert "policy_api_key needs the variable MY_KEY" in looked.step(3).why
    assert doctor(configs=(path,), environment={"MY_KEY": "x"}).problems == []


def test_a_key_that_no_file_defines_may_come_from_the_command_line(tmp_path: Path, doctor: Doctor) -> None:
    """So it is told, and is no problem."""
    looked = doctor(configs=(configured(tmp_path, "base_url: ${policy_base_url}\nmodel: ???\n"),))
    assert looked.report.exit_code == 0
    assert "but 2 keys that the command line has to give" in looked.step(3).why
    both = (tmp_path / "config.yaml", configured(tmp_path, "policy_base_url: http://h/v1\nmodel: m\n", "env.yaml"))
    assert "the configurations lack nothing;" in doctor(configs=both).step(3).why


def test_a_configuration_that_is_no_yaml(tmp_path: Path, doctor: Doctor) -> None:
    looked = doctor(configs=(configured(tmp_path, "a: [1\nb: 2\n"),))
    assert looked.verdict == ("config", "config.yaml")
    assert "config.yaml:2" in looked.step(3).why


def test_a_port_that_somebody_else_has(tmp_path: Path, doctor: Doctor) -> None:
    """And who: this very process."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port not in listeners():
            pytest.skip("this system does not tell who listens")
        holder = holder_of(port)
        assert holder is not None
        assert holder.pid == os.getpid()
        looked = doctor(configs=(configured(tmp_path, f"head_server:\n  host: 127.0.0.1\n  port: {port}\n"),))
        assert (looked.verdict, looked.problems) == (("infra", "infra.port_in_use"), [3])
        assert f"port {port} of the head server is taken by pid {os.getpid()}" in looked.step(3).why
    assert holder_of(port) is None
