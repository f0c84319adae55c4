"""The base of every noun: a frozen pydantic model that refuses unknown fields.

Nouns are values. They are made once, compared whole in tests, and dumped as the documented JSON.
"""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen value; unknown fields are an error, so that a typo never passes for data."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64")
