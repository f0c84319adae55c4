"""What was recorded may have been written by anybody; as a snippet it is somebody's shell command, or program."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.export.snippet import curl, openai, python
from gymtap.schemas import Body, Call, Exchange, Request, Server, ServerKind, State

EVIL = (
    "'",
    '"',
    "`id`",
    "$(id)",
    "\\",
    "\n",
    "\r\nX-Injected: 1",
    "\x1b[201~",
    "\x1b]52;c;aWQ=\x07",
    "\x15",
    "\x00",
    ";",
)
EVIL += (
    "#",
    " ",
    "@/etc/passwd",
    "-o",
    "%s",
    "{a,b}",
    "\x9b",
    "é",
    "x",
    "[redacted]",
    '"""',
    "\t",
    "\x7f",
    "\xff",
    "://",
)
text = st.lists(st.sampled_from(EVIL), max_size=4).map("".join)
TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"


@st.composite
def hostile(draw: st.DrawFn) -> Kept:
    path = draw(st.sampled_from(["/", "/v1/chat/completions", "-o/", ""]))
    content = draw(text.map(str.encode) | text.map(lambda said: orjson.dumps({"model": said, said: [said]})))
    request = Request(
        method=draw(st.sampled_from(["POST", "-o"]) | text),
        target=path + draw(text),
        headers=draw(st.lists(st.tuples(st.just("X-A") | text, text), max_size=4).map(tuple)),
        body=Body(digest=None, size_bytes=len(content)),
    )
    exchange = Exchange(
        id="a1", server="x", kind=ServerKind.PROVIDER, call=Call.OTHER, state=State.OPEN, started_ns=1, request=request
    )
    return Kept(exchange, Server(name="x", listen="", upstream=draw(st.just("http://h") | text)), content)


def harmless(script: str) -> None:
    """Nothing in it that a terminal acts upon, which would do so when it is shown or pasted."""
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", script) is None


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only programs that there are: a `curl` that says what it was given, and `base64`."""
    folder = tmp_path_factory.mktemp("programs")
    said = "import json, os, sys; print(json.dumps([os.fsencode(one).decode('latin-1') for one in sys.argv[1:]]))"
    (folder / "curl").write_text(f"#!{sys.executable} -IS\n{said}\n")
    (folder / "curl").chmod(0o755)
    (folder / "base64").symlink_to("/usr/bin/base64")
    return folder


@settings(max_examples=60, deadline=None)
@given(kept=hostile())
def test_a_shell_runs_curl_and_nothing_else(programs: Path, kept: Kept) -> None:
    """With one method, one URL, fields of one line each, and no option that was recorded."""
    try:
        script = curl(kept)
    except UsageError:
        asked = kept.exchange.request
        assert not (re.fullmatch(TOKEN, asked.method) and re.fullmatch(r"[^\x00-\x1f\x7f]+", asked.target))
        return
    harmless(script)
    environ = {"PATH": str(programs), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["/bin/sh"], input=script.encode(), env=environ, capture_output=True, check=False)
    if b"parameter" in done.stderr:  # what was redacted is not in the environment
        return
    assert done.stderr == b""
    given_ones = orjson.loads(done.stdout)
    assert set(given_ones[::2]) <= {"--request", "--header", "--data-binary", "--request-target", "--url"}
    assert given_ones[::2].count("--url") == given_ones[::2].count("--request") == 1
    fields = [value for option, value in zip(given_ones[::2], given_ones[1::2], strict=True) if option == "--header"]
    assert all(re.fullmatch(rf"{TOKEN}(: [^\r\n\0]+|[;:])", field) for field in fields)


@settings(max_examples=200, deadline=None)
@given(kept=hostile(), write=st.sampled_from([python, openai]))
def test_python_calls_the_client_and_nothing_else(kept: Kept, write: object) -> None:
    try:
        script = write(kept)  # type: ignore[operator]  # one of two functions
    except UsageError:
        return
    harmless(script)
    tree = ast.parse(script)
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert called <= {"httpx.Request", "httpx.Client", "client.send", "print"} | {
        "OpenAI", "os.environ.get", "client.chat.completions.create"
    }  # fmt: skip
    assert {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)} <= {
        "os", "httpx", "OpenAI"
    }  # fmt: skip
