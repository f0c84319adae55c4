"""A `sitecustomize` that was there before: it leaves a mark."""

import os

os.environ["MARK_OF_HIDDEN"] = __name__
