"""`python -m gymtap.proxy.tui CAPTURE`: the app alone, as a web server starts it for each page."""

import sys
from pathlib import Path

from gymtap.proxy.tui.app import GymtapTui

if __name__ == "__main__":
    path: Path | None = Path(sys.argv[1])
    while path is not None:
        path = GymtapTui(path).run()
