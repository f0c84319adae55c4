"""The OpenAPI document against the server that it describes: any request that it allows, and many that it does not."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator

from gymtap.proxy.store import Capture

type Answer = tuple[int, str, bytes]

TOKEN = "let-me-in"


class Api:
    """The server as a program of its own, and what it says of itself."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.document: dict[str, Any] = json.loads(self.get("/openapi.json")[2])
        self.operations = {path: said["get"] for path, said in self.document["paths"].items()}
        self.error = self.validator({"$ref": "#/components/schemas/Error"})

    def get(self, target: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", target, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers.get_content_type(), content

    def validator(self, schema: dict[str, Any]) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for(schema | {"components": self.document["components"]})


@pytest.fixture(scope="module")
def api(demo_capture: Path) -> Iterator[Api]:
    command = [sys.executable, "-m", "gymtap", "serve", "--token", TOKEN, str(demo_capture)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    said = json.loads(child.stdout.readline())
    yield Api(int(said["url"].rpartition(":")[2]))
    child.terminate()
    child.communicate()


def in_path(demo: Capture) -> dict[str, st.SearchStrategy[str]]:
    anything = st.text(max_size=8)
    return {
        "capture": st.just("capture") | anything,
        "row": st.sampled_from([row.key.label for row in demo.rows()]) | st.sampled_from(["9.9", "@x~y"]) | anything,
        "exchange": st.sampled_from([one.id for one in demo.exchanges(limit=20)]) | anything,
        "side": st.sampled_from(["request", "response"]) | anything,
    }


def in_query(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Values that the schema allows, and some that it does not."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | st.text(max_size=5)
    if schema["type"] == "boolean":
        return st.sampled_from(["true", "false", "yes", ""])
    if schema["type"] == "integer":
        return st.integers(-2, 2**70).map(str) | st.integers(0, 30).map(str) | st.text(max_size=3)
    return st.sampled_from(["a1", "12.3", "status:5xx", "-reward>0", "agent", 'x:"']) | st.text(max_size=6)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_answer_is_described(api: Api, demo_capture: Path, data: st.DataObject) -> None:
    """Whatever is asked, the answer is a 200 of the described kind, or an error in JSON that is the asker's."""
    path = data.draw(st.sampled_from(sorted(api.operations)))
    operation = api.operations[path]
    names, query = in_path(Capture(demo_capture)), {}
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(data.draw(names[name]), safe=""))
        elif data.draw(st.booleans()):
            query[name] = data.draw(in_query(parameter["schema"]))
    status, media, content = api.get(f"{path}?{urlencode(query)}" if query else path)
    assert status in {200, 400, 404}, content
    if status != 200:
        assert media == "application/json"
        api.error.validate(json.loads(content))
        return
    ((expected, described),) = operation["responses"]["200"]["content"].items()
    assert media == expected
    if expected == "application/json":
        api.validator(described["schema"]).validate(json.loads(content))


def test_each_parameter_is_taken(api: Api, demo_capture: Path) -> None:
    """Every parameter that is described, with a value that its schema allows, is understood."""
    demo = Capture(demo_capture)
    row = next(demo.rows())
    named = {"capture": "capture", "row": row.key.label, "exchange": row.root or "", "side": "request"}
    values = {"row": row.key.label, "after": row.root, "agent": row.key.agent, "server": "x", "filter": "state:done"}
    asked = 0
    for path, operation in api.operations.items():
        for parameter in operation["parameters"]:
            if parameter["in"] == "query":
                schema = parameter["schema"]
                value = schema["enum"][0] if "enum" in schema else values.get(parameter["name"], "true")
                given = "3" if schema.get("type") == "integer" else value
                status, _, content = api.get(f"{path.format(**named)}?{parameter['name']}={quote(str(given))}")
                assert (status, content if status != 200 else b"") == (200, b""), (path, parameter["name"])
                asked += 1
    assert asked >= 18


def test_the_document_is_openapi(api: Api) -> None:
    """A validator of OpenAPI 3.1 finds nothing to say."""
    assert [error.message for error in OpenAPIV31SpecValidator(api.document).iter_errors()] == []
    assert api.document["openapi"] == "3.1.0"
