"""gymtap in somebody's own mitmproxy: `mitmweb -s $(gymtap addon-path)`. It needs gymtap in mitmproxy's environment.

It records what passes into a capture, and writes on each flow what the capture says of it: the row, the boundary, and
of failures the layer and the cause. Failed flows are marked. The options are `gymtap_capture`, a directory, and
`gymtap_stream`: off, bodies are held until they are whole, as mitmproxy does by itself.
"""

import asyncio
import itertools
import logging
import time
from pathlib import Path
from weakref import WeakValueDictionary

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader
from mitmproxy.hooks import UpdateHook

from gymtap.proxy.core.errors import CaptureError
from gymtap.proxy.core.events import Tape
from gymtap.proxy.core.redaction import Redactor
from gymtap.proxy.mitm.bridge import Bridge
from gymtap.proxy.mitm.notes import Note, Notes
from gymtap.proxy.mitm.settings import CA_FILE
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import CaptureWriter, captures_root, fresh
from gymtap.proxy.tap import QUEUE_BYTES, load_addons

_LOOK_S = 0.3
_LOG = logging.getLogger(__name__)


class Script:
    """The addon; mitmproxy finds the bridge in its `addons`."""

    def __init__(self) -> None:
        self._tape = Tape(QUEUE_BYTES)
        self._flows: WeakValueDictionary[int, http.HTTPFlow] = WeakValueDictionary()
        self._bridge = Bridge(
            self._tape, itertools.count(1).__next__, said=_LOG.warning, heard=self._heard, keep_messages=True
        )
        self._recorder: Recorder | None = None
        self._prefix = ""
        self._path = Path()
        self._looking: asyncio.Task[None] | None = None
        self.addons = [self._bridge]

    def load(self, loader: Loader) -> None:
        """Add the options."""
        loader.add_option("gymtap_capture", str, "", "The directory that gymtap records to; a new one by default.")
        loader.add_option("gymtap_stream", bool, True, "Pass bodies on as they come, while gymtap records them.")

    def configure(self, updated: set[str]) -> None:
        """Streamed bodies stay visible on mitmproxy's own screens."""
        self._bridge.ca = Path(ctx.options.confdir).expanduser() / CA_FILE
        if "gymtap_stream" in updated:
            self._bridge.streams = ctx.options.gymtap_stream
            if ctx.options.gymtap_stream:
                ctx.options.store_streamed_bodies = True

    def running(self) -> None:
        """Begin to record."""
        named = ctx.options.gymtap_capture
        self._path = Path(named) if named else fresh(captures_root(), time.time_ns())
        redactor = Redactor()
        try:
            writer = CaptureWriter.create(self._path, command=("mitmproxy",), redactor=redactor)
        except CaptureError as error:
            _LOG.error("gymtap records nothing: %s; %s", error, error.hint)
            self._bridge.close()
            return
        self._prefix = writer.prefix
        self._recorder = Recorder(self._tape, writer, load_addons(writer, redactor))
        self._recorder.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())
        _LOG.info("gymtap: recording to %s", self._path)

    async def done(self) -> None:
        """Record what is left, and say what there is to say of it."""
        if self._looking is not None:
            self._looking.cancel()
        self._bridge.close()
        if self._recorder is None:
            return
        await asyncio.to_thread(self._recorder.close)
        notes = Notes(self._path)
        self._write(notes.new())
        notes.close()

    def _heard(self, flow: http.HTTPFlow, number: int) -> None:
        self._flows[number] = flow

    async def _look(self) -> None:
        assert self._recorder is not None
        await asyncio.to_thread(self._recorder.flush)
        notes = Notes(self._path)
        while True:
            changed = self._write(await asyncio.to_thread(notes.new))
            if changed:
                await ctx.master.addons.trigger_event(UpdateHook(changed))
            await asyncio.sleep(_LOOK_S)

    def _write(self, notes: list[Note]) -> list[http.HTTPFlow]:
        """Put the notes on their flows; those that changed."""
        changed = []
        for note in notes:
            number = note.exchange.removeprefix(self._prefix)
            flow = self._flows.get(int(number)) if number.isdigit() else None
            if flow is not None and flow.comment != note.text:
                flow.comment, flow.marked = note.text, ":red_circle:" if note.failed else flow.marked
                changed.append(flow)
        return changed


addons = [Script()]
