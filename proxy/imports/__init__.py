"""Exchanges from other places, read into a capture: `read` one file, `import_files` several."""

from gymtap.proxy.core.recorded import Kept, Recorded, Recording
from gymtap.proxy.imports.formats import read
from gymtap.proxy.imports.keep import Imported, import_files

__all__ = ["Imported", "Kept", "Recorded", "Recording", "import_files", "read"]
