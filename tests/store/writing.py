"""A process that records without end, until it is killed: run with the capture's directory.

It says on its stdout, one line each, how many exchanges are certainly committed.
"""

import sys
import time
from itertools import count
from pathlib import Path

from gymtap.proxy.core.events import Answered, Ended, Opened, RequestData, RequestDone, ResponseData, Tape
from gymtap.proxy.recorder import Recorder
from gymtap.proxy.store import CaptureWriter
from gymtap.schemas import Server

tape = Tape(2**26)
recorder = Recorder(tape, CaptureWriter.create(Path(sys.argv[1])), [])
recorder.start()
server = Server(name="model", listen="http://127.0.0.1:1", upstream="http://127.0.0.1:2")
for number in count(1):
    tape.put(Opened(number, server, time.time_ns(), time.monotonic_ns(), "", "POST", "/v1/responses", "1.1", ()))
    tape.put(RequestData(number, b'{"turn": %d, "input": "%s"}' % (number, b"x" * 2000)))
    tape.put(RequestDone(number, time.monotonic_ns()))
    if number % 3:
        tape.put(Answered(number, time.monotonic_ns(), 200, "OK", ()))
        tape.put(ResponseData(number, b'{"answer": %d}' % number))
        tape.put(Ended(number, time.monotonic_ns()))
    if number % 10 == 0:
        recorder.flush(30)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
