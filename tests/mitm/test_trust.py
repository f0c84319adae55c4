"""Real programs of four kinds, with nothing but the variables, against a TLS server that only the proxy trusts."""

import asyncio
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymtap.proxy.mitm.trust import BUNDLE, proxy_variables, write_trust

PYTHON = """
import sys, urllib.request
with urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"hello")) as answer:
    print(answer.read().decode())
"""
HTTPX = """
import sys, httpx
print(httpx.post(sys.argv[1], content=b"hello").text)
"""
REQUESTS = """
import sys, requests
print(requests.post(sys.argv[1], data=b"hello").text)
"""
OPENAI = """
import sys, httpx, openai
client = openai.OpenAI(base_url=sys.argv[1].removesuffix("/echo"), api_key="x")
print(client.post("/echo", body="hello", cast_to=httpx.Response).json())
"""
AIOHTTP = """
import asyncio, sys, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.post(sys.argv[1], data=b"hello") as answer:
            print(await answer.text())
asyncio.run(main())
"""
FETCH = """
fetch(process.argv[1], {method: "POST", body: "hello"}).then((answer) => answer.text()).then(console.log);
"""
NODE = """
const http = require("http"), https = require("https");
const url = new URL(process.argv[1]), proxy = new URL(process.env.HTTPS_PROXY);
const tunnel = http.request({host: proxy.hostname, port: proxy.port, method: "CONNECT", path: url.host});
tunnel.on("connect", (answer, socket) => {
  const request = https.request(url, {method: "POST", socket, agent: false}, (response) => {
    response.on("data", (data) => process.stdout.write(data));
    response.on("end", () => process.exit(0));
  });
  request.end("hello");
});
tunnel.end();
"""
JAVA = """
import java.net.*;
public class Ask {
  public static void main(String[] given) throws Exception {
    var connection = (HttpURLConnection) URI.create(given[0]).toURL().openConnection();
    connection.setDoOutput(true);
    connection.getOutputStream().write("hello".getBytes());
    System.out.print(new String(connection.getInputStream().readAllBytes()));
  }
}
"""
COMMANDS = {
    "urllib": [sys.executable, "-c", PYTHON],
    "httpx": [sys.executable, "-c", HTTPX],
    "requests": [sys.executable, "-c", REQUESTS],
    "openai": [sys.executable, "-c", OPENAI],
    "aiohttp": [sys.executable, "-c", AIOHTTP],
    "curl": ["curl", "--silent", "--show-error", "--fail", "--data", "hello"],
    "node": ["node", "-e", NODE],
    "fetch": ["node", "-e", FETCH],
    "java": ["java", "-Dhttp.nonProxyHosts=", "Ask.java"],
}


def _node_major() -> int:
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.removeprefix("v").partition(".")[0])


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_client_goes_through_and_trusts(stand: Any, upstream: Any, tmp_path: Path, name: str) -> None:
    """Its HTTPS request is captured, and it got its answer; loopback is sent through for once, since the server is."""
    command = COMMANDS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if name == "requests" and find_spec("requests") is None:
        pytest.skip("requests is not installed")
    if name == "fetch" and _node_major() < 24:
        pytest.skip("node's own fetch uses proxy variables from version 24 on")
    (tmp_path / "Ask.java").write_text(JAVA)
    standing = await stand()
    write_trust(tmp_path, standing.engine.ca, os.environ)
    variables = proxy_variables(*standing.engine.addresses[0], tmp_path, standing.engine.ca, os.environ)
    environ = os.environ | variables | {"NO_PROXY": "", "no_proxy": ""}
    url = f"https://127.0.0.1:{upstream.port}/echo"
    child = await asyncio.create_subprocess_exec(
        *command, url, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await child.communicate()
    assert out.decode().strip() == "hello", errors.decode()
    found = await standing.until(lambda exchange: exchange.response is not None)
    assert (found.request.target, found.request.method) == ("/echo", "POST")


def test_what_was_there_is_kept(tmp_path: Path, certificate: Any) -> None:
    """Hosts that go direct, options for Java, and certificates that were trusted stay so; loopback goes direct."""
    given = {"NO_PROXY": "gpu-1, localhost", "JAVA_TOOL_OPTIONS": "-Xmx1g", "SSL_CERT_FILE": str(certificate.file)}
    write_trust(tmp_path, certificate.file, given)
    said = proxy_variables("127.0.0.1", 8080, tmp_path, certificate.file, given)
    assert said["NO_PROXY"] == said["no_proxy"] == "gpu-1,localhost,127.0.0.1,::1"
    assert said["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dhttp.proxyHost=127.0.0.1 ")
    assert said["HTTPS_PROXY"] == said["http_proxy"] == "http://127.0.0.1:8080"
    assert said["SSL_CERT_FILE"] == str(tmp_path / BUNDLE)
    assert certificate.file.read_text() in (tmp_path / BUNDLE).read_text()
