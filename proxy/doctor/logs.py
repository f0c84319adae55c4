"""Reads logs of any size once, line by line, and keeps what may name a cause: a bounded excerpt, and a few facts.

A log repeats itself, so a line is looked at only when its shape is new: the line without digits and the letters of hex
ids. A traceback, or an answer that Gym printed, is kept whole and once. Inner processes come before outer ones, since
among equals the first to speak is the cause: the scheduler, the cluster, the model, Gym's servers, the collector. Once
Gym stops its servers, what they say is noise, and only Gym's own traceback counts.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from gymtap.proxy.core.errors import UsageError

MAX_LINE_BYTES = 2**16
"""What a line has beyond this is left out."""
MAX_KEPT_LINES = 60_000
MAX_SHAPES = 300_000
_SHAPE_BYTES = 400
_BLOCK_LINES = 400
_MESSAGE_LINES = 3  # of an exception, after its first: pydantic names the field in the next one
_ENDINGS = ("*.log", "*.out", "*.err", "*.txt")
_ID_BYTES = b"0123456789abcdefABCDEF"
_CUT = "[...]"  # where lines were left out, so that what stands after them is not taken for what was said before


class LogKind(IntEnum):
    """Whose log it is, from the inside out."""

    SLURM = 0
    RAY = 1
    VLLM = 2
    SERVERS = 3
    OTHER = 4
    COLLECTOR = 5


_KINDS: tuple[tuple[LogKind, bytes], ...] = (
    (
        LogKind.COLLECTOR,
        rb"Collecting rollouts|\[rollout_collection\]|Preprocessing and repeating rows|rollout_collection",
    ),
    (LogKind.SERVERS, rb"upstream_request_failed|servers ready!|nemo_gym\.server_utils|SimpleServer|^\(\w+\) INFO"),
    (LogKind.VLLM, rb"\bvllm\b|EngineCore|\(APIServer|vLLM API server"),
    (LogKind.RAY, rb"\braylet\b|ray::|local Ray instance|\bgcs_server\b|ray\.exceptions|ray start"),
    (LogKind.SLURM, rb"slurmstepd|\bsrun:|\bsbatch:|SLURM_|JOB \d+ ON|pyxis|enroot"),
)
_WORDS = (
    "error|exception|fail|fatal|refus|reset|kill|signal|oom|memory|space|quota|limit|timeout|time out|timed|"
    "time-out|exit|dead|died|lost|unable|cannot|can't|could not|couldn't|not found|no such|no module|missing|"
    "invalid|unexpected|denied|unsupported|already|in use|unreachable|disconnect|retry|retries|abort|cancel|"
    "stale|corrupt|truncat|mismatch|duplicate|skipp|rollouts but|rollout but|parser|warn|🚨|panic|nccl|xid|evict|"
    "preempt|pending|infeasible|unhealthy|not ready|waiting|drop|empty|none of|unknown|resum| 499|interpolat|"
    "version|traceback"
)
_WORTH = tuple(word.encode() for word in _WORDS.split("|"))
"""Plain words, since looking for each of them is several times faster than one expression of them all."""
_FOREMOST = (LogKind.SERVERS, LogKind.COLLECTOR)
"""Gym's own: its servers' log has what it says of Ray, and `gym eval run` may write the servers' lines and its own."""
_HARMLESS = re.compile(
    rb"can cause [\w ]{0,40}errors? like|Set RAY_AUTH_MODE=|aiohttp connection pool capacity|"
    rb"route_failures_to_sidecar is on|Deprecat\w*Warning|FutureWarning|UserWarning"
)
"""What healthy logs say (Gym 0.7.0, Ray 2.x, Python): warnings of what might be, in the words of what would be."""
_UPSTREAM, _TRACEBACK = b"upstream_request_failed", b"Traceback (most recent call last)"
_NEXT_SPEAKER = re.compile(
    rb"^\s*(?:\([\w. =:/-]{1,60}\)\s?)?(?:\xf0\x9f\x9a\xa8|\[|INFO|WARNING|ERROR|Traceback|\d{4}-\d\d)"
)
_SPEAKER = re.compile(rb"^\s*\([\w. =:/-]{1,60}\)\s?")
_NAME = re.compile(rb"\([\w. =:/-]{1,60}\) ")
_MARGIN = re.compile(rb"^\s*(?:\| ?|\+-[+\-\s\d]*)")
_NO_RESULT = re.compile(r"None of the \d+ dispatched rollouts produced a result")
_VERSION = re.compile(
    rb"\b(nemo[-_]gym|vllm|vLLM API server|ray)(?: version|==|[ -]v?|: ?v?)[ =]*v?(\d+\.\d+(?:\.\d+)?\w*)",
    re.IGNORECASE,
)
_ENDING, _STARTING = b"Sending interrupt signals to servers", b"server to spin up"
_STOPPED = re.compile(rb"(?:KeyboardInterrupt|CancelledError|SystemExit|ConnectionResetError|ServerDisconnected\w*)\b")
_PACKAGES = re.compile(rb'File "(/[^"\n]{1,300}/site-packages)/nemo_gym/')
_FACTS: tuple[tuple[bytes, str, re.Pattern[bytes]], ...] = (
    (b"servers ready", "servers_ready", re.compile(rb"(\d+) / (\d+) servers ready")),
    (_ENDING, "ending", re.compile(_ENDING)),
    (_STARTING, "starting", re.compile(_STARTING)),
    (b"servers to spin up", "servers_waiting", re.compile(rb"servers to spin up: \[([^\]\n]{0,300})")),
    (b"Collecting rollouts", "progress", re.compile(rb"Collecting rollouts:.*?\| (\d+)/(\d+) \[")),
    (b"Repeating rows", "repeats", re.compile(rb"Repeating rows (\d+) times")),
    (b"startup complete", "started", re.compile(rb"Application startup complete")),
    (b"model endpoints are", "endpoints", re.compile(rb"All model endpoints are answering")),
    (b"rollout collection!", "finished", re.compile(rb"Finished rollout collection!")),
    (b"Ray", "ray_started", re.compile(rb"Started a local Ray instance|Started Ray cluster at")),
    (b"Skipping resume", "not_resumed", re.compile(rb"Skipping resume_from_cache[^\n]{0,200}")),
    (b"Resuming", "resumed", re.compile(rb"Resuming[^\n]{0,200}")),
    (b"Overriding responses", "overridden", re.compile(rb"Overriding responses_create_params fields")),
)


@dataclass(frozen=True)
class LogFile:
    """One log that was read: `kind` is whose it is foremost, `kinds` all whose words are in it."""

    path: Path
    kind: LogKind
    kinds: frozenset[LogKind]
    lines: int
    size_bytes: int


@dataclass(frozen=True)
class Logs:
    """The excerpt of all logs, in reading order. `places` has (file, number from 1) of each line of `lines`.

    `facts` has the last sight of each named marker: its groups, or its text. `versions` maps a package to the versions
    that logs name; `packages` has the folders of nemo_gym. `left_out`: more was worth
    keeping than there is room for.
    """

    lines: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    files: tuple[LogFile, ...] = ()
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    packages: frozenset[str] = frozenset()
    left_out: bool = False

    def has(self, kind: LogKind) -> bool:
        """Whether one of the logs has words of that kind."""
        return any(kind in file.kinds for file in self.files)

    def place(self, where: str) -> str:
        """`log:17` of a diagnosis as the file and line that it stands for; anything else as it is."""
        number = where.removeprefix("log:")
        if not where.startswith("log:") or not number.isdigit() or not 0 < int(number) <= len(self.places):
            return where
        name, line = self.places[int(number) - 1]
        return f"{name}:{line}"

    def numbers(self, fact: str) -> tuple[int, ...] | None:
        """A fact's groups as numbers; None where it was not seen."""
        found = self.facts.get(fact)
        return None if found is None else tuple(int(part) for part in found)


def read_logs(paths: Iterable[Path]) -> Logs:
    """Read logs and directories of them (`*.log`, `*.out`, `*.err`, `*.txt`). Raises UsageError."""
    read = sorted((_read(file) for path in paths for file in _files(path)), key=lambda one: one.kind)
    lines = [(text, (one.path.name, number)) for one in read for number, text in [*one.kept, (one.lines, _CUT)]]
    facts = {name: found for one in read for name, found in one.facts.items()}
    versions: dict[str, tuple[str, ...]] = {}
    for one in read:
        for package, version in one.versions:
            versions[package] = tuple(dict.fromkeys((*versions.get(package, ()), version)))
    told = [pair for pair in lines if not _NO_RESULT.search(pair[0])]
    return Logs(
        lines=tuple(text for text, _ in told[:MAX_KEPT_LINES]),
        places=tuple(place for _, place in told[:MAX_KEPT_LINES]),
        files=tuple(LogFile(one.path, one.kind, frozenset(one.kinds), one.lines, one.size_bytes) for one in read),
        facts=facts,
        versions=versions,
        packages=frozenset(folder for one in read for folder in one.packages),
        left_out=len(told) > MAX_KEPT_LINES or any(one.left_out for one in read),
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted({file for ending in _ENDINGS for file in path.rglob(ending) if file.is_file()})
        if not found:
            raise UsageError(f"{path}: holds no log", f"logs are told by their ending: {', '.join(_ENDINGS)}")
        return found
    if not path.is_file():
        raise UsageError(f"{path}: no such file or directory", "--log names a log, or a directory of them")
    return [path]


@dataclass
class _Read:
    path: Path
    kind: LogKind = LogKind.OTHER
    lines: int = 0
    size_bytes: int = 0
    kept: list[tuple[int, str]] = field(default_factory=list)
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions: list[tuple[str, str]] = field(default_factory=list)
    packages: set[str] = field(default_factory=set)
    left_out: bool = False
    plain: set[int] = field(default_factory=set)
    blocks: set[int] = field(default_factory=set)
    in_block: bool = False
    ending: bool = False
    kinds: set[LogKind] = field(default_factory=set)


def _read(path: Path) -> _Read:
    read = _Read(path)
    lines = _pieces(path, read)
    pending = next(lines, None)
    while pending is not None:
        number, line = pending
        if _TRACEBACK in line or _UPSTREAM in line:
            pending = _block(read, lines, number, line)
            continue
        _line(read, number, line)
        pending = next(lines, None)
    read.kind = next((kind for kind in _FOREMOST if kind in read.kinds), min(read.kinds, default=LogKind.OTHER))
    return read


def _pieces(path: Path, read: _Read) -> Iterator[tuple[int, bytes]]:
    """(line number, what a terminal would have shown of it), without lines whose shape is known and plain.

    A progress bar's line is cut at its returns. Within a block every line counts.
    """
    try:
        with path.open("rb") as file:
            cut = False
            while line := file.readline(MAX_LINE_BYTES):
                read.size_bytes += len(line)
                begins, cut = not cut, not line.endswith(b"\n")
                read.lines += begins
                if begins and (read.in_block or _shape(line) not in read.plain):
                    for piece in line.rstrip(b"\r\n").split(b"\r"):
                        yield read.lines, piece
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _shape(line: bytes) -> int:
    return hash(line[:_SHAPE_BYTES].rstrip(b"\r\n").translate(None, _ID_BYTES))


def _line(read: _Read, number: int, line: bytes) -> None:
    if not _note_facts(read, line) and b"ersion" not in line and len(read.plain) < MAX_SHAPES:  # else its numbers count
        shape = _shape(line)
        known = shape in read.plain
        read.plain.add(shape)
        if known:
            return
    if _ENDING in line or _STARTING in line:
        read.ending = _ENDING in line
    low = line.lower()
    if not read.ending and any(word in low for word in _WORTH) and not _HARMLESS.search(line):
        _keep(read, [(number, line)])
    _learn(read, line)


def _note_facts(read: _Read, line: bytes) -> bool:
    """Note what the line says of the run's progress; whether it may be a line of that kind."""
    known = False
    for marker, name, pattern in _FACTS:
        if marker in line:
            known = True
            if found := pattern.findall(line):
                parts = found[-1] if isinstance(found[-1], tuple) else (found[-1],)
                read.facts[name] = tuple(part.decode("utf-8", "replace") for part in parts)
    return known


def _learn(read: _Read, line: bytes) -> None:
    for kind, pattern in _KINDS:
        if kind not in read.kinds and re.search(pattern, line):
            read.kinds.add(kind)
    read.packages.update(folder.decode("utf-8", "replace") for folder in set(_PACKAGES.findall(line)))
    for package, version in _VERSION.findall(line):
        name = package.decode().lower().replace("_", "-").replace("vllm api server", "vllm")
        read.versions.append((name, version.decode()))


def _block(read: _Read, lines: Iterator[tuple[int, bytes]], number: int, line: bytes) -> tuple[int, bytes] | None:
    """Take a traceback, or an answer that was printed, to its end; what comes after it."""
    _learn(read, line)
    over = _answer_is_over if _UPSTREAM in line else _traceback_is_over
    block = [(number, line)]
    read.in_block = True
    following = next(lines, None)
    while following is not None and len(block) < _BLOCK_LINES and not over(block, following[1]):
        block.append(following)
        following = next(lines, None)
    read.in_block = False
    _keep_once(read, block)
    return following


def _traceback_is_over(block: list[tuple[int, bytes]], line: bytes) -> bool:
    """Whether the exception was named, and this line is no more of its message."""
    if _speaker(block[0][1]) != _speaker(line):
        return True
    told = [number for number, (_, text) in enumerate(block) if number and not _is_indented(text)]
    if not told or _is_indented(line):
        return False
    return len(block) - told[0] > _MESSAGE_LINES or _NEXT_SPEAKER.match(line) is not None


def _speaker(line: bytes) -> bytes:
    """The server's name that Gym puts before a line; empty where there is none."""
    found = _NAME.match(line)
    return found[0] if found else b""


def _is_indented(line: bytes) -> bool:
    bare = _MARGIN.sub(b"", _SPEAKER.sub(b"", line))
    return bare[:1] in {b" ", b"\t", b""} or bare.startswith((b"During handling", b"The above exception", b"Traceback"))


def _answer_is_over(block: list[tuple[int, bytes]], line: bytes) -> bool:
    if len(block) == 1:
        return b"Response content" not in line
    return bool(_NEXT_SPEAKER.match(line) or (_SPEAKER.match(line) and b"Response content" not in line))


def _keep_once(read: _Read, block: list[tuple[int, bytes]]) -> None:
    if read.ending and _is_of_the_end(block):
        return
    text = b"\n".join(line for _, line in block)
    shape = hash((text[:_SHAPE_BYTES] + text[-2 * _SHAPE_BYTES :]).translate(None, _ID_BYTES))
    if shape not in read.blocks:
        read.blocks.add(shape)
        _learn(read, text)
        _keep(read, [*block, (block[-1][0], _CUT.encode())])


def _is_of_the_end(block: list[tuple[int, bytes]]) -> bool:
    """Whether it is noise of servers that are being stopped; Gym's own traceback, which is printed last, is none."""
    return bool(_SPEAKER.match(block[0][1])) or any(_STOPPED.search(line) for _, line in block)


def _keep(read: _Read, lines: list[tuple[int, bytes]]) -> None:
    if len(read.kept) + len(lines) > MAX_KEPT_LINES:
        read.left_out = True
        return
    read.kept += [(number, line.decode("utf-8", "replace")) for number, line in lines]
