"""The contracts that a capture knows of its servers: read, or written out for a check that takes a file."""

from pathlib import Path

import orjson

from gymtap.proxy.core.contracts.openapi import Contract
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store import Capture, resolve


def contracts_of(capture: Capture) -> dict[str, Contract]:
    """The contracts that the capture knows, by server; a document that cannot be read is left out."""
    found = {}
    for known in capture.contracts():
        document = capture.document(known)
        if document is not None:
            try:
                found[known.server] = Contract(orjson.loads(document), known.server)
            except ValueError:  # JSON's own error is one too
                continue
    return found


def save_contract(name: str, server: str | None, folder: Path) -> Path:
    """Write the OpenAPI document of a capture's resources server into a folder, and return the file.

    `name` is a capture's path or name; `server` is needed where several servers verify. Raises CaptureError,
    and UsageError when there is no such server.
    """
    with Capture(resolve(name)) as capture:
        verifying = {
            each.server: document
            for each in capture.contracts()
            if (document := capture.document(each)) and b'"/verify"' in document
        }
    wanted = server or (next(iter(verifying)) if len(verifying) == 1 else None)
    if wanted not in verifying:
        if not verifying:
            raise UsageError(
                f"{capture.path.name} holds no contract of a server that verifies", "--server asks a live one"
            )
        what = f"no server {server}" if server else "several servers"
        raise UsageError(f"{capture.path.name} knows {what} that verify", f"--of takes one of {', '.join(verifying)}")
    file = folder / f"{wanted}.openapi.json"
    file.write_bytes(verifying[wanted])
    return file
