"""Exchanges from other places, read into a capture: `read` one file, `import_files` several."""

from gymtap.proxy.core.recorded import Foreign, Kept, Recording
from gymtap.proxy.imports.formats import read
from gymtap.proxy.imports.keep import Imported, import_files

__all__ = ["Foreign", "Imported", "Kept", "Recording", "import_files", "read"]
