"""mitmproxy, embedded: its proxy, its TLS, our bridge, and none of its other addons.

It runs on a thread and an event loop of its own, since mitmproxy sets its loop's task factory, which must not touch the
first engine's. It keeps its options in a module, so there is one engine in a process at a time.
"""

import asyncio
import logging
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mitmproxy import exceptions, options
from mitmproxy.addons import (
    core,
    disable_h2c,
    dns_resolver,
    next_layer,
    proxyauth,
    proxyserver,
    tlsconfig,
    upstream_auth,
)
from mitmproxy.master import Master
from mitmproxy.proxy import mode_servers, mode_specs
from mitmproxy.version import VERSION

from gymtap.proxy.core.errors import GymtapError, ListenError, UsageError
from gymtap.proxy.core.events import Unparsed
from gymtap.proxy.mitm.bridge import Bridge
from gymtap.proxy.mitm.local import check_local, redirector_runs
from gymtap.proxy.mitm.modes import LOOPBACK, parse_mode
from gymtap.proxy.mitm.settings import MitmSettings, default_confdir
from gymtap.proxy.mitm.trust import BUNDLE, write_bundle
from gymtap.proxy.tap import Source
from gymtap.schemas import Server

_LOG = logging.getLogger("mitmproxy")
_LOOK_S = 0.5
_START_S = 60.0
_STOP_S = 5.0


class MitmEngine:
    """The second engine: `async with MitmEngine(settings, tap.source(), said) as engine`, inside the tap.

    Making it raises UsageError for a mode that is none, carries no HTTP, or would be exposed, and GymtapError for one
    that this machine cannot have; entering raises ListenError for one that cannot listen. `said` is called on its
    thread.
    """

    def __init__(self, settings: MitmSettings, source: Source, said: Callable[[str], None]) -> None:
        self._settings = settings
        self._said = said
        self._source = source
        self._thread = threading.Thread(target=self._run, name="gymtap-mitm", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._master: Master | None = None
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._watching: asyncio.Task[None] | None = None
        self._redirector_lost = False
        self._check()
        self.addresses: tuple[tuple[str, int], ...] = ()
        """Where it listens, once it has started."""
        self.instructions: tuple[str, ...] = ()
        """What a person has to know, once it has started, to send traffic to modes that have no address."""

    @property
    def ca(self) -> Path:
        """The certificate that clients have to trust."""
        return self._settings.ca

    async def __aenter__(self) -> "MitmEngine":
        self._thread.start()
        await asyncio.to_thread(self._started.wait, _START_S)
        if self._failure is not None:
            raise self._failure
        if not self._started.is_set():
            await self.close()
            raise GymtapError(
                "mitmproxy did not start", "its local and wireguard modes may wait for the system's consent"
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Listen no more, and end what is open, as `tap_stopped`. Twice is harmless."""
        if self._loop is not None and self._master is not None and self._thread.is_alive():
            self._master.shutdown()  # type: ignore[no-untyped-call]  # mitmproxy is annotated in parts
        await asyncio.to_thread(self._thread.join, _STOP_S)

    def _check(self) -> None:
        if not self._settings.modes:
            raise UsageError("no mode to listen in", "as in --mode regular@8080")
        for text in self._settings.modes:
            mode = parse_mode(text)
            if isinstance(mode, mode_specs.LocalMode):
                check_local()
            host = mode.listen_host(LOOPBACK)
            if host not in {LOOPBACK, "localhost", "::1"} and not self._settings.expose:
                raise UsageError(
                    f"{text} would listen on {host}, where other machines reach it",
                    "add --expose if that is meant: whoever reaches it reaches everything through it, and is recorded",
                )

    # On its own thread

    def _run(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="gymtap-") as folder:
                asyncio.run(self._serve(Path(folder)))
        except (OSError, ValueError, exceptions.OptionsError) as error:
            reason = _one_line(error)
            self._failure = UsageError(f"mitmproxy cannot start: {reason}", _way_out(reason))
        except GymtapError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 - nobody awaits a thread: what ended it must be said here
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._failure = GymtapError(f"mitmproxy ended: {reason}", "nothing passes through it any more")
            if self._started.is_set():
                self._said(str(self._failure))
        finally:
            self._started.set()

    async def _serve(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        proxy = proxyserver.Proxyserver()  # type: ignore[no-untyped-call]  # mitmproxy is annotated in parts
        source = self._source
        bridge = Bridge(source.tape, source.next_number, paths=source.paths, said=self._said, ca=self.ca, faithful=True)
        master = self._master = Master(options.Options(), self._loop)
        master.addons.add(  # type: ignore[no-untyped-call]  # the same
            *(core.Core(), disable_h2c.DisableH2C(), proxy, dns_resolver.DnsResolver(), next_layer.NextLayer()),
            *(tlsconfig.TlsConfig(), proxyauth.ProxyAuth(), bridge, upstream_auth.UpstreamAuth()),
            _Running(partial(self._running, proxy)),
        )
        master.options.update(**self._options(folder))  # type: ignore[no-untyped-call]  # the same
        errors = _Errors(self._said, self._started.is_set)
        _LOG.addHandler(errors)
        try:
            with _layers(self._said):
                await master.run()
        finally:
            if self._watching is not None:
                self._watching.cancel()
            _LOG.removeHandler(errors)
            bridge.close()
            await _hang_up(proxy, without_redirector=self._redirector_lost)

    def _options(self, folder: Path) -> dict[str, Any]:
        trusted = self._settings.upstream_ca
        if trusted is not None:
            write_bundle(folder / BUNDLE, trusted)  # what mitmproxy is given replaces the system's trust
        return {
            "mode": list(self._settings.modes),
            "listen_host": LOOPBACK,
            "confdir": str(self._settings.confdir or default_confdir()),
            **({"ssl_verify_upstream_trusted_ca": str(folder / BUNDLE)} if trusted else {}),
            "proxyauth": self._settings.proxy_auth or None,
            "upstream_auth": self._settings.upstream_auth or None,
        }

    def _running(self, proxy: proxyserver.Proxyserver) -> None:
        """All modes stand, or the first that does not is why nothing does."""
        for server in proxy.servers:
            if server.last_exception is not None:
                reason = _one_line(server.last_exception)
                self._failure = ListenError(f"cannot listen for {server.mode.full_spec}: {reason}", _way_out(reason))
                assert self._master is not None
                self._master.should_exit.set()
                return
        addresses = dict.fromkeys((str(host), int(port)) for host, port, *_ in proxy.listen_addrs())
        self.addresses = tuple(addresses)  # a mode may listen for TCP and UDP
        self.instructions = tuple(line for server in proxy.servers for line in _instructions(server))
        if any(isinstance(server.mode, mode_specs.LocalMode) for server in proxy.servers):
            self._watching = asyncio.create_task(self._watch_redirector())
        self._started.set()

    async def _watch_redirector(self) -> None:
        """Without the redirector of local mode nothing comes here any more, and what passes elsewhere is a gap."""
        while await asyncio.to_thread(redirector_runs):  # noqa: ASYNC110 - it is another process's end
            await asyncio.sleep(_LOOK_S)
        self._redirector_lost = True
        what = "mitmproxy's redirector has ended: what local mode was to capture passes unrecorded"
        server = Server(name="local", listen="", upstream="")
        self._source.tape.put(Unparsed(server, time.time_ns(), what))
        self._said(f"{what}; it says why above")


class _Errors(logging.Handler):
    """What mitmproxy calls an error is said; the rest of its log is about single connections, and they are captured."""

    def __init__(self, said: Callable[[str], None], started: Callable[[], bool]) -> None:
        super().__init__(logging.ERROR)
        self._said = said
        self._started = started

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line; why it does not start is raised instead."""
        if self._started():
            self._said(f"mitmproxy: {_one_line(record.getMessage())}")


class _Running:
    """mitmproxy calls `running` when it has tried to listen."""

    def __init__(self, started: Callable[[], None]) -> None:
        self._started = started

    def running(self) -> None:
        self._started()


@contextmanager
def _layers(said: Callable[[str], None]) -> Iterator[None]:
    """Our HTTP layers, until the block ends; where they do not fit this mitmproxy, its own, with a word of it."""
    with ExitStack() as stack:
        try:
            from gymtap.proxy.mitm.layers import whole_layers  # noqa: PLC0415 - made of what mitmproxy calls private

            stack.enter_context(whole_layers())
        except (ImportError, AttributeError) as error:
            said(f"mitmproxy {VERSION} is not as 12.3 ({error}): interim responses and trailers of HTTP/1 do not pass")
        yield


def _instructions(server: mode_servers.ServerInstance[Any]) -> list[str]:
    if isinstance(server, mode_servers.WireGuardServerInstance):
        port = server.listen_addrs[0][1]
        told = re.sub(r":\d+$", f":{port}", (server.client_conf() or "").strip())
        return [f"a WireGuard client's configuration, which holds its key:\n{told}"]
    if isinstance(server, mode_servers.TunInstance):
        return [f"what is routed to the interface {server.tun_name} passes through here"]
    if isinstance(server, mode_servers.LocalRedirectorInstance):
        return [f"{server.mode.full_spec}: what these programs send passes through here"]
    return []


def _one_line(reason: object) -> str:
    """Without what a program of mitmproxy's adds for its makers."""
    return " ".join(str(reason).partition("Stack backtrace:")[0].split())


def _way_out(reason: str) -> str:
    if "in use" in reason:
        return "name another port, or port 0 for any free one"
    if "same address" in reason:
        return "give each mode a port of its own, as in --mode regular@8080 --mode socks5@1080"
    if "auth specification" in reason:
        return "write user:password"
    return "transparent, local, tun and wireguard modes may need root" if "ermi" in reason else "check --mode"


async def _hang_up(proxy: proxyserver.Proxyserver, *, without_redirector: bool) -> None:
    """Stop listening, and end the connections that are open.

    A redirector that has ended is not told: the failure would be logged while Python ends, which crashes it.
    """
    for server in proxy.servers:
        gone = without_redirector and isinstance(server, mode_servers.LocalRedirectorInstance)
        if server.is_running and not gone:
            await server.stop()
    ends = [end for connection in list(proxy.connections.values()) for end in connection.transports.values()]
    tasks = [end.handler for end in ends if end.handler is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:  # a handler that is cancelled does not always close what it has opened
        if end.writer is not None and not end.writer.is_closing():
            end.writer.close()
