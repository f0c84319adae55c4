"""A replay: what is about to happen, whether it may, then each verdict beside the original."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.replay.original import Place
from gymtap.proxy.replay.run import Announcement, Order
from gymtap.proxy.replay.session import Result
from gymtap.proxy.tui import replaying
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.lines import Lines, TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.reader import Reader
from gymtap.proxy.tui.text_page import told


class ReplayPage(Page):
    """One replay, begun when the page is opened, of what is in the capture of `reader`."""

    DEFAULT_CSS = """
    ReplayPage #heading { height: 1; background: $boost; padding: 0 1; }
    ReplayPage TextLines { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("equals_sign", "compare", "Compare with the original", key_display="="),
        Binding("r", "again", "Again, with other options"),
        Binding("question_mark", "app.help", "Help", key_display="?"),
    ]

    def __init__(self, asked: replaying.Asked, reader: Reader) -> None:
        super().__init__()
        self._asked = asked
        self._reader = reader
        self._order: Order | None = None
        self._lines: list[Text | tuple[Text, str | None]] = []
        self._results: Sequence[Result] = ()
        self._attempts = 0

    def body(self) -> ComposeResult:
        """What is replayed, and how far it is."""
        yield Static("", id="heading")
        yield TextLines(id="text")

    def on_mount(self) -> None:
        """Begin."""
        super().on_mount()
        self._head("")
        self.query_one(TextLines).focus()
        self.call_after_refresh(self._begin)  # what is announced is to be seen beneath the question

    def _head(self, so_far: str) -> None:
        stub = self._asked.options.stub
        told = [f"replay of {self._asked.name}"]
        told += [f"{stub} answered from the capture"] if stub else []
        told += ["edited"] if self._asked.written is not None or self._asked.options.assignments else []
        self.query_one("#heading", Static).update(Text(", ".join(told) + so_far, "bold"))

    # Sending

    @work(exclusive=True, group="begin", exit_on_error=False)
    async def _begin(self) -> None:
        try:
            self._order = await self._reader.ask(replaying.order_of, self._asked)
        except GymtapError as error:
            self._add(told(error))
            return
        self._run(self._order)

    @work(thread=True, exclusive=True, exit_on_error=False, group="run")
    def _run(self, order: Order) -> None:
        try:
            results = replaying.run(order, self._agree, lambda _: self.app.call_from_thread(self._count, order))
        except GymtapError as error:
            self.app.call_from_thread(self._add, told(error))
            return
        self.app.call_from_thread(self._prove, results, order)

    def _agree(self, announcement: Announcement) -> bool:
        """Show what is about to happen, and ask where something may change (in the replay's thread)."""
        answer: Future[bool] = Future()
        self.app.call_from_thread(self._announce, announcement, answer)
        return answer.result()

    def _announce(self, announcement: Announcement, answer: "Future[bool]") -> None:
        self._add([*replaying.announced(announcement), Text("")])
        if announcement.risks:
            self._ask(answer)
        else:
            answer.set_result(True)

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def _ask(self, answer: "Future[bool]") -> None:
        try:
            choice = Choice("it may change something, see above", [("s", "send it"), ("d", "do not send it")])
            answer.set_result(await self.app.push_screen_wait(choice) == "s")
        finally:
            if not answer.done():
                answer.set_result(False)  # a future's value

    def _count(self, order: Order) -> None:
        self._attempts += 1
        self._head(f"   {self._attempts:,} of {len(order.drafts) * order.times:,} sent")

    def _prove(self, results: Sequence[Result], order: Order) -> None:
        self._results = results
        lines = [(replaying.verdict_line(result), str(number)) for number, result in enumerate(results)]
        if len(results) == 1:
            self._add([*lines, *replaying.proved(results[0])])
        elif results:
            self._add([replaying.summary(results), *lines])
        self._add([Text(f"kept in {order.into}", "dim") if results else Text("nothing was sent")])

    def _add(self, lines: Sequence[Text | tuple[Text, str | None]]) -> None:
        self._lines += lines
        self.query_one(TextLines).put(self._lines)

    # Afterwards

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Put a verdict's exchange beside the original."""
        event.stop()
        self.action_compare()

    def action_compare(self) -> None:
        """Put what was sent and answered now beside what was then, for the verdict on the cursor's line."""
        lines = self.query_one(TextLines)
        number = int(lines.target(lines.cursor) or 0)
        if self._order is None or number >= len(self._results) or not self._results[number].kept:
            self.say("there is nothing to compare yet")
            return
        result = self._results[number]
        before = Place(self._order.original, result.job.plan.target.original.exchange.id)
        self.tui.show_comparison(before, Place(self._order.into, result.kept[0]))

    def action_again(self) -> None:
        """Change the options, and send it once more."""
        self.tui.replay_with_options(self._asked, self._reader)
