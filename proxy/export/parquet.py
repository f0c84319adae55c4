"""Parquet through pyarrow (the extra `parquet`): one line an exchange, flat, for DuckDB, pandas and Ray Data.

Bodies are two columns: text where they are UTF-8, bytes where they are not. It is written in groups bounded by bytes,
so that an export of any length needs the memory of one group.
"""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import IO, Any

from gymtap.proxy.core.errors import GymtapError
from gymtap.proxy.core.recorded import Kept
from gymtap.proxy.export.har import url
from gymtap.schemas import Headers

GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 10_000


def write_parquet(chosen: Iterable[Kept], out: IO[bytes]) -> None:
    """Write them all. Raises GymtapError where pyarrow is not installed."""
    arrow, parquet = _arrow()
    schema = _schema(arrow)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _groups(chosen):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


def _arrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise GymtapError("Parquet needs pyarrow, which is not installed", "pip install 'gymtap[parquet]'") from None
    return pa, parquet


def _groups(chosen: Iterable[Kept]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    held_bytes = 0
    for kept in chosen:
        group.append(record(kept))
        held_bytes += len(kept.request_body or b"") + len(kept.response_body or b"")
        if held_bytes >= GROUP_BYTES or len(group) >= GROUP_ROWS:
            yield group
            group, held_bytes = [], 0
    if group:
        yield group


def _schema(arrow: ModuleType) -> Any:
    text, number, count, real = arrow.string(), arrow.int32(), arrow.int64(), arrow.float64()
    headers = arrow.list_(arrow.struct([("name", text), ("value", text)]))
    return arrow.schema(
        [
            *(("id", text), ("server", text), ("kind", text), ("caller", text), ("call", text), ("state", text)),
            *(
                ("started", arrow.timestamp("us", tz="UTC")),
                ("started_ns", count),
                ("duration_ms", real),
                ("first_byte_ms", real),
            ),
            *(("row", text), ("run", number), ("task", number), ("rollout", number), ("row_attempt", number)),
            *(("agent", text), ("rollout_id", text), ("attribution", text), ("confidence", text)),
            *(("parent", text), ("attempt", number)),
            *(("method", text), ("url", text), ("target", text), ("status", number), ("failed", arrow.bool_())),
            *(("error_kind", text), ("error", text)),
            *(("request_headers", headers), ("response_headers", headers)),
            *(("request_bytes", count), ("response_bytes", count), ("missing_bytes", count)),
            *(("request_body", text), ("response_body", text)),
            *(("request_binary", arrow.binary()), ("response_binary", arrow.binary())),
        ]
    )


def record(kept: Kept) -> dict[str, Any]:
    """One exchange by column."""
    exchange = kept.exchange
    asked, answer, attribution = exchange.request, exchange.response, exchange.attribution
    row = attribution.row
    bodies = [body for body in (asked.body, answer.body if answer else None) if body is not None]
    said: dict[str, Any] = {
        "id": exchange.id,
        "server": exchange.server,
        "kind": str(exchange.kind),
        "caller": exchange.caller,
        "call": str(exchange.call),
        "state": str(exchange.state),
        "started": exchange.started_ns // 1000,
        "started_ns": exchange.started_ns,
        "duration_ms": exchange.duration_ms,
        "first_byte_ms": answer.first_byte_ms if answer else None,
        "row": row.label if row else None,
        "attribution": str(attribution.method),
        "confidence": str(attribution.confidence),
        "parent": exchange.parent,
        "attempt": exchange.attempt,
        "method": asked.method,
        "url": url(kept),
        "target": asked.target,
        "status": answer.status if answer else None,
        "failed": exchange.failed,
        "error_kind": str(exchange.error.kind) if exchange.error else None,
        "error": exchange.error.message if exchange.error else None,
        "request_headers": _headers(asked.headers),
        "response_headers": _headers(answer.headers if answer else ()),
        "request_bytes": asked.body.size_bytes if asked.body else 0,
        "response_bytes": answer.body.size_bytes if answer and answer.body else 0,
        "missing_bytes": sum(body.missing_bytes for body in bodies),
    }
    if row is not None:
        said |= {"run": row.run, "task": row.task, "rollout": row.rollout, "row_attempt": row.attempt}
        said |= {"agent": row.agent, "rollout_id": row.rollout_id}
    return said | _body("request", kept.request_body) | _body("response", kept.response_body)


def _headers(headers: Headers) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _body(side: str, body: bytes | None) -> dict[str, str | bytes]:
    if body is None:
        return {}
    try:
        return {f"{side}_body": body.decode()}
    except UnicodeDecodeError:
        return {f"{side}_binary": body}
