"""Tests are imported each by itself, so what they share has to be put on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
