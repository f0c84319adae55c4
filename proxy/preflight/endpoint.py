"""Asks a live endpoint, once each: no retries, no redirects, no cookies, as everything in gymtap that sends."""

import time
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.preflight.answers import Answer, Outcome, read_answer

_BODY_MAX_BYTES = 4 * 2**20


class Endpoint:
    """An OpenAI-compatible endpoint, named as Gym's `policy_base_url` is (`http://host:8000/v1`).

    Raises UsageError when that is no address. A `timeout_s` that passes is a transport error.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 120.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url}: not an http:// address", "name the endpoint as in policy_base_url, with /v1")
        self.url = url.rstrip("/").removesuffix("/chat/completions")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)  # a kept one may just have been closed
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), connector=connector, timeout=self._timeout
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def chat(self, request: dict[str, Any]) -> Answer:
        """One Chat Completions request."""
        status, body, elapsed_ms = await self._send("POST", "/chat/completions", orjson.dumps(request))
        return body if isinstance(body, Answer) else read_answer(status, body, elapsed_ms)

    async def models(self) -> list[str] | Answer:
        """The names that the endpoint serves; the answer where it does not list them."""
        status, body, elapsed_ms = await self._send("GET", "/models", None)
        if isinstance(body, Answer):
            return body
        try:
            return [str(one["id"]) for one in orjson.loads(body)["data"]]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return read_answer(status, body, elapsed_ms)

    async def _send(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes | Answer, float]:
        assert self._session is not None, "use it as an async context manager"
        begun = time.monotonic()
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=self._headers, allow_redirects=False
            ) as answer:
                body = await answer.content.read(_BODY_MAX_BYTES)
                while len(body) < _BODY_MAX_BYTES and (more := await answer.content.read(_BODY_MAX_BYTES)):
                    body += more
                if 300 <= answer.status < 400:
                    body = f"redirects to {answer.headers.get('Location')}".encode()
                return answer.status, body, (time.monotonic() - begun) * 1e3
        except TimeoutError:
            text = f"nothing within {self._timeout.total:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
        return 0, Answer(Outcome.TRANSPORT, None, text[:200]), (time.monotonic() - begun) * 1e3
