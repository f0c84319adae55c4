"""Infrastructure: network, ports, gateways, nodes, containers, filesystems, Ray and Slurm."""

import re
from collections.abc import Iterator
from dataclasses import replace

from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.failures import Failure
from gymtap.proxy.diagnose.rule import (
    ALLOTMENT,
    GENERATION,
    GYM,
    MCP_SESSION,
    RESOURCES,
    Rule,
    Sight,
    Strength,
    View,
    advised,
    both,
    exchange_sight,
    said,
)
from gymtap.proxy.diagnose.tool_answers import hopeless_tools, told_status
from gymtap.proxy.diagnose.transcripts import Echo, echoes
from gymtap.proxy.diagnose.verdicts import told_failures
from gymtap.schemas import Call, Layer, LeafKind, TransportErrorKind

_GATEWAY = frozenset({502, 503, 520, 521, 522, 523, 525, 526, 527, 530})
_STEP_ENDED = (
    r"srun: job step aborted|srun: (?:force )?terminat|srun: error: \S+: tasks? [\d,-]+: (?:exited|killed|terminated)|"
    r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ \*\*\*"
)
"""What Slurm says of any step that ends early; a time limit, preemption or lost node is named with DUE TO."""
_LONG_OPEN_MS = 10 * 60 * 1000
_DROPPED = frozenset({TransportErrorKind.RESET, TransportErrorKind.CLOSED, TransportErrorKind.REFUSED})
_ENDLESS_TRIES = 4
"""Clients that give up do so after three."""
_GATEWAY_WORDS = (
    r"bad gateway|gateway time-?out|upstream connect error|no healthy upstream|upstream request timeout|"
    r"upstream (?:timed out|prematurely closed)|service temporarily unavailable|no server is available to handle|"
    r"web server is down|origin is unreachable|cloudflare|\bnginx\b|\benvoy\b|haproxy|traefik|awselb|"
    r"invalid response was received from the upstream|replicas are unhealthy|no (?:healthy|available|live|"
    r"ready) (?:worker|backend|upstream|server|endpoint|replica|instance|pod)s?"
)
_BUSY = r"load(?:ing|ed)\b|starting|warm|overload|too (?:busy|many)|capacity|backpressure|queue|rate.?limit|dead|died"
"""Words of a server that is there, and not of a gateway before it."""
_UNREACHED = (
    r"connection ?(?:was )?refused|connect call failed|connectionrefused|\[?errno 111\]?|no route to host|"
    r"network is unreachable|errno 113|errno 101|host is down|could not resolve host|name or service not known|"
    r"temporary failure in name resolution|name resolution|getaddrinfo|nodename nor servname|dns error: |"
    r"failed to lookup address|"
    r"api request to \S+ failed|cannot connect to host|"
    r"clientconnectorerror|newconnectionerror|failed to establish a new connection|all connection attempts failed|"
    r"(?:couldn't|could not|unable to|failed to|cannot) connect to|check your internet|apiconnectionerror|"
    r"connection error\.|max retries exceeded|connectionerror\(|\b(?:econnrefused|enotfound|ehostunreach)\b|"
    r"cannot find the requested files in the (?:local|disk) cache|"
    r"backend[^\n]{0,40}(?:refused|unreachable|is down|unavailable)"
)


_SANDBOX_GONE = (
    r"(?:sandbox|container|browser|jupyter|kernel|pod\b|\bvm\b)[^\n]{0,60}(?:failed|error|not (?:ready|available|found|"
    r"running)|unavailable|shut ?down|terminated|stopped|died|dead|crashed|disconnected|been closed|gone|no longer)"
)


_UNRESOLVED = (
    r"could not resolve host|name or service not known|temporary failure in name resolution|name resolution|"
    r"getaddrinfo|nodename nor servname|dns ?error|failed to lookup address|\benotfound\b"
)
"""Words that a name has no address: what of `_UNREACHED` was never tried."""


_BACKEND_GONE = (
    rf"{_UNREACHED}|^(?:mcp error )?(?:-32000\W+)?connection closed|^internal server error|service unavailable"
)
"""What a tool that answers 200 tells of a backend that is not there."""


def _gateway(view: View) -> Iterator[Sight]:
    """A gateway's status with a gateway's body: HTML, its own few words, or nothing."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.status not in _GATEWAY or failure.innermost is None:
            continue
        if failure.judge and failure.call in {Call.JUDGE, Call.MODEL}:
            continue
        leaf = failure.innermost.leaf
        if re.search(_BUSY, failure.said, re.IGNORECASE):
            continue
        said_by_gateway = leaf.kind in {LeafKind.HTML, LeafKind.EMPTY, LeafKind.TEXT} or re.search(
            _GATEWAY_WORDS, failure.said, re.IGNORECASE
        )
        if said_by_gateway or failure.status != 503:
            yield exchange_sight(
                view,
                exchange,
                f"{failure.status} {leaf.message}",
                leaf.message if leaf.message.startswith(str(failure.status)) else f"{failure.status} {leaf.message}",
            )


def _never_answered(view: View) -> Iterator[Sight]:
    """The deepest open exchange of a call that has been open for long."""
    opened = [e for e in view.material.exchanges if e.is_open]
    deepest = [e for e in opened if not any(child.is_open for child in view.tree.children[e.id])]
    for exchange in deepest:
        age = exchange.duration_ms if exchange.open_ms is None else exchange.open_ms
        if age is None or age >= _LONG_OPEN_MS:
            text = f"{exchange.boundary} {exchange.path} open" + (f" for {age / 1000:.0f} s" if age else "")
            yield exchange_sight(view, exchange, text, f"{exchange.boundary} {exchange.path}")


def _endless_reconnect(view: View) -> Iterator[Sight]:
    """One caller's request whose connection was dropped unanswered time after time, and never answered since."""
    tries: dict[tuple[str | None, str, str | None], list[Seen]] = {}
    for exchange in view.material.exchanges:
        above = view.tree.parents.get(exchange.id)
        if exchange.call in GENERATION | RESOURCES:
            key = (above.id if above else None, exchange.path, exchange.request)
            tries.setdefault(key, []).append(exchange)
    for (parent, path, _), tried in tries.items():
        dropped = [e for e in tried if e.status is None and e.error in _DROPPED]
        unanswered = all(e.status is None for e in tried)
        if parent is not None and len(dropped) >= _ENDLESS_TRIES and unanswered:
            took = _seconds_between(dropped[0], dropped[-1])
            ended = dropped[0].error_text or f"the connection was {dropped[0].error}"
            what = f"{dropped[0].boundary} {path}: {len(dropped)} tries{took}, and every time {ended}"
            yield exchange_sight(view, dropped[0], what, what)


def _seconds_between(first: Seen, last: Seen) -> str:
    if first.started_ms is None or last.started_ms is None:
        return ""
    return f" in {(last.started_ms - first.started_ms) / 1000:.0f} s"


def _wrong_server(view: View) -> Iterator[Sight]:
    """An address that does not know the route its Gym server must have, or answers it as another server would."""
    for exchange in view.material.exchanges:
        if exchange.call not in {Call.RUN, Call.VERIFY, Call.SEED_SESSION, Call.MODEL, Call.RESPONSES}:
            continue
        if exchange.status in {404, 405, 501} and not exchange.wraps and exchange.callee != "provider":
            yield exchange_sight(view, exchange, f"{exchange.status} on {exchange.path}", exchange.path)
        elif exchange.status == 200 and exchange.unwrapped.leaf.kind is LeafKind.HTML:
            yield exchange_sight(view, exchange, f"HTML on {exchange.path}", exchange.path)


_SERVER_COOKIE = re.compile(r"(?:^|[;,]\s*)(\w+___[\w.-]+)=")


def _stranger(view: View) -> Iterator[Sight]:
    """An address that sets another server's session cookie than it did before."""
    known: dict[str, set[str]] = {}
    for exchange in view.material.exchanges:
        names = set(_SERVER_COOKIE.findall(exchange.response_headers.get("set-cookie", "")))
        before = known.setdefault(exchange.server, set())
        if names and before and not names & before and exchange.callee == "resources":
            yield exchange_sight(
                view,
                exchange,
                f"sets {', '.join(sorted(names))}, not {', '.join(sorted(before))}",
                f"{exchange.path} sets the cookie of {', '.join(sorted(names))}, not of {', '.join(sorted(before))}",
            )
        before |= names


def _lone_404(view: View) -> Iterator[Sight]:
    """A tool's 404 with no model turn beside it: nothing says that a model made the name up."""
    if view.material.of(Call.MODEL, Call.PROVIDER, Call.RESPONSES, Call.RUN) or view.material.row_values:
        return
    for exchange in view.material.of(Call.TOOL):
        if exchange.status == 404:
            names = ", ".join(_SERVER_COOKIE.findall(exchange.response_headers.get("set-cookie", "")))
            by = f", answered by {names}" if names else ""
            yield exchange_sight(view, exchange, f"404 on {exchange.path}" + by, exchange.path + by)


def _head_answers_strangely(view: View) -> Iterator[Sight]:
    for exchange in view.material.of(Call.HEAD):
        strange = exchange.unwrapped.leaf.kind is LeafKind.HTML or (exchange.status or 0) >= 400
        if strange or exchange.error or exchange.timeout:
            yield exchange_sight(
                view, exchange, f"{exchange.path}: {exchange.status} {exchange.error_text}", exchange.path
            )


def _tool_backend(view: View) -> Iterator[Sight]:
    """A tool that failed because what it calls could not be reached."""
    for failure in view.exchange_failures:
        if failure.call is Call.TOOL and failure.exchange and re.search(_UNREACHED, failure.said, re.IGNORECASE):
            yield exchange_sight(view, failure.exchange, failure.said[:300], failure.exchange.path)


def _tool_tells_mcp_session(view: View) -> Iterator[Sight]:
    for exchange, text in hopeless_tools(view.material.exchanges):
        if re.search(MCP_SESSION, text, re.IGNORECASE):
            yield exchange_sight(view, exchange, text[:300], text[:160])


_unresolved_said = said(_UNRESOLVED, errors=(TransportErrorKind.REFUSED, TransportErrorKind.UNREACHABLE))


def _unresolved(view: View) -> Iterator[Sight]:
    """A call whose host's name has no address; said with whether the same host answered before."""
    for sight in _unresolved_said(view):
        exchange = sight.exchange
        answered = exchange is not None and any(
            other.server == exchange.server and other.status is not None and view.tree.began_after(exchange, other)
            for other in view.material.exchanges
        )
        what = sight.failure.said.partition("\n")[0][:200] if sight.failure else sight.what
        yield replace(sight, what=f"{what}; the same host answered earlier" if answered else what)


_BOUND = re.compile(r"(?:\baddress \(?'?[\w.:]*'?, ?|\bport\s+|[\w\]]:)(\d{2,5})\b")
_port_taken_said = said(
    r"address already in use|errno 98|eaddrinuse|port \d+ (?:is )?(?:already )?(?:in use|taken|occupied|not available)"
)


def _port_taken(view: View) -> Iterator[Sight]:
    """A port that is taken, with the command that shows by whom where the port is told."""
    for sight in _port_taken_said(view):
        port = _BOUND.search(sight.what)
        ask = f"`ss -ltnp 'sport = :{port[1]}'`" if port else ""
        yield replace(sight, advice=_PORT_ADVICE.replace("`ss -ltnp`", ask)) if ask else sight


_PORT_ADVICE = (
    "Stop the process that holds it (`ss -ltnp` on that node names it; often a server of an earlier run), or give this "
    "server another port."
)


def _judge_down(view: View) -> Iterator[Sight]:
    """A judge that answers 5xx, or a 200 that tells an error, or not at all."""
    for failure in (*view.exchange_failures, *view.soft_failures):
        exchange = failure.exchange
        if exchange is None or not failure.judge or failure.call is Call.VERIFY or failure.recovered:
            continue
        if failure.error is TransportErrorKind.TLS or (
            failure.error and re.search(_UNRESOLVED, failure.said, re.IGNORECASE)
        ):
            continue  # they say themselves what to mend
        empty = exchange.wraps and exchange.unwrapped.leaf.kind is LeafKind.EMPTY
        refused = (failure.status or 0) >= 500 or failure.error is not None or empty
        if refused or (failure.soft and failure.status is None):
            yield exchange_sight(
                view,
                exchange,
                f"{failure.status or failure.error} {failure.said[:200]}",
                f"{failure.status or failure.error or ''} {_first_line(failure)}".strip(),
            )


def _first_line(failure: Failure) -> str:
    words = failure.said.partition("\n")[0]
    return "with an empty message" if words.strip() in {"", str(failure.status)} else words[:200]


_gym_5xx_said = said(calls=GYM, statuses=(502, 503), sources=("exchange",))


def _gym_5xx(view: View) -> Iterator[Sight]:
    """502 or 503 at a Gym server, unless FastAPI's `detail` shows that its own code said so."""
    for sight in _gym_5xx_said(view):
        if sight.exchange is None or sight.exchange.unwrapped.leaf.kind is not LeafKind.DETAIL:
            yield sight


def _judge_told(view: View) -> Iterator[Sight]:
    """A verify that itself says that its judge could not be reached."""
    for source, where, order, told in told_failures(view):
        if "judge" in told.lower() and re.search(_UNREACHED, told, re.IGNORECASE):
            yield Sight(source, where, told[:300], order, told[:160])


def _tool_tells_backend(view: View) -> Iterator[Sight]:
    """Tools that answer 200 and tell of nothing but a backend that cannot be reached."""
    for exchange, text in hopeless_tools(view.material.exchanges):
        if re.search(_BACKEND_GONE, text, re.IGNORECASE) or (told_status(text) or 0) >= 500:
            yield exchange_sight(view, exchange, text[:300], exchange.path.rsplit("/", 1)[-1])


def _tool_tells_disk(view: View) -> Iterator[Sight]:
    for exchange, text in hopeless_tools(view.material.exchanges):
        if re.search(r"no space left on device|errno 28\b|read-only file system", text, re.IGNORECASE):
            yield exchange_sight(view, exchange, text[:300], text[:160])


def _tool_tells_sandbox(view: View) -> Iterator[Sight]:
    for exchange, text in hopeless_tools(view.material.exchanges):
        match = re.search(rf"{_SANDBOX_GONE}|no such container", text, re.IGNORECASE)
        named = re.search(r"sandbox|browser|jupyter|docker|playwright", text, re.IGNORECASE)  # else it may be of a game
        if match and named and not re.search(ALLOTMENT, text, re.IGNORECASE):
            yield exchange_sight(view, exchange, text[:300], match[0])


def _verifier_told(view: View) -> Iterator[Sight]:
    """A verify that itself says that what it calls, and no judge, could not be reached."""
    for source, where, order, told in told_failures(view):
        if "judge" not in told.lower() and re.search(_UNREACHED, told, re.IGNORECASE):
            yield Sight(source, where, told[:300], order, told[:160])


_tls_said = said(
    r"certificate[_ ]verify[_ ]failed|certificate has expired|self[- ]signed certificate|sslerror|"
    r"sslcertverification|ssl: |wrong version number|tlsv1|hostname mismatch|unable to get local issuer|"
    r"clientconnectorcertificateerror"
)
_TLS_ADVICE = {
    r"certificate (?:has )?expired|certexpired|not yet valid": "Renew the certificate of {host} (`openssl s_client "
    "-connect {host} </dev/null | openssl x509 -noout -dates` shows it; see this node's clock too); until then every "
    "call to it fails, and Gym's client may try for ever.",
    r"self[- ]signed|local issuer|unknown ca|unable to get issuer": "Let this process trust the CA that signed the "
    "certificate of {host} (SSL_CERT_FILE and REQUESTS_CA_BUNDLE where the server starts), or put one of a known CA "
    "there.",
    r"hostname mismatch|not valid for|doesn't match|ip address mismatch": "Call the server by a name that its "
    "certificate has (`openssl s_client -connect {host} </dev/null | openssl x509 -noout -ext subjectAltName`), or "
    "issue one for this name.",
    r"wrong[_ ]version[_ ]number|record layer|http request": "The port does not speak TLS: write http:// instead of "
    "https:// in that URL, or name the TLS port.",
}
"""What to do by OpenSSL's reason, for each is mended elsewhere."""


_LISTENING = (
    "See on that host whether a process listens on the port (`ss -ltnp`) and why it ended if none does (its own log's "
    "last lines); if one listens, look for a firewall or another network between."
)
_RESOLVING = (
    "Run `getent hosts {name}` where the caller runs: correct a name that is wrong (a short service name resolves only "
    "within its own namespace), and see /etc/resolv.conf and the resolver if the name is right; whether the server "
    "runs does not matter before that."
)


_header_said = said(
    r"got more than \d+ bytes|request header (?:fields )?too large|header or cookie too large|line ?too ?long|"
    r"lineTooLong|headers? exceed|max_field_size|max_line_size",
    unless=r"content length|body",
)


def _header_limit(view: View) -> Iterator[Sight]:
    """Words that headers are too large, with the size of the request's cookies where it was recorded."""
    for sight in _header_said(view):
        cookies = sight.exchange.request_headers.get("cookie", "") if sight.exchange else ""
        size = f"; its Cookie header has {len(cookies):,} bytes in {cookies.count(';') + 1} cookies"
        yield replace(sight, what=sight.what.rstrip(".") + size) if cookies else sight


_disk_said = both(
    _tool_tells_disk,
    said(
        r"no space left on device|errno 28|disk quota exceeded|errno 122|read-only file system|errno 30|"
        r"stale file handle|errno 116|input/output error|errno 5\]|transport endpoint is not connected|"
        r"structure needs cleaning|permissionerror|permission denied|errno 13\]|database or disk is full|"
        r"database is locked|af_unix path (?:too long|length)"
    ),
)
_DISK_ADVICE = {
    r"af_unix path": "Give the run a shorter directory for its sockets (TMPDIR, RAY_TMPDIR): such a path may have 107 "
    "characters.",
    r"database is locked": "Let one process alone write that SQLite file, and put it on a local disk: network file "
    "systems do not lock it well.",
    r"stale file handle|errno 116|transport endpoint is not connected": "Mount that file system again on the node "
    "(`ls` of the path fails alike), or leave the node out, then run the rows again that it cost.",
}
"""What to do where neither space nor permissions are the matter."""


_CONTAINER_ADVICE = {
    r"slurm|srun|sbatch|sacct|due to|cancelled at": "",
    r"toomanyrequests|pull rate limit": "Log in to the registry on that node (`docker login`), or pull through a "
    "mirror: its limit is for each address and account.",
    r"manifest|no such image|image[^\n]{0,40}not found|imagepull|errimage|pull image": "Try the pull on that node "
    "(`docker pull IMAGE`): correct the image's name or tag, or the login to its registry.",
    r"failedscheduling|nodes? (?:are|is) available|insufficient": "See what the pod asks for and what the nodes have "
    "left (`kubectl describe pod POD`, `kubectl describe node`): ask for less, free some, or add nodes.",
    r"docker daemon|docker\.sock|api version": "See whether the daemon runs on that node and whether this user may use "
    "its socket (`docker info`); start it or mount the socket, then run the rows again.",
    r"docker|container|pod\b|kube|shim|mount|probe": "Read the container's own first error on that node (`docker "
    "logs`, `kubectl describe pod`), and repair image, disk or mount there; then run the rows again.",
}
"""What to do below Gym by who tells it; Slurm's words leave it to the rule."""


RULES: tuple[Rule, ...] = (
    Rule(
        id="infra.wrong_server",
        layer=Layer.INFRA,
        needs="404 or 405 without wrapping, or HTML, on a route that the Gym server at this address must have",
        sees=_wrong_server,
        cause="Another server answers at this address: it does not know {what}.",
        next_action="See who listens on the port (`ss -ltnp`), stop leftovers of earlier runs, and let Gym choose "
        "free ports.",
        source="Gym takes any HTTP answer for readiness, so a stranger on the port passes",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.stranger",
        layer=Layer.INFRA,
        needs="A session cookie of another server than the one that answered at this address before",
        sees=_stranger,
        cause="Another Gym server answers at this address: {what}.",
        next_action="See who listens on the port (`ss -ltnp`), stop leftovers of earlier runs, and let Gym choose "
        "free ports.",
        source="Gym's session cookies are named <Class>___<config name>",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.lone_404",
        layer=Layer.INFRA,
        needs="A tool's 404 without any model turn",
        sees=_lone_404,
        cause="The server at this address does not know {what}: it is another server, or the route is not registered.",
        next_action="Compare its session cookie's name with the server you meant (<Class>___<config name>), and see "
        "who listens there.",
        source="Gym's session cookies name the server",
        strength=Strength.STATUS,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.session_pool",
        layer=Layer.INFRA,
        needs="seed_session that says it has no session, sandbox or container to give",
        sees=said(
            r"(?:no|not enough|insufficient)\b[^\n]{0,30}(?:free|available|idle)?[^\n]{0,20}(?:session|sandbox|"
            r"container|browser|worker|slot|vm|pod|instance|machine)|pool (?:is )?(?:exhausted|empty|full)|(?:session|"
            r"sandbox|container|browser|vm|pod|environment)[^\n]{0,40}(?:reset|start|create|creation|launch|boot|"
            r"acquire|provision)[^\n]{0,20}(?:fail|error|time)|(?:failed|unable) to (?:reset|start|create|launch|"
            r"acquire|provision)[^\n]{0,40}(?:session|sandbox|container|browser|vm|pod|environment)",
            calls=frozenset({Call.SEED_SESSION, Call.CLOSE_SESSION}),
            sources=("exchange",),
            unless=ALLOTMENT,
        ),
        cause="The environment could not give the row a session: {what}.",
        next_action="Reap leaked sessions, bound the concurrency to the pool, and leave these rows out of the mean and "
        "of training, for a 0 of them is no score.",
        source="Environments with remote sessions that answer 200 with an error",
        strength=Strength.PROVEN,
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="provider_unavailable",
    ),
    Rule(
        id="infra.client_gone",
        layer=Layer.INFRA,
        needs="A caller that went away before the answer: 499, a cancelled request, or a client that closed",
        sees=both(
            said(errors=(TransportErrorKind.CLIENT_GONE,)),
            said(statuses=(499,), sources=("exchange",)),
            said(r"^request was cancelled|499 client disconnected|client ?disconnect"),
        ),
        cause="The caller closed the connection before the answer came; what it called is not at fault.",
        next_action="Find what cancelled it (the caller's time limit, an ended collection) and raise or remove that.",
        source="Gym 0.7.0 answers 500 `Request was cancelled` and logs 499",
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="cancelled",
    ),
    Rule(
        id="infra.wire",
        layer=Layer.INFRA,
        needs="Words that what is on the wire is no proper HTTP, or was changed on the way",
        sees=said(
            r"bad ?status ?line|badhttpmessage|contentencodingerror|can not decode content-encoding|"
            r"error -3 while decompressing|incorrect header check|not a gzipped file|zlib\.error|transfer-encoding|"
            r"invalid chunk|chunk too big|data after `?connection: close|invalid http|unexpected content-length|"
            r"invalid header|expected http/|too little data for declared content-length|"
            r"too much data for declared content-length|response content longer than"
        ),
        cause="What crossed the wire is no proper HTTP: {what}.",
        next_action="Look for a proxy that changes bodies or headers (encoding, length, chunking) between these two, "
        "and take it out.",
        source="aiohttp, h11 and httpx messages",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="infra.judge_down",
        layer=Layer.INFRA,
        needs="5xx or a broken connection on a judge call",
        sees=both(_judge_down, _judge_told, said(statuses=range(500, 600), judge=True, sources=("log",))),
        cause="The judge failed ({what}), so no reward that stands beside it says anything about the answer.",
        next_action="See in the judge's own log why it failed and restore it, then score the stored answers again "
        "(`gym eval reverify`); nothing has to be generated again.",
        source="Gym 0.7.0 judge_failsafe stamps such rows judge_failed",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
        failure_kind="judge_failed",
    ),
    Rule(
        id="infra.verifier_backend",
        layer=Layer.INFRA,
        needs="A verify that says that what it calls could not be reached, with a reward of 0",
        sees=_verifier_told,
        cause="What the verifier calls could not be reached, so the reward says nothing about the answer: {what}.",
        next_action="Restore it, then score the stored answers again (`gym eval reverify`); nothing has to be "
        "generated again.",
        source="Verifiers that catch their own errors and score 0",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
        failure_kind="verifier_error",
    ),
    Rule(
        id="infra.tool_backend",
        layer=Layer.INFRA,
        needs="A tool error that says its backend could not be reached",
        sees=both(_tool_backend, _tool_tells_backend, echoes(Echo.UNREACHABLE)),
        cause="The backend behind the tool {what} could not be reached; the model was fed the error as the tool's "
        "output.",
        next_action="Restore the backend and discard the rows since its first error.",
        source="Gym pastes a tool's error body into function_call_output",
        runner_up=Layer.VERIFIER_RUNTIME,
        failure_kind="provider_unavailable",
    ),
    Rule(
        id="infra.mcp_session",
        layer=Layer.INFRA,
        needs="A tool's words that the MCP server behind it ended their session",
        sees=both(said(MCP_SESSION, calls=frozenset({Call.TOOL})), _tool_tells_mcp_session),
        cause="The MCP server behind the tool ended the session that the tool still calls with: {what}.",
        next_action="See why it ended (the MCP server restarted, let it expire, or another replica answers), restart "
        "the resources server so that it begins a new one, and discard the rows since the first such answer; a client "
        "has to initialize anew on a 404.",
        source="Model Context Protocol, Streamable HTTP, session management",
        runner_up=Layer.VERIFIER_RUNTIME,
        failure_kind="session_expired",
    ),
    Rule(
        id="infra.sandbox",
        layer=Layer.INFRA,
        needs="Words that a sandbox, container or browser is gone, or was never there",
        sees=both(
            said(
                _SANDBOX_GONE,
                calls=RESOURCES | {Call.RUN, Call.RESPONSES, Call.OTHER, Call.AGENT_SESSION},
                sources=("exchange", "result", "row"),
                unless=ALLOTMENT,
            ),
            _tool_tells_sandbox,
            said(rf"(?-i:\w(?:Error|Exception)\b|\bERROR\b)[^\n]*?{_SANDBOX_GONE}", sources=("log",), unless=ALLOTMENT),
        ),
        cause="What the environment runs things in was not there: {what}.",
        next_action="See in its provider's log why it ended (lifetime, eviction, crash), give it a lifetime beyond the "
        "agent's and the verifier's, and leave these rows out of the mean.",
        source="Docker, E2B, Daytona, Modal, Playwright and Jupyter messages",
        runner_up=Layer.VERIFIER_RUNTIME,
        failure_kind="provider_unavailable",
    ),
    Rule(
        id="infra.gateway",
        layer=Layer.INFRA,
        needs="502, 503, 504 or Cloudflare's 52x with a gateway's body",
        sees=_gateway,
        cause="A gateway in front of the server could not reach it: {what}.",
        next_action="Look at the gateway's upstream and its time limits, see whether the server behind it lives, then "
        "replay the request.",
        source="nginx, envoy, HAProxy and Cloudflare error pages",
        failure_kind="transport_unreachable",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="infra.gateway_told",
        layer=Layer.INFRA,
        needs="A gateway's words in a sidecar or a log",
        sees=both(
            said(_GATEWAY_WORDS, sources=("result", "row", "log", "told"), unless=r"x-nginx|server: nginx"),
            said(statuses=_GATEWAY, sources=("log",)),
            said(statuses=_GATEWAY - {503}, sources=("result", "row")),
        ),
        cause="A gateway in front of the server could not reach it: {what}.",
        next_action="Look at the gateway's upstream and its time limits, see whether the server behind it lives, then "
        "replay.",
        source="nginx, envoy, HAProxy and Cloudflare error pages",
        strength=Strength.STATUS,
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="infra.head_server",
        layer=Layer.INFRA,
        needs="Words that the head server cannot be reached",
        sees=said(
            r"could not connect to the head server[^\n]{0,120}|head server[^\n]{0,80}(?:unreachable|not running|"
            r"refused)"
        ),
        cause="The head server does not answer at the address the collector was given: {what}.",
        next_action="Start the servers first (`gym env start`), or set head_server.host and head_server.port to where "
        "they run.",
        source="Gym 0.7.0 start-up",
        strength=Strength.PROVEN,
        runner_up=Layer.CONFIG,
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.head_answer",
        layer=Layer.INFRA,
        needs="A head request that failed or was answered by something else",
        sees=_head_answers_strangely,
        cause="What answers at the head server's address is not Gym's head server ({what}).",
        next_action="See who listens on the head port and give this run a port of its own.",
        source="Gym 0.7.0 head server",
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.port_in_use",
        layer=Layer.INFRA,
        needs="Words that a port is taken",
        sees=_port_taken,
        cause="A port that a server needs is taken: {what}.",
        next_action=_PORT_ADVICE,
        source="Linux EADDRINUSE",
        strength=Strength.PROVEN,
        failure_kind="transport_local_resource",
    ),
    Rule(
        id="infra.disk",
        layer=Layer.INFRA,
        needs="Words that a filesystem is full, read-only, stale or refuses",
        sees=advised(_disk_said, _DISK_ADVICE),
        cause="The filesystem refused: {what}.",
        next_action="Free space or correct the mount and its permissions on that node (`df -h`, `df -i`, `ls -ld` of "
        "that path, for the user that runs the server), then run the rows again that it cost.",
        source="Linux errno",
        failure_kind="persistence_failed",
    ),
    Rule(
        id="infra.tls",
        layer=Layer.INFRA,
        needs="A failed TLS handshake or certificate",
        sees=advised(both(said(errors=(TransportErrorKind.TLS,)), _tls_said), _TLS_ADVICE),
        cause="TLS to the server failed: {what}.",
        next_action="Check the scheme (http or https), the host name and the CA bundle that this process trusts.",
        source="OpenSSL",
        runner_up=Layer.CONFIG,
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.header_limit",
        layer=Layer.INFRA,
        needs="Words that a header is larger than a server takes",
        sees=_header_limit,
        cause="The request's headers, usually its collected cookies, are larger than the server takes: {what}.",
        next_action="Stop the cookies from piling up (a cookie jar of its own for each row), or raise the server's "
        "header limit.",
        source="aiohttp's 8,190-byte field limit, nginx's and uvicorn's own; RFC 6585 431",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="infra.header_status",
        layer=Layer.INFRA,
        needs="431, or 413 from a gateway",
        sees=both(
            said(statuses=(431, 413), sources=("exchange", "result", "row")),
            said(
                r"request entity too large|payload too large|maximum request body size",
                sources=("result", "row", "told"),
            ),
        ),
        cause="The request is larger than a server or gateway on the way takes: {what}.",
        next_action="Raise that limit (client_max_size, client_max_body_size, header limits), or send less.",
        source="RFC 6585, RFC 9110",
        strength=Strength.STATUS,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.ray",
        layer=Layer.INFRA,
        needs="Ray's words about its cluster",
        sees=said(
            r"gettimeouterror|failed to connect to gcs|unable to connect to gcs|"
            r"gcs(?:_rpc_)?\w* ?(?:server )?(?:timed out|"
            r"unavailable)|ray(?:\.exceptions)?\.\w*(?:RaySystemError|NodeDiedError|LocalRayletDiedError|RpcError|"
            r"OwnerDiedError)|raylet (?:died|process|has|exited)|nodediederror|the node (?:where|on which|"
            r"with)[^\n]{0,80}(?:died|dead|failed)|could not find any running ray instance|"
            r"ray cluster[^\n]{0,40}(?:not|unreachable)|workers? never (?:joined|registered)|"
            r"node [^\n]{0,80}marked dead|missed too many heartbeats|no available node types can fulfill|"
            r"cannot be scheduled right now|infeasible (?:resource|task|request)|"
            r"placement group[^\n]{0,80}(?:infeasible|timed? ?out|pending|cannot|not ready|failed)|"
            r"did not start within|ray head[^\n]{0,60}(?:refused|unreachable)|failed to (?:start|"
            r"register) (?:the )?(?:worker|raylet|dashboard)|the autoscaler|insufficient resources[^\n]{0,40}ray"
        ),
        cause="The Ray cluster is not what the run needs: {what}.",
        next_action="Read `ray status` and the head's and workers' first errors before anything in Gym or the data.",
        source="Ray 2.x",
        failure_kind="kill_shaped",
    ),
    Rule(
        id="infra.ray_actor",
        layer=Layer.INFRA,
        needs="A Ray actor or worker that died, with no reason told",
        sees=said(
            r"actordiederror|actorunavailableerror|rayactorerror|the actor (?:died|is (?:dead|unavailable))|"
            r"workercrashederror|worker exit type: system_error|worker unexpectedly exits|a worker died or was killed|"
            r"worker (?:process )?(?:unexpectedly )?(?:died|exited|crashed)|owner has exited",
            unless=r"out of memory|oom",
        ),
        cause="A Ray worker died: {what}.",
        next_action="Read that worker's own log and the node's kernel log around this time; memory is the usual "
        "reason.",
        source="Ray 2.x",
        strength=Strength.STATUS,
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="kill_shaped",
    ),
    Rule(
        id="infra.slurm",
        layer=Layer.INFRA,
        needs="Slurm's or the container runtime's words",
        sees=advised(
            said(
                r"slurmstepd: error|srun: error|srun: (?:Force|Job step)|sbatch: error|"
                r"slurm[^\n]{0,40}(?:error|cancel)|"
                r"node[_ ]fail\b|job \d+ (?:cancelled|on)|CANCELLED AT|DUE TO (?:NODE FAILURE|PREEMPTION|TIME LIMIT|"
                r"TASK FAILURE)|pyxis:|enroot|failed to (?:create|start|import) container|no such container|"
                r"error response from daemon|docker: |dockerexception|fetching server api version|docker daemon|"
                r"docker\.sock|image[^\n]{0,40}not found|manifest unknown|errimagepull|"
                r"/images/create\?|https?://[^\s'\"\\]+/v2/(?:[\\'\"]|[^\s'\"]*/(?:manifests|blobs)/)|"
                r"no such image|failed to pull image|back-off (?:restarting|pulling)|probe failed: |"
                r"nodes? (?:are|is) available: \d+ insufficient|failedscheduling|node was low on resource: (?!memory)|"
                r"toomanyrequests: |pull rate limit|imagepullbackoff|crashloopbackoff|"
                r"singularity|apptainer|cannot mount|mount(?:ing)? [^\n]{0,60}failed|"
                r"bind: ",
                unless=rf"oom[-_ ]?kill|out of memory|{_STEP_ENDED}",
            ),
            _CONTAINER_ADVICE,
        ),
        cause="The job or its container failed below Gym: {what}.",
        next_action="Read the job's state and first error (`sacct -j`, Slurm's stderr), and repair node, image or "
        "mount first; after a time limit or preemption, resume with the same inputs in a new job.",
        source="Slurm, pyxis, Docker and Kubernetes messages",
        strength=Strength.PROVEN,
        failure_kind="kill_shaped",
    ),
    Rule(
        id="infra.step_ended",
        layer=Layer.INFRA,
        needs="Slurm's words that it ended a step or that a task exited, without a reason",
        sees=said(_STEP_ENDED),
        cause="Slurm ended the job's step and does not say why: {what}.",
        next_action="Look for the first error before it, and ask `sacct -j` for the state and the exit code of each "
        "step.",
        source="srun and slurmstepd tell so of any step whose task fails or that somebody cancels",
        strength=Strength.FALLBACK,
        failure_kind="kill_shaped",
    ),
    Rule(
        id="infra.gpu",
        layer=Layer.INFRA,
        needs="A GPU, driver or NCCL error",
        sees=said(
            r"NCCL (?:error|watchdog|WARN)|ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandled|"
            r"nccl\w*Error|ProcessGroupNCCL|watchdog caught collective operation timeout|"
            r"collective operation timed? ?out|"
            r"CUDA error: (?!out of memory|an? illegal|misaligned|device-side|invalid|no kernel|CUBLAS)[^\n]{0,100}|"
            r"cuda driver version is insufficient|nvidia driver on your system|no cuda gpus are available|"
            r"failed to infer device type|nvidia-smi has failed|NVML[^\n]{0,40}|"
            r"\bXid\b|fallen off the bus|uncorrectable ecc|ibv_|infiniband|unable to determine the device handle"
        ),
        cause="The GPUs or the network between them failed: {what}.",
        next_action="Check the node (nvidia-smi, dmesg, NCCL_DEBUG=INFO), exclude it, and start again.",
        source="CUDA, NCCL and PyTorch messages",
        runner_up=Layer.MODEL_SERVING,
        failure_kind="kill_shaped",
    ),
    Rule(
        id="infra.never_up",
        layer=Layer.INFRA,
        needs="Words that a server process ended or never became ready",
        sees=said(
            r"returned (?:only )?\d+ rollouts?\b[^\n]{0,30}(?:but|for) \d*|expected \d+ rollouts?\b[^\n]{0,20}got \d+|"
            r"timed? ?out waiting for [^\n]{0,40}servers?|agent (?:likely )?crashed|"
            r"servers? not ready within|"
            r"process `?(?P<what>[\w.-]+)`? finished unexpectedly|servers? (?:did not|never) (?:start|come up|"
            r"become ready|spin)|spin[- ]?up time ?out|waiting for [^\n]{0,60}servers? to spin up[^\n]{0,40}time|"
            r"not all servers (?:are )?(?:up|ready)|servers? (?:failed|not) (?:to start|ready) (?:after|within)"
        ),
        cause="A server ended or never became ready: {what}.",
        next_action="Read that server's own log from its start; its first error is the cause.",
        source="Gym 0.7.0 start-up",
        strength=Strength.STATUS,
        runner_up=Layer.CONFIG,
    ),
    Rule(
        id="infra.unresolved",
        layer=Layer.INFRA,
        needs="A call that was never sent, since its host's name has no address",
        sees=_unresolved,
        cause="The host's name does not resolve, so the call was never sent: {what}.",
        next_action=_RESOLVING,
        source="getaddrinfo(3) as Python, aiohttp and curl tell it",
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.unresolved_told",
        layer=Layer.INFRA,
        needs="Words that a host's name does not resolve",
        sees=said(_UNRESOLVED),
        cause="A host's name does not resolve: {what}.",
        next_action=_RESOLVING,
        source="getaddrinfo(3) as Python, aiohttp and curl tell it",
        strength=Strength.STATUS,
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.refused",
        layer=Layer.INFRA,
        needs="A refused or unreachable connection",
        sees=said(errors=(TransportErrorKind.REFUSED, TransportErrorKind.UNREACHABLE), unless=_UNRESOLVED),
        cause="Nothing answers at the address: {what}.",
        next_action=_LISTENING,
        source="TCP",
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.refused_told",
        layer=Layer.INFRA,
        needs="Words that nothing answers at an address",
        sees=said(_UNREACHED, unless=rf"{_UNRESOLVED}|certificate|\[?ssl: "),
        cause="Nothing answers at the address: {what}.",
        next_action=_LISTENING,
        source="TCP errors as Python, aiohttp, httpx and urllib3 tell them",
        strength=Strength.STATUS,
        failure_kind="transport_unreachable",
    ),
    Rule(
        id="infra.endless_reconnect",
        layer=Layer.INFRA,
        needs="Four or more tries of one request by one caller, each connection dropped without an answer",
        sees=_endless_reconnect,
        cause="{what}. Gym's client tries again every 0.5 s without end and logs only every hundredth error of a "
        "process, so the row hangs until its collector is stopped.",
        next_action="Look at the process at the far end of this boundary (is it up, does it crash on this request?), "
        "or correct the URL; the row goes on by itself once it answers.",
        source="Gym 0.7.0 nemo_gym.server_utils.request, [request_retry] Hit N global errors",
        strength=Strength.PROVEN,
        runner_up=Layer.MODEL_SERVING,
        failure_kind="transport_peer_drop",
    ),
    Rule(
        id="infra.dropped",
        layer=Layer.INFRA,
        needs="A connection that was reset or closed before the answer was whole",
        sees=said(
            errors=(TransportErrorKind.RESET, TransportErrorKind.CLOSED, TransportErrorKind.MALFORMED),
        ),
        cause="The connection was dropped before the answer was whole: {what}.",
        next_action="See whether the server behind it restarted or was killed at that time (its own log's last lines; "
        "`dmesg -T | grep -i 'killed process'` on its node); if it lives, see what gateway or keep-alive limit lies "
        "between.",
        source="TCP; Gym retries a dropped connection every 0.5 s without end",
        runner_up=Layer.MODEL_SERVING,
        failure_kind="transport_peer_drop",
    ),
    Rule(
        id="infra.dropped_told",
        layer=Layer.INFRA,
        needs="Words that a connection was dropped",
        sees=said(
            r"clientpayloaderror|transferencodingerror|contentlengtherror|response payload is not completed|"
            r"server ?disconnected|connection reset|connectionreseterror|remoteprotocolerror|incompleteread|"
            r"peer closed connection|incomplete chunked read|broken ?pipe|connection (?:aborted|lost|closed)|"
            r"clientoserror|global (?:server disconnected|client os) ?errors?|readerror"
        ),
        cause="A connection was dropped: {what}.",
        next_action="See whether the server behind it restarted or was killed at that time (its own log's last lines; "
        "`dmesg -T | grep -i 'killed process'` on its node); if it lives, see what gateway or keep-alive limit lies "
        "between.",
        source="aiohttp, httpx and urllib3 messages; Gym 0.7.0 [request_retry]",
        strength=Strength.STATUS,
        runner_up=Layer.MODEL_SERVING,
        failure_kind="transport_peer_drop",
    ),
    Rule(
        id="infra.never_answered",
        layer=Layer.INFRA,
        needs="An exchange that has been open for long, with nothing open below it",
        sees=_never_answered,
        cause="{what} was never answered; everything above it waits for it.",
        next_action="List what is open with its age (`gymtap inflight`), look at the process at the far end of this "
        "one (`py-spy dump --pid PID`, `ss -tnp`), and restart it; then run the rows again that waited.",
        source="Gym's client has no time limit of its own, so a half-open socket waits for ever",
        strength=Strength.STATUS,
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="transport_timeout",
    ),
    Rule(
        id="infra.gym_5xx",
        layer=Layer.INFRA,
        needs="502, 503 or 504 between Gym's own servers, or the collector's word that a request got no answer",
        sees=both(
            _gym_5xx,
            said(r"class=(?P<what>agent_request_failed[^\n]*)", sources=("log",), unless=r"error=429|time(?:d )?out"),
        ),
        cause="Something in front of a Gym server answered {what}; the rollout never ran.",
        next_action="Find the proxy or load balancer on that boundary; Gym's own servers do not answer so.",
        source="Gym 0.7.0 counts these as agent_request_failed",
        strength=Strength.STATUS,
        failure_kind="agent_request_failed",
    ),
    Rule(
        id="infra.killed",
        layer=Layer.INFRA,
        needs="A process that a signal ended",
        sees=said(
            r"\bSIGTERM\b|\bsigsegv\b|segmentation fault|exit(?:ed)?(?: with)? (?:code|status)[ :=]+(?:-?15|-?11|143|"
            r"139)\b|bus error|core dumped|received signal \d+"
        ),
        cause="A process was ended by a signal: {what}.",
        next_action="Find who sent it (scheduler, time limit, preemption, crash) in the job's and the kernel's log.",
        source="POSIX signals",
        strength=Strength.FALLBACK,
        failure_kind="kill_shaped",
    ),
)
