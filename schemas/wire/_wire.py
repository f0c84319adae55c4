"""The base of the wire models: unknown fields are kept, known ones are checked as Gym's pydantic models check them."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """A body from outside. Coercions are pydantic's own, since those are what Gym's servers apply."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
