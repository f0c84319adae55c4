"""The store: a capture's directory, written by one file per process and read as one."""

from gymtap.proxy.store.places import captures, captures_root, fresh, is_capture, newest, resolve
from gymtap.proxy.store.reader import Capture, Cursor
from gymtap.proxy.store.row_lines import Identity, RowLine
from gymtap.proxy.store.writer import CaptureWriter

__all__ = [
    "Capture",
    "CaptureWriter",
    "Cursor",
    "Identity",
    "RowLine",
    "captures",
    "captures_root",
    "fresh",
    "is_capture",
    "newest",
    "resolve",
]
