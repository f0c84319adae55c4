"""Bodies in JSON: text where they are UTF-8, base64 where they are not."""

import base64


def content(body: bytes | None) -> dict[str, str] | None:
    """`{"text": …}`, or `{"base64": …}`; None when nothing was kept."""
    if body is None:
        return None
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
