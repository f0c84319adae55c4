"""A replay: what is about to happen, whether it may, then the verdict beside the original."""

from concurrent.futures import Future

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.widgets import Static

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.replay.run import Announcement, Order
from gymtap.proxy.tui import replaying
from gymtap.proxy.tui.choice import Choice
from gymtap.proxy.tui.lines import TextLines
from gymtap.proxy.tui.page import Page
from gymtap.proxy.tui.text_page import told


class ReplayPage(Page):
    """One replay, begun when the page is opened."""

    DEFAULT_CSS = """
    ReplayPage #heading { height: 1; background: $boost; padding: 0 1; }
    ReplayPage TextLines { padding: 0 1; }
    """

    def __init__(self, asked: replaying.Asked) -> None:
        super().__init__()
        self._asked = asked
        self._lines: list[Text] = []

    def body(self) -> ComposeResult:
        """What is replayed, and how far it is."""
        stub = f", the {self._asked.stub} answered from the capture" if self._asked.stub else ""
        edited = ", edited" if self._asked.written is not None else ""
        yield Static(Text(f"replay of {self._asked.name}{stub}{edited}", "bold"), id="heading")
        yield TextLines(id="text")

    def on_mount(self) -> None:
        """Begin."""
        super().on_mount()
        self.query_one(TextLines).focus()
        self._begin()

    @work(exclusive=True, group="begin", exit_on_error=False)
    async def _begin(self) -> None:
        try:
            order = await self.tui.reader.ask(replaying.order_of, self._asked)
        except GymtapError as error:
            self._add(told(error))
            return
        self._run(order)

    @work(thread=True, exclusive=True, exit_on_error=False, group="run")
    def _run(self, order: Order) -> None:
        try:
            result = replaying.run(order, self._agree)
            lines = list(replaying.proved(result, order)) if result else [Text("nothing was sent")]
        except GymtapError as error:
            lines = told(error)
        self.app.call_from_thread(self._add, lines)

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

    def _add(self, lines: list[Text]) -> None:
        self._lines += lines
        self.query_one(TextLines).put(self._lines)
