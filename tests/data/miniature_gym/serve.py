# ruff: noqa: T201 - it answers on stdout
"""One server of the miniature Gym: binds what its configuration says, and calls what its entry lists.

`calls` is `{path: [url, ...]}`: a POST to the path posts its body to each URL in turn and answers with what it
saw: its own headers, and each call's status, URL and answer, or the name of its error.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import sys

import aiohttp
from aiohttp import web
from nemo_gym import global_config
from starlette.applications import Starlette

ENTRY = global_config.own()


async def answer(scope, receive, send):
    calls = [await call(url, scope["body"]) for url in ENTRY.get("calls", {}).get(scope["path"], [])]
    names = sorted(name.decode() for name, _ in scope["headers"])
    await send(
        {"server": os.environ.get("NEMO_GYM_CONFIG_PATH", "head"), "headers": names, "calls": calls, "pid": os.getpid()}
    )


async def call(url, body):
    options = ENTRY.get("options", {})
    if options.get("httpx"):
        return await httpx_call(options["httpx"], url, body)
    kwargs = {"ssl": False} if options.get("unverified") else {}
    try:
        async with aiohttp.ClientSession() as session, session.post(url, data=body, **kwargs) as response:
            return {"status": response.status, "url": str(response.url), "answer": await response.json()}
    except aiohttp.ClientError as error:
        return {"error": type(error).__name__, "text": str(error)}


async def httpx_call(kind, url, body):
    import httpx  # noqa: PLC0415 - only where a test asks for it

    if kind == "sync":
        response = await asyncio.to_thread(httpx.post, url, content=body)
    else:
        async with httpx.AsyncClient() as client:
            response = await client.post(url, content=body)
    return {"status": response.status_code, "url": str(response.url), "answer": response.json()}


async def handle(request):
    """Run the application in a task of its own, as an ASGI server does."""
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    scope = {"type": "http", "path": request.path, "headers": headers, "body": await request.read()}
    answers = []

    async def send(value):
        answers.append(value)

    await asyncio.create_task(Starlette(answer)(scope, None, send))
    return web.json_response(answers[0])


async def serve(sock):
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, ENTRY["host"], ENTRY["port"]) if sock is None else web.SockSite(runner, sock)
    await site.start()
    print(json.dumps({"serving": list(runner.addresses[0][:2]), "mark": os.environ.get("MARK_OF_HIDDEN")}), flush=True)
    await asyncio.Event().wait()


def work(sock):
    asyncio.run(serve(sock))


def main():
    workers = int(ENTRY.get("workers", 1))
    if workers == 1:
        return work(None)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((ENTRY["host"], ENTRY["port"]))
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(sock,), daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
