"""Twenty rows: eight that fail, four that end well and are worth nothing (or cost more), eight that are fine.

Several failures are in the row itself, where the provider's are set off by the city it asks about.
"""

from typing import Any

_INSTRUCTIONS = "You answer questions about the weather. Look it up first."
_AGENT = "weather_simple_agent"
_LONG_STORY = "It was a bright cold day in April, and the clocks were striking thirteen. " * 240


def rows() -> list[dict[str, Any]]:
    """The rows as a collector dispatches them, in order of their task index; one rollout each."""
    return [
        {**row, "agent_ref": {"name": _AGENT}, "_ng_task_index": i, "_ng_rollout_index": 0} for i, row in _numbered()
    ]


def _numbered() -> enumerate[dict[str, Any]]:
    return enumerate(
        [
            _row("Oslo", "cold"),
            _row("Quito", "mild"),
            _row("Lagos", tool=_tool(city={"type": "string", "format": "uri-template"})),  # provider: 400
            _row("Mumbai"),  # provider: 429 twice, then well
            _row("Cairo", "hot"),
            _row("Zurich"),  # provider: 401
            _row("Lima", "foggy"),
            _row("Tunis", tool=_tool("get_forecast")),  # tool: 404, told to the model
            _row("Bergen", "wet"),
            _row("Dallas"),  # provider: 500 with a page of HTML, three times
            _row("Rome"),
            _row("Paris", expected=None),  # verify: 422, the row lacks a field
            _row("Accra"),
            _row("Boston", story=_LONG_STORY),  # provider: 400, swallowed to an empty 200
            _row("Delhi", expected="tepid"),  # verify: KeyError
            _row("Vienna"),  # provider: 200 without choices
            _row("Osaka", tool=_tool(town={"type": "string"})),  # tool: 422, told to the model
            _row("Perth", expected=""),  # verify: 200 without a reward
            _row("Denver"),  # provider: dies in the middle of a body
            _row("Turin"),
        ]
    )


def _row(
    city: str, expected: str | None = "sunny", tool: dict[str, Any] | None = None, story: str = ""
) -> dict[str, Any]:
    question = {"role": "user", "content": f"{story}What is the weather like in {city}?"}
    turns = [{"role": "developer", "content": _INSTRUCTIONS}, question]
    params = {"input": turns, "tools": [tool or _tool(city={"type": "string"})]}
    return {"responses_create_params": params} | ({} if expected is None else {"expected_weather": expected})


def _tool(name: str = "get_weather", **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {"city": {"type": "string"}}}
    required = {"required": list(schema["properties"]), "additionalProperties": False}
    described = {"name": name, "description": "Look up the weather in a city.", "strict": True, "type": "function"}
    return described | {"parameters": schema | required}
