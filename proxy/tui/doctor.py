"""What `gymtap doctor` says of this capture, as text."""

import os
import time
from pathlib import Path

from rich.text import Text

from gymtap.proxy.doctor.looked import Given
from gymtap.proxy.doctor.walk import examine
from gymtap.proxy.store import Capture
from gymtap.proxy.views.diagnosis_view import diagnosis_lines, leaf_lines
from gymtap.proxy.views.report_view import step_lines

type Targeted = tuple[Text, str | None]


def examined(path: Path) -> list[Targeted]:
    """The steps, then the diagnosis, whose exchange its lines open. It reads many bodies: not for the reader's thread.

    Raises CaptureError.
    """
    with Capture(path) as capture:
        report = examine(Given(capture=capture, environment=os.environ), now_ns=time.time_ns())
    steps = [(line, None) for step in report.steps for line in step_lines(step)]
    found = report.diagnosis
    lines = [*diagnosis_lines(found), *leaf_lines(found.innermost)]
    return [*steps, (Text(), None), *((line, found.exchange) for line in lines)]
