"""Configuration: what the run was told is wrong (keys, names, addresses, flags, overrides, limits)."""

import re
from collections.abc import Iterator
from dataclasses import replace

from gymtap.proxy.diagnose.before_sending import before_sending
from gymtap.proxy.diagnose.evidence import Seen
from gymtap.proxy.diagnose.parameters import in_row, refused_parameter
from gymtap.proxy.diagnose.rule import (
    GENERATION,
    NOT_SERVED,
    OVERFLOW,
    PROVIDER,
    Rule,
    Sight,
    Strength,
    View,
    advised,
    both,
    exchange_sight,
    said,
    sight_of,
    web_pages,
)
from gymtap.proxy.diagnose.tool_answers import hopeless_tools, rewarded, unknown_tools
from gymtap.proxy.diagnose.tools import offered_tools
from gymtap.proxy.diagnose.transcripts import Echo, echoes
from gymtap.schemas import Call, Layer, LeafKind

_KEY_WORDS = (
    r"invalid[_ ]api[_ ]key|incorrect api key|api[_ ]key (?:is )?(?:invalid|missing|not valid|required)|"
    r"invalid x-api-key|no api[_ ]key|missing api[_ ]key|api_key client option must be set|invalid (?:access |"
    r"bearer |api |"
    r"auth\w* )?token|authentication[_ ]?error|authentication (?:failed|required)|no auth credentials|"
    r"invalid subscription key|missing (?:bearer|authorization)|unauthori[sz]ed|invalid credentials|"
    r"missing authentication|signature expired|signature[^\n]{0,40}does not match|could not validate credentials|"
    r"token (?:has )?expired"
)
_PARAMETER_WORDS = (
    r"unsupported (?:parameter|value)|unrecognized request argument|unknown parameter|unexpected keyword argument|"
    r"extra (?:inputs|fields) (?:are )?not permitted|unsupported_parameter|does not support (?:the )?(?:parameter|"
    r"parameters)|(?:temperature|top_p|top_k|n|logprobs|max_tokens|max_completion_tokens|max_output_tokens|"
    r"presence_penalty|seed|stop|best_of|frequency_penalty|min_tokens|min_p|repetition_penalty|"
    r"prompt_logprobs) must be|"
    r"cannot both be (?:specified|set|used)|use 'max_completion_tokens' instead|"
    r"out of range.{0,40}(?:temperature|top_p)|max_(?:completion_)?tokens is too large|at most \d+ completion tokens|"
    r"requested sample logprobs of \d+|too many logprobs|"
    r"only supports streaming|please set stream|does not support parameters|maximum allowed number of output tokens|"
    r"budget_tokens: input should|"
    r"range of (?:max_tokens|temperature|top_p|top_k|n) should be|requested n=\d+ is not supported|"
    r"logprobs (?:is|are) not supported"
)
_CAPABILITIES = (
    r"(?:tool|function|image|audio|video|vision|media|pdf|file|system|developer|reasoning|structured|stream)\w*"
    r"[^\n]{0,30} (?:is|are) not (?:supported|enabled|available) (?:with|in|by|for|on) (?:this|the|models?)\b|"
    r"(?:model|endpoint|deployment)[^\n]{0,40} does(?: not|n't) support (?:image|audio|video|vision|tool|function|"
    r"system|developer|file|pdf|structured|response_format)\w*|"
    r"\b(?:only )?supports? at most \d+ (?:image|audio|video)?|"
    r"\d+ (?:image|audio|video) items? but the model supports at most"
)
"""What a model cannot do, whatever the row says: another one has to be configured, or other rows."""
_ACCOUNT = (
    r"location is not supported|(?:organi[sz]ation|account|project|key)\b[^\n]{0,30} (?:has been|is|was) (?:disabled|"
    r"suspended|deactivated|blocked|archived)|account is in good standing|\barrearage\b"
)

_QUOTA = (
    r"insufficient[_ ]quota|exceeded your current quota|billing|credit balance|credits? (?:exhausted|expired|"
    r"remaining)|quota (?:has been )?(?:exceeded|exhausted)|payment required|budget has been exceeded|"
    r"included credits|spend(?:ing)? limit|out of credits|insufficient (?:balance|funds|credits?)|(?:purchase|buy|"
    r"add|any|no|used all)"
    r"[^\n]{0,30}\bcredits?\b|top[- ]?up\b|recharge"
)


def _wrong_base_url(view: View) -> Iterator[Sight]:
    """A provider that has no such route: the path doubles or lacks /v1, or the body is a router's own 404 or 405."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if (
            exchange is None
            or exchange.call not in {Call.PROVIDER, Call.JUDGE}
            or failure.status not in {400, 404, 405, 301, 308}
        ):
            continue
        if re.search(NOT_SERVED, failure.said, re.IGNORECASE):
            continue
        doubled = "/v1/v1" in exchange.path
        missing = "/v1/" not in exchange.path and failure.status != 400
        page = failure.status == 404 and failure.innermost and failure.innermost.leaf.kind in _NO_ENVELOPE
        if (
            doubled
            or missing
            or page
            or _is_router_404(failure.said)
            or (failure.status != 400 and not failure.said.strip())
        ):
            reason = "doubles /v1" if doubled else "lacks /v1" if missing else "is not served there"
            yield exchange_sight(view, exchange, f"{failure.status} {failure.said[:200]}", f"{exchange.path} {reason}")


_NO_ENVELOPE = frozenset({LeafKind.TEXT, LeafKind.HTML})
"""A model's own 404 is JSON; a page or a bare sentence is a router's or an ingress'."""


def _is_router_404(said: str) -> bool:
    return bool(
        re.search(
            r"^(?:not found|method not allowed|404\b|405\b|page not found)|invalid url|cannot post|"
            r"plain http request was sent to https",
            said,
            re.IGNORECASE,
        )
    )


_parameter_said = said(
    _PARAMETER_WORDS,
    calls=GENERATION,
    statuses=(400, 422),
    unless=r"context length|max_\w*tokens[^\n]{0,40}\bgot -\d|tools?\.\d|json[_ ]schema",
)


def _parameter_words(view: View) -> Iterator[Sight]:
    """A provider's words about a parameter, unless it is one that the row itself asks for."""
    for sight in _parameter_said(view):
        parameter = refused_parameter(sight.failure) if sight.failure else None
        if parameter is None or not in_row(view, parameter):
            yield sight


def _parameter_refused(view: View) -> Iterator[Sight]:
    """A parameter that the provider refuses and that the row did not ask for: the configuration added it."""
    for failure in (*view.exchange_failures, *view.soft_failures):
        parameter = refused_parameter(failure)
        too_long = re.search(OVERFLOW, failure.said, re.IGNORECASE)  # then the limit was computed and not configured
        if parameter and not in_row(view, parameter) and not failure.judge and not too_long:
            yield sight_of(failure, parameter)


_model_said = said(NOT_SERVED, calls=GENERATION, statuses=(400, 403, 404, 422, 429, 500, 503))
_DEPLOYMENT = re.compile(r"/deployments/([^/?]+)")


def _model_unknown(view: View) -> Iterator[Sight]:
    """A provider's words that it does not serve the model; where the URL names a deployment, that is what is wrong."""
    for sight in _model_said(view):
        named = _DEPLOYMENT.search(sight.exchange.path) if sight.exchange else None
        if named is None:
            yield sight
            continue
        what = f"{sight.what.rstrip('.')}; the URL names the deployment {named[1]}"
        yield replace(sight, what=what, advice=_DEPLOYMENT_ADVICE.replace("{deployment}", named[1]))


_DEPLOYMENT_ADVICE = (
    "Compare the deployment `{deployment}` of that URL with those that the resource has (Azure: `az cognitiveservices "
    "account deployment list`; the deployment's own name counts, not the model's): set {role}_model_name to one of "
    "them, or correct the resource in {role}_base_url; one made just now needs some minutes."
)


def _run_limit(view: View) -> Iterator[Sight]:
    """Several /run calls, or one, ended by the caller after the same short round time: its own limit."""
    ended = [e for e in view.material.of(Call.RUN) if e.timeout and e.duration_ms]
    if not ended:
        return
    durations = [e.duration_ms or 0.0 for e in ended]
    shortest, longest = min(durations), max(durations)
    same = longest - shortest <= max(0.02 * longest, 50)
    if same and (len(ended) > 1 or _round_seconds(shortest)):
        yield exchange_sight(
            view, ended[0], f"{len(ended)} /run calls ended after {shortest:.0f} ms", f"{shortest / 1000:g} s"
        )


def _round_seconds(duration_ms: float) -> bool:
    return duration_ms >= 1_000 and (duration_ms % 5_000 < 100 or duration_ms % 5_000 > 4_900)


def _model_never_called(view: View) -> Iterator[Sight]:
    """A row that ended well although nothing asked a model."""
    runs = [e for e in view.material.of(Call.RUN) if e.status is not None and e.status < 400]
    asked = view.material.of(Call.MODEL, Call.PROVIDER, Call.RESPONSES, judge=None)
    if not runs or asked:
        return
    for run in runs[:1]:
        body = run.response_json
        if isinstance(body, dict) and body.get("failure"):
            continue
        response = body.get("response") if isinstance(body, dict) else None
        if isinstance(body, dict) and not (isinstance(response, dict) and response.get("output")):
            yield exchange_sight(view, run, "/run answered 200 with an empty output, and no model call was made")


def _no_content_type(view: View) -> Iterator[Sight]:
    """FastAPI 422 at the whole body, whose input is the body as a string: it was not sent as JSON."""
    for failure in view.exchange_failures:
        exchange = failure.exchange
        if exchange is None or failure.status != 422:
            continue
        detail = exchange.response_json.get("detail") if isinstance(exchange.response_json, dict) else None
        whole = isinstance(detail, list) and any(
            isinstance(d, dict) and d.get("loc") == ["body"] and isinstance(d.get("input"), str) for d in detail
        )
        sent_as = exchange.request_headers.get("content-type", "")
        if whole and "json" not in sent_as:
            yield exchange_sight(view, exchange, f"content-type: {sent_as or 'none'}", sent_as or "no content type")


_GENERATION_PATHS = ("/responses", "/completions", "/messages")


def _prefix_bypassed(view: View) -> Iterator[Sight]:
    """Model calls of one kind, some with the rollout's prefix and some without."""
    calls = [e for e in view.material.of(Call.MODEL) if not e.failed and e.path.endswith(_GENERATION_PATHS)]
    prefixed = [e for e in calls if e.path.startswith("/ng-rollout/")]
    bare = [e for e in calls if not e.path.startswith("/ng-rollout/")]
    if prefixed and bare:
        yield exchange_sight(view, bare[0], f"{bare[0].path} beside {prefixed[0].path}", bare[0].path)


def _unserved_tool(view: View) -> Iterator[Sight]:
    """404 for a tool that the row offers: its route is not registered, or the server is not the one that has it."""
    offered = offered_tools(view)
    tools = view.material.of(Call.TOOL)
    unserved = [e for e in tools if e.status in {404, 405} and _tool_of(e) in offered and _is_routers(e)]
    names = list(dict.fromkeys(map(_tool_of, unserved)))
    none_served = len(names) > 1 and len(unserved) == len(tools)
    for exchange in unserved:
        what = _none_served(exchange, names) if none_served else f"the tool {_tool_of(exchange)}"
        sight = exchange_sight(view, exchange, f"{exchange.status} on {exchange.path}, which the row offers", what)
        mended = rewarded(view.material.exchanges)  # else another tool does not stand in for this one
        yield replace(
            sight, failure=sight.failure if mended else None, advice=_WRONG_SERVER_ADVICE if none_served else ""
        )


def _tool_of(exchange: Seen) -> str:
    return exchange.path.rsplit("/", 1)[-1]


_SERVER_COOKIE = re.compile(r"(?:^|[;,]\s*)(\w+___[\w.-]+)=")


def _none_served(exchange: Seen, names: list[str]) -> str:
    """All the tools that were called, and which server answered, as its session cookie says."""
    cookies = _SERVER_COOKIE.findall(exchange.response_headers.get("set-cookie", ""))
    server = ", ".join(cookies) or exchange.server
    return f"any of the tools that were called ({', '.join(names)})" + (f"; {server} answered" if server else "")


_WRONG_SERVER_ADVICE = (
    "The row's agent is probably wired to another resources server than its tools belong to: compare the server that "
    "answered (its session cookie is <Class>___<config name>) with the one that has these routes, and correct the "
    "agent's `resources_server.name`, the server's own class or the row's agent_ref; only if it is the right one, "
    "register the routes."
)


def _told_unserved(view: View) -> Iterator[Sight]:
    offered = offered_tools(view)
    for exchange, name, text in unknown_tools(view.material.exchanges):
        if name in offered:
            yield exchange_sight(view, exchange, text[:300], f"the tool {name}")


def _tool_key(view: View) -> Iterator[Sight]:
    """A tool that told nothing but that the key to what stands behind it is rejected."""
    for exchange, text in hopeless_tools(view.material.exchanges):
        if re.search(r"(?:api|access|subscription)[ _-]?key", text, re.IGNORECASE) and re.search(
            rf"{_KEY_WORDS}|\b40[13]\b|forbidden|invalid|missing|not set", text, re.IGNORECASE
        ):
            yield exchange_sight(view, exchange, text[:300], exchange.path.rsplit("/", 1)[-1])


def _is_routers(exchange: Seen) -> bool:
    """Whether a 404 or 405 is a router's own: what a tool itself cannot find, it names."""
    words = exchange.unwrapped.leaf.message.strip()
    return not words or bool(
        re.match(r"not found\W*$|method not allowed|404|405|cannot |no route|tool ", words, re.IGNORECASE)
    )


def _redirected(view: View) -> Iterator[Sight]:
    """A provider's redirect: the client does not follow it with its body, so the address is not the API's."""
    for exchange in view.material.of(Call.PROVIDER, judge=None):
        if exchange.status in {301, 302, 303, 307, 308}:
            to = exchange.response_headers.get("location", "somewhere else")
            yield exchange_sight(view, exchange, f"{exchange.status} to {to}", f"{exchange.path} redirects to {to}")


def _told_agent_never_ran(view: View) -> Iterator[Sight]:
    """A result with nothing in its output whose usage has no input tokens: any call of a model consumes some."""
    if view.material.exchanges:
        return
    for source, where, row in view.result_rows:
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        unused = isinstance(usage, dict) and not any(count for name, count in usage.items() if name.endswith("tokens"))
        if (
            isinstance(response, dict)
            and response.get("output") == []
            and unused
            and not response.get("incomplete_details")
        ):
            yield Sight(source, where, "an empty output, and no tokens were used", pointer="/response/output")


def _preflight(view: View) -> Iterator[Sight]:
    """What made Gym stop before it sent anything."""
    for failure in view.told_failures:
        found = before_sending(failure)
        if found is not None and found[0] is Layer.CONFIG:
            yield sight_of(failure, found[1])


_FLAG_ADVICE = {
    r"unrecognized arguments|no such option|nosuchoption|invalid choice:|unknown engine argument|error: argument --": (
        "Correct that flag or its value on the command line, or where the configuration writes the engine's arguments; "
        "the program's own `--help` lists what this version takes."
    ),
}
_HUB_ADVICE = {
    r"gated repo|gatedrepoerror|is restricted|must be authenticated": "Ask for access to that repository on the hub "
    "with the account whose token is used, and set HF_TOKEN to it where the servers start, on every node.",
}
_yaml_said = both(
    said(r"(?:No such file or directory|FileNotFoundError)[^\n]*\.(?:jsonl|ndjson|parquet)\b", sources=("log",)),
    said(
        r"yaml\.(?:scanner|parser|constructor|composer)\.\w+|ScannerError|ParserError: while parsing a|"
        r"found character '\\\\t'|(?:No such file or directory|FileNotFoundError)[^\n]*\.ya?ml|"
        r"config(?:uration)? (?:file|path) [^\n]{0,120}(?:does not exist|not found)"
    ),
)
_YAML_PLACE = re.compile(r"in \"([^\"\n]+)\", line (\d+)")


def _yaml(view: View) -> Iterator[Sight]:
    """A file that is not YAML or not there, with the file and line that the parser names last."""
    for sight in _yaml_said(view):
        places = _YAML_PLACE.findall(sight.failure.said) if sight.failure else []
        yield replace(sight, what=f"{sight.what.rstrip('.')}, in {places[-1][0]}:{places[-1][1]}") if places else sight


RULES: tuple[Rule, ...] = (
    Rule(
        id="config.unserved_tool",
        layer=Layer.CONFIG,
        needs="404 for a tool that the row offers",
        sees=both(_unserved_tool, _told_unserved, echoes(Echo.NOT_FOUND, offered=True)),
        cause="The row offers tools that the resources server does not have: no route serves {what}.",
        next_action="Register the route in that resources server, or give the row the agent (agent_ref) whose "
        "resources server has it; do not count rows that were answered so.",
        source="Gym pastes a tool's 404 into function_call_output",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="config.api_key",
        layer=Layer.CONFIG,
        needs="A 401 or 403 from a model provider, or its words about a key",
        sees=both(
            said(statuses=(401,), calls=GENERATION, sources=("exchange",)),
            said(_KEY_WORDS),
        ),
        cause="The provider rejected the {role}'s API key: {what}.",
        next_action="Set {role}_api_key to a key that this provider knows, restart the model server, which keeps "
        "answering with the old error, and run one row; agent and verifier are not at fault.",
        source="OpenAI, Azure, Anthropic and NIM error codes; Gym 0.7.0 stops retrying on 401",
    ),
    Rule(
        id="config.tool_key",
        layer=Layer.CONFIG,
        needs="A tool that tells of nothing but a missing or rejected key, in a row without reward",
        sees=_tool_key,
        cause="The key to what stands behind the tool {what} is missing or rejected; the model was fed the error.",
        next_action="Set that key where the resources server reads it (its configuration or environment), restart it, "
        "and discard the rows since its first error.",
        source="Search and retrieval tools that call a hosted API",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="config.permission",
        layer=Layer.CONFIG,
        needs="A 403 from a model provider, or its words that something is denied; 401 or 403 before a Gym server",
        sees=both(
            said(statuses=(403,), calls=GENERATION, sources=("exchange",)),
            said(
                r"not authorized to perform|do(?:n't| not) have access to|\baccess ?denied\b|"
                r"permission[^\n]{0,80}denied|"
                r"(?:country|region)[^\n]{0,40}not supported|security token[^\n]{0,40}(?:expired|invalid)",
                calls=PROVIDER,
                sources=("told", "result", "row"),
            ),
            said(_ACCOUNT, calls=GENERATION, statuses=(400, 401, 403)),
            said(
                statuses=(401, 403), calls=frozenset({Call.RUN, Call.AGENT_SESSION, Call.HEAD}), sources=("exchange",)
            ),
        ),
        cause="What answers refuses this account, key or caller the model, region or route: {what}.",
        next_action="Check what the key may use at this provider (model access, region, organisation), or what the "
        "proxy before it wants, then run one row.",
        source="OpenAI and NIM error codes",
        strength=Strength.STATUS,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="config.quota",
        layer=Layer.CONFIG,
        needs="A provider's words that quota or credit is used up",
        sees=both(
            said(_QUOTA, calls=GENERATION, statuses=(400, 402, 403, 429), unless=r"(?:disk|storage) quota|errno"),
            said(statuses=(402,), calls=GENERATION),
        ),
        cause="The {role} provider's quota or credit is used up, which no retry changes: {what}.",
        next_action="Top up, or change {role}_api_key, then restart the model server: Gym's keeps answering with the "
        "old error until then.",
        source="OpenAI insufficient_quota; Gym 0.7.0 [model_retry_stop]",
        strength=Strength.PROVEN,
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="provider_quota_exhausted",
    ),
    Rule(
        id="config.model_name",
        layer=Layer.CONFIG,
        needs="A provider's words that it does not serve the model asked for",
        sees=_model_unknown,
        cause="The {role}'s model name in the configuration is not one that the provider serves: {what}.",
        next_action="Set {role}_model_name to one of the ids that GET {base}/models lists; the request asked for "
        "{model}.",
        source="vLLM 0.32 NotFoundError, OpenAI model_not_found, Azure DeploymentNotFound, LiteLLM router",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="config.base_url",
        layer=Layer.CONFIG,
        needs="404 or 405 from the provider's router rather than from its model",
        sees=both(
            _wrong_base_url,
            _redirected,
            said(statuses=(301, 302, 307, 308), calls=PROVIDER, sources=("told",)),
            said(
                r"\"detail\": ?\"(?:Not Found|Method Not Allowed)\"|^404 page not found|default backend - 404|"
                r"no route matched|"
                r"plain http request was sent to https",
                calls=frozenset({Call.PROVIDER}),
                sources=("result", "row", "told"),
            ),
        ),
        cause="The base URL does not lead to the provider's API: {what}.",
        next_action="Set {role}_base_url to the one under which GET <base_url>/models answers; most end in /v1.",
        source="FastAPI and gateway routers; Gym appends /chat/completions or /responses to the base URL",
    ),
    Rule(
        id="config.web_page",
        layer=Layer.CONFIG,
        needs="200 from the provider with a login page or a web application",
        sees=web_pages(of_people=True),
        cause="The base URL leads to a web page for people and not to the provider's API: {what}.",
        next_action="Set {role}_base_url to the one under which GET <base_url>/models answers with JSON (most end in "
        "/v1), or let this caller past the login; the exception that the page caused is a consequence.",
        source="Open WebUI, single sign-on and other portals answer any path with 200",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="config.tool_parser_flags",
        layer=Layer.CONFIG,
        needs="vLLM's words that tool choice needs its flags",
        sees=said(
            r"requires --(?:enable-auto-tool-choice|tool-call-parser)|--enable-auto-tool-choice|"
            r"tool_choice=.{0,30}requires"
        ),
        cause="vLLM was started without the flags that tool calls need.",
        next_action="Restart vLLM with --enable-auto-tool-choice and the --tool-call-parser of this model.",
        source="vLLM 0.32 request validation",
        runner_up=Layer.MODEL_SERVING,
    ),
    Rule(
        id="config.engine_flags",
        layer=Layer.CONFIG,
        needs="The engine's words that a flag is missing, or that its limit of adapters or media is too small",
        sees=said(
            r"requires --[a-z][\w-]+ to be set|(?:start|run|launch)\w* [^\n]{0,40}(?:with|using) [`'\"]?--[a-z]|"
            r"lora rank \d+ is greater than max_lora_rank|limit-mm-per-prompt|"
            r"at most \d+ (?:image|video|audio)(?:\(s\)|s)? may be provided",
            unless=r"enable-auto-tool-choice|tool-call-parser",
        ),
        cause="The engine was started without a flag, or with a smaller limit, than this needs: {what}.",
        next_action="Start the engine with the flag that the message is about (--reasoning-parser, --max-lora-rank, "
        "--limit-mm-per-prompt), or leave out of the rows what it does not take.",
        source="vLLM 0.32 start-up and request validation",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="config.capability",
        layer=Layer.CONFIG,
        needs="A provider's words that this model cannot do what was asked (tools, media, roles)",
        sees=said(_CAPABILITIES, calls=GENERATION, statuses=(400, 404, 422, 501), unless=r"json ?schema|grammar"),
        cause="The {role} model that is configured cannot do what the rows ask of it: {what}.",
        next_action="Configure a {role} model (or an engine) that can, or run rows that do not ask for it.",
        source="Google, Groq, OpenAI and vLLM request validation",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="config.proxy_login",
        layer=Layer.CONFIG,
        needs="407: an HTTP proxy that wants to know who asks",
        sees=both(said(statuses=(407,)), said(r"407 proxy authentication required|proxy authentication required")),
        cause="A proxy on the way wants a login before it lets the request out: {what}.",
        next_action="Put the login into HTTPS_PROXY, or the host into NO_PROXY, where this server starts; the API key "
        "is not at fault.",
        source="RFC 9110 section 15.5.8",
        strength=Strength.PROVEN,
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="config.parameter",
        layer=Layer.CONFIG,
        needs="A provider's words that it does not take a sampling parameter or its value",
        sees=_parameter_words,
        cause="The request carries a parameter that this provider does not take: {what}.",
        next_action="Remove or rename the parameter in the row or in the model server's configuration and run one row.",
        source="OpenAI, LiteLLM and vLLM parameter validation",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="config.parameter_added",
        layer=Layer.CONFIG,
        needs="A provider's 4xx about a parameter that the row does not have",
        sees=_parameter_refused,
        cause="The provider refuses the parameter {what}, which the model server's configuration adds.",
        next_action="Correct it in the model server's sampling overrides or extra_body, or in the client's defaults, "
        "and run one row.",
        source="vLLM 0.32 and OpenAI name the parameter in their 400",
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="config.told_by_server",
        layer=Layer.CONFIG,
        needs="A Gym server's exception that asks for another flag or setting",
        sees=said(
            r"(?:reasoning|tool)[- ](?:call[- ])?parser|(?<![\w-])--[a-z][a-z0-9]+(?:-[a-z0-9]+)+|(?:please|"
            r"must|should|need to|"
            r"have to) (?:not )?(?:set|enable|disable|configure|pass|do not use)\b[^\n]{0,80}|"
            r"(?:not|isn't) (?:configured|enabled) (?:in|for|on)\b",
            calls=frozenset({Call.MODEL, Call.JUDGE, Call.RUN, Call.VERIFY, Call.SEED_SESSION, Call.RESPONSES}),
            statuses=(500,),
            sources=("exchange",),
        ),
        cause="A server refuses the way it was configured or served: {what}.",
        next_action="Change the flag or setting that the message names where the server or engine is started.",
        source="Assertions of Gym's servers and engines' advice",
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="config.interpolation",
        layer=Layer.CONFIG,
        needs="OmegaConf's or Hydra's words about a key, an override or a mandatory value",
        sees=said(
            r"InterpolationKeyError|Interpolation key '(?P<what>[^']+)'|InterpolationResolutionError|"
            r"MissingMandatoryValue|Missing mandatory value|ConfigAttributeError|ConfigKeyError|"
            r"Key '[^']+' (?:is )?not in struct|Could not override '|MissingConfigException|"
            r"Cannot find primary config|OverrideParseException|ConfigCompositionException|LexerNoViableAltException|"
            r"mismatched input .* expecting|UnsupportedInterpolationType|Environment variable '[^']+' not found|"
            r"unresolved \$\{"
        ),
        cause="The configuration does not resolve: {what}.",
        next_action="Define the missing key in env.yaml or on the command line, and check with `gym env run "
        "--dry-run` or a dump; where it is the name of an agent or server, make the row's agent_ref.name (or "
        "+agent_name) one of those that the configuration starts.",
        source="OmegaConf 2.3, Hydra 1.3",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="config.yaml",
        layer=Layer.CONFIG,
        needs="A YAML parser's words, or a configuration or input file that is not there",
        sees=_yaml,
        cause="A configuration or input file is missing, or is not YAML: {what}.",
        next_action="Correct the path (config_paths, input_jsonl_fpath) or the line that the parser names; relative "
        "paths count from where the command runs.",
        source="PyYAML; Gym's config_paths",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="config.value",
        layer=Layer.CONFIG,
        needs="A configuration model that rejects a value, before any row ran",
        sees=advised(
            said(
                r"validation errors? for \w*(?:Config|Settings|Args|DatasetConfig|ServerConfig)\b|(?:license|"
                r"domain)\b[^\n]{0,80}Input should be|Invalid (?:config|configuration)\b|ConfigError|"
                r"ValidationError: \d+ validation errors? for \w*Config|unrecognized arguments|No such option|"
                r"NoSuchOption|invalid choice:|must be one of \[|unknown engine argument|error: argument --",
                sources=("log",),
                unless=r"(?:Model|Parallel|Cache|Scheduler|Vllm)Config\b|EngineArgs|max_model_len",  # the engine's own
            ),
            _FLAG_ADVICE,
        ),
        cause="The configuration is not accepted: {what}.",
        next_action="Add the key or correct the value that the message names, in the YAML of the server whose config "
        "it is or on the command line; `gym env validate` or a dry run shows in seconds whether it is right.",
        source="pydantic and argparse messages of Gym 0.7.0 and vLLM",
    ),
    Rule(
        id="config.preflight",
        layer=Layer.CONFIG,
        needs="A traceback from Gym's reading of its options, with Gym's own words for what is wrong",
        sees=_preflight,
        cause="Gym stopped before anything was sent, since its options do not fit together: {what}.",
        next_action="Correct the option, server, agent or path that the message names; no row ran, so none has to be "
        "run again.",
        source="Gym 0.7.0 rollout_collection, train_data_utils and config_types",
        strength=Strength.PROVEN,
        runner_up=Layer.DATA_SCHEMA,
    ),
    Rule(
        id="config.server_name",
        layer=Layer.CONFIG,
        needs="Words that a server, agent or reference is not in the configuration",
        sees=said(
            r"(?:agent|server|agent_name|resources server|model server|"
            r"environment)[^\n]{0,60}['\"`](?P<what>[\w.-]+)['\"`][^\n]{0,60}(?:not found|is not (?:in|defined|"
            r"registered|configured)|does not exist|unknown)|(?:could not find|cannot find|no|unknown) (?:agent|"
            r"server|config(?:uration)? for)[^\n]{0,80}|could not find [^\n]{0,80} in the (?:global )?config|"
            r"no agent (?:server )?named|agent_ref[^\n]{0,60}(?:not|unknown|missing)|almost-servers? detected|"
            r"KeyError: '[\w-]*(?:agent|_model|server)[\w-]*'|\w*(?:Server|Agent|Environment|Ref)\w*NotFound\w*|"
            r"not among the (?:configured|running|known|available)",
            unless=r"head server|connect|is available to handle",
        ),
        cause="A name refers to a server that the configuration does not define: {what}.",
        next_action="Make the row's agent_ref.name, or the config's reference, one of the top-level names that Gym "
        "started.",
        source="Gym 0.7.0 server references",
    ),
    Rule(
        id="config.credentials_missing",
        layer=Layer.CONFIG,
        needs="Words that an environment variable, a login or a licence for a download is missing",
        sees=advised(
            said(
                r"KeyError(?:: |\()'(?P<what>(?-i:[A-Z][A-Z0-9_]{3,}))'|"
                r"environment variable [`'\"]?\w+[`'\"]? (?:is )?(?:not set|missing|must be set)|"
                r"(?:HF_TOKEN|HUGGING\w+|"
                r"WANDB_API_KEY|OPENAI_API_KEY|NGC_API_KEY)[^\n]{0,60}(?:not set|missing|required|must)|GatedRepoError|"
                r"gated repo\b|access to model [^\n]{0,120} is restricted|(?:you )?must be authenticated|"
                r"user is not logged in|"
                r"(?:requires?|missing|not (?:set|configured))\b[^\n]{0,120}"
                r"\bset [`'\"]?(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)|"
                r"api_key not configured|No API key configured"
            ),
            _HUB_ADVICE,
        ),
        cause="A variable or a login that the run needs is not set: {what}.",
        next_action="Export it where the servers start, on every node, and start again.",
        source="Python, Hugging Face Hub and W&B messages",
    ),
    Rule(
        id="config.hub_name",
        layer=Layer.CONFIG,
        needs="Words that a repository, dataset or revision is not on the hub",
        sees=said(
            r"repositorynotfounderror|repository not found for url|datasetnotfounderror|revisionnotfounderror|"
            r"doesn't exist on the hub|invalid rev(?:ision)? id",
            sources=("log",),
        ),
        cause="The hub does not have what the configuration names, or hides it from this login: {what}.",
        next_action="Correct the name or revision (or set HF_TOKEN where it is private), and start again.",
        source="Hugging Face Hub and datasets messages",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="config.run_limit",
        layer=Layer.CONFIG,
        needs="/run calls that the caller ended after one and the same round time",
        sees=_run_limit,
        cause="The client's own time limit of {what} ends /run before the rollout can finish.",
        next_action="Give /run a limit of its own that is longer than the longest rollout; do not reuse verify's or a "
        "request's.",
        source="aiohttp ClientTimeout; Gym itself sets none",
        strength=Strength.PROVEN,
        runner_up=Layer.THROUGHPUT_RESOURCES,
        failure_kind="agent_timeout",
    ),
    Rule(
        id="config.model_never_called",
        layer=Layer.CONFIG,
        needs="/run 200 with an empty output, and no model call under it",
        sees=both(_model_never_called, _told_agent_never_ran),
        cause="The agent never called a model, so the reward says nothing about one.",
        next_action="Read the agent's start-up log and its model_server reference, and do not count this row.",
        source="Rows of harness agents that exit early and are scored 0",
        strength=Strength.PROVEN,
        runner_up=Layer.VERIFIER_RUNTIME,
    ),
    Rule(
        id="config.content_type",
        layer=Layer.CONFIG,
        needs="422 at the whole body, whose input is a string, without a JSON content type",
        sees=_no_content_type,
        cause="The request was sent with {what} instead of application/json, so FastAPI read its body as a string.",
        next_action="Send it with Content-Type: application/json (server_client.post(json=...) does).",
        source="FastAPI: a body is parsed as JSON only with a JSON content type",
        strength=Strength.PROVEN,
    ),
    Rule(
        id="config.prefix_bypassed",
        layer=Layer.CONFIG,
        needs="Model calls with the /ng-rollout/ prefix, and others without it",
        sees=_prefix_bypassed,
        cause="An agent calls the model server without the rollout's prefix ({what}), so these calls are captured for "
        "no row.",
        next_action="Give the agent the model's URL with /ng-rollout/<task>-<rollout> in front of its path.",
        source="Gym 0.5 to 0.7 observability",
        strength=Strength.STATUS,
    ),
    Rule(
        id="config.version_skew",
        layer=Layer.CONFIG,
        needs="Words about versions that do not fit each other",
        sees=said(
            r"version (?:skew|mismatch)|failed to build [`'\"]|build backend returned an error|"
            r"Version mismatch: The cluster was started with|requires a different Python|"
            r"incompatible version|No solution found when resolving dependencies|ResolutionImpossible|"
            r"requires[- ]python|python_requires"
        ),
        cause="Versions do not fit each other: {what}.",
        next_action="Use the versions the configuration asks for on every node and rebuild the servers' environments.",
        source="Ray, uv and pip messages; Gym 0.7.0 allow_openai_version_skew",
        runner_up=Layer.INFRA,
    ),
    Rule(
        id="config.provider_404",
        layer=Layer.CONFIG,
        needs="404 from a provider, whatever it says",
        sees=said(calls=GENERATION, statuses=(404,), sources=("exchange", "log")),
        cause="The provider knows neither the route nor the model: {what}.",
        next_action="Compare base URL and model name with what GET <base_url>/models answers.",
        source="HTTP",
        strength=Strength.FALLBACK,
        runner_up=Layer.MODEL_SERVING,
    ),
)
