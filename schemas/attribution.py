"""Attribution: which row an exchange belongs to, by which method, how surely, and why.

Methods are ordered from the strongest to the weakest; the resolver prefers the stronger one and
says `ambiguous`, with the candidates, rather than guess.
"""

from enum import StrEnum

from gymtap.schemas._model import Model
from gymtap.schemas.row import RowKey


class Method(StrEnum):
    """How the row was found, strongest first."""

    CAUSALITY = "causality"  # the causality header named the parent exchange
    ROLLOUT_PATH = "rollout_path"  # /ng-rollout/<id> in the request target
    BODY = "body"  # _ng_task_index and its kin in the body
    SESSION = "session"  # a session cookie that a seed_session or a model call of this row set
    LINEAGE = "lineage"  # call ids or response ids that an earlier turn of this row produced
    TRACE = "trace"  # W3C traceparent
    CONTENT = "content"  # the body's content occurs in exactly one in-flight parent
    TIMING = "timing"  # the only parent that was in flight
    NONE = "none"


class Confidence(StrEnum):
    """`certain` and `high` may be acted on; `low` is a hint; `ambiguous` names candidates; `none` knows nothing."""

    CERTAIN = "certain"
    HIGH = "high"
    LOW = "low"
    AMBIGUOUS = "ambiguous"
    NONE = "none"


class Attribution(Model):
    """The row of an exchange, or the rows it may be.

    `evidence` is one short human sentence (`cookie Chaos___chaos set by a17's seed_session`).
    `candidates` is filled only when `confidence` is `ambiguous`, at most 20 of them.
    """

    row: RowKey | None = None
    method: Method = Method.NONE
    confidence: Confidence = Confidence.NONE
    evidence: str = ""
    candidates: tuple[RowKey, ...] = ()
