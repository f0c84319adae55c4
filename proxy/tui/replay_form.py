"""Every option of `gymtap replay`, one a line: Enter changes one, `s` sends. Beneath stands the command for it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.replay import edits
from gymtap.proxy.replay.options import Options
from gymtap.proxy.replay.stub import address
from gymtap.proxy.replay.targets import base_url, target
from gymtap.proxy.store.listed import named
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.prompt import Prompt
from gymtap.proxy.tui.replaying import Asked
from gymtap.proxy.views.plain import printable

_NAME_CELLS = 15
_VALUE_CELLS = 22
_WIDE_CELLS = 100


@dataclass(frozen=True)
class Field:
    """An option: how it is written and explained; `check` raises UsageError for what cannot be taken."""

    option: str
    about: str
    check: Callable[[str], object] = str


def _number(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{text!r} is no number from 1 on")
    return int(text)


FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "start": Field("--from", "run, seed, verify, model[:K], tool[:K], provider[:K], …, or an exchange's id"),
        "stub": Field("--stub", "answer from the capture for these: provider, judge, or servers' names"),
        "stub_loose": Field("--stub-loose", "accept requests that differ from the recorded ones"),
        "stub_pass": Field("--stub-miss", "pass what was not recorded on to the --endpoint"),
        "stub_listen": Field("--stub-listen", "HOST:PORT where the stub listens, if not at the provider's", address),
        "gym": Field("--gym", "the head of a running Gym, as in http://127.0.0.1:11000", base_url),
        "to": Field("--to", "where servers are: NAME=URL NAME=URL", target),
        "endpoint": Field("--endpoint", "the provider's base URL, with its /v1", base_url),
        "api_key_env": Field("--api-key-env", "the variable that holds the key"),
        "model": Field("--model", "ask this model"),
        "assignments": Field("--set", "change the body: /pointer=value /pointer=value", edits.assignment),
        "patch": Field("--patch", "a file with a JSON patch"),
        "tools": Field("--tools", "repeat the session's tool calls; by default where it may keep state"),
        "times": Field("-n", "how often", _number),
        "concurrency": Field("--concurrency", "how many rows at once", _number),
        "ignore": Field("--ignore", "keys to ignore when comparing"),
        "into": Field("--into", "a new directory for what is sent and answered"),
    }
)
_CYCLES: Mapping[str, Sequence[bool | None]] = {
    "stub_loose": (False, True),
    "stub_pass": (False, True),
    "tools": (None, True, False),
}
_LISTS = frozenset({"to", "assignments", "ignore"})
_DEFAULTS = Options()


def read(name: str, text: str) -> Any:
    """What a person wrote as an option's value. Raises UsageError."""
    check, written = FIELDS[name].check, text.strip()
    if name in _LISTS:
        try:
            parts = tuple(shlex.split(written))
        except ValueError as error:
            raise UsageError(f"{written!r}: {error}") from error
        for part in parts:
            check(part)
        return parts
    if not written:
        return getattr(_DEFAULTS, name)
    found = check(written)
    return found if check is _number else Path(written) if name in {"patch", "into"} else written


def written(name: str, value: Any) -> str:
    """A value as a person writes it."""
    if name in _LISTS:
        return shlex.join(value)
    return "" if value is None else str(value)


def arguments(asked: Asked) -> list[str]:
    """The words of the command that does the same; an edited body has none."""
    words = [one if isinstance(one, str) else named(one) for one in asked.what]
    for one in fields(Options):
        value = getattr(asked.options, one.name)
        if value != getattr(_DEFAULTS, one.name):
            words += _words(one.name, value)
    return words


def _words(name: str, value: Any) -> list[str]:
    option = FIELDS[name].option
    if name in _LISTS:
        return [word for part in value for word in (option, part)]
    if name == "tools":
        return ["--tools" if value else "--no-tools"]
    if name == "stub_pass":
        return [option, "pass"]
    return [option] if value is True else [option, str(value)]


class ReplayForm(ModalScreen[Asked | None]):
    """What was chosen, or None. An option that is not the default's stands out."""

    DEFAULT_CSS = """
    ReplayForm { align: center middle; }
    ReplayForm > Vertical { width: 110; max-width: 98%; height: 24; max-height: 96%; }
    ReplayForm > Vertical { border: round $primary; padding: 0 1; }
    ReplayForm #about { height: auto; max-height: 2; color: $text-muted; }
    ReplayForm #command { height: auto; max-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", "Leave it"),
        Binding("s", "send", "Send"),
        Binding("backspace,delete", "clear", "As it was"),
    ]

    def __init__(self, asked: Asked, capture: Path) -> None:
        super().__init__()
        self._asked = asked
        self._capture = capture

    def compose(self) -> ComposeResult:
        """The options, and the command."""
        with Vertical():
            yield Static(Text(f"replay {self._asked.name}: Enter changes, Backspace takes back, s sends", "bold"))
            yield TextLines(id="options", follow_targets=True)
            yield Static("", id="about")
            yield Static("", id="command")

    def on_mount(self) -> None:
        """Show them."""
        self._show()
        self.query_one(TextLines).focus()

    def _show(self) -> None:
        self.query_one(TextLines).put([(self._line(name), name) for name in FIELDS])
        self.query_one("#command", Static).update(Text(self._command(), "dim", overflow="fold"))

    def _command(self) -> str:
        """What to type for it; rows that were filtered stand for themselves."""
        count = len(self._asked.what)
        words = arguments(self._asked)
        what = shlex.join(words[:count]) if count == 1 else "--filter …"
        edit = ["--edit"] if self._asked.written is not None else []
        return printable(f"gymtap replay {what} {shlex.join([*words[count:], *edit, '-c', str(self._capture)])}")

    def _line(self, name: str) -> Text:
        value = getattr(self._asked.options, name)
        told = {True: "yes", False: "no", None: "-"}.get(value) if name in _CYCLES else written(name, value) or "-"
        line = Text(FIELDS[name].option.ljust(_NAME_CELLS), no_wrap=True)
        shown = Text(printable(str(told)), "dim" if value == getattr(_DEFAULTS, name) else "bold")
        shown.truncate(
            _VALUE_CELLS if self.size.width >= _WIDE_CELLS else _VALUE_CELLS // 2, overflow="ellipsis", pad=True
        )
        return line.append_text(shown).append(f"  {FIELDS[name].about}", "dim")

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Explain the option in full."""
        event.stop()
        if (name := self._option) is not None:
            self.query_one("#about", Static).update(Text(FIELDS[name].about, "dim"))

    def on_resize(self) -> None:
        """The values have more room, or less."""
        if self.is_mounted:
            self._show()

    # Changing

    @property
    def _option(self) -> str | None:
        lines = self.query_one(TextLines)
        return lines.target(lines.cursor)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Change the option."""
        event.stop()
        name = self._option
        if name is not None and name in _CYCLES:
            values = _CYCLES[name]
            self._take(name, values[(values.index(getattr(self._asked.options, name)) + 1) % len(values)])
        elif name is not None:
            self._ask(name)

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def _ask(self, name: str) -> None:
        label = f"{FIELDS[name].option}  {FIELDS[name].about}"
        old = written(name, getattr(self._asked.options, name))
        text = await self.app.push_screen_wait(Prompt(label, old, lambda text: read(name, text)))
        if text is not None:
            self._take(name, read(name, text))

    def _take(self, name: str, value: Any) -> None:
        self._asked = replace(self._asked, options=replace(self._asked.options, **{name: value}))
        self._show()

    def action_clear(self) -> None:
        """Take the option back."""
        if (name := self._option) is not None:
            self._take(name, getattr(_DEFAULTS, name))

    def action_send(self) -> None:
        """It is chosen."""
        self.dismiss(self._asked)

    def action_refuse(self) -> None:
        """Nothing is."""
        self.dismiss(None)
