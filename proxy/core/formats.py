"""The names of what a capture is exported as: apart from what writes them, so that `--help` need not load that."""

from enum import StrEnum


class Format(StrEnum):
    """What `--format` names; docs/exports.md has the schema of each."""

    HAR = "har"
    JSONL = "jsonl"
    ROWS = "rows-jsonl"
    MITM = "mitm"
    PARQUET = "parquet"
    CURL = "curl"
    PYTHON = "python"
    OPENAI = "openai"


BINARY = frozenset({Format.MITM, Format.PARQUET})
OF_ONE = frozenset({Format.CURL, Format.PYTHON, Format.OPENAI})
