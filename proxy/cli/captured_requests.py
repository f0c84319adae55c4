"""What a capture holds for `gymtap check`: requests that may carry tools, and the contracts of its servers.

A request's place is its exchange's id.
"""

from collections.abc import Iterator
from pathlib import Path

from gymtap.proxy.check.requests import Carrier, carriers, carriers_in
from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.store import Capture, is_capture, resolve
from gymtap.schemas import Call

_CALLS = (Call.RUN, Call.MODEL, Call.PROVIDER)


def requests_of(source: Path) -> Iterator[Carrier | str]:
    """What a capture, a file or a folder holds. Raises CaptureError, UsageError."""
    return _captured(source) if is_capture(source) else carriers(source)


def _captured(path: Path) -> Iterator[Carrier | str]:
    with Capture(path) as capture:
        for call in _CALLS:
            for exchange in capture.exchanges(call=call):
                if exchange.request.body is not None:
                    yield from carriers_in(exchange.id, capture.body(exchange.request.body) or b"")


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
