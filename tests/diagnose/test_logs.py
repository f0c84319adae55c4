"""Logs alone: what stops Gym before the first request, what a serving engine's own log says, what is only noise."""

import pytest

from gymtap.proxy.diagnose import Material, diagnose
from gymtap.schemas import Layer

GYM = "/opt/gym/.venv/lib/python3.13/site-packages/nemo_gym"
VLLM = "/usr/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py"
SGLANG = "/usr/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py"


def traceback(file: str, raised: str, prefix: str = "") -> tuple[str, ...]:
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 12, in work',
        "    step()",
        *raised.split("\n"),
    ]
    return tuple(prefix + line for line in lines)


@pytest.mark.parametrize(
    ("module", "raised", "layer"),
    [
        ("rollout_collection", "KeyError: 'responses_create_params'", Layer.DATA_SCHEMA),
        (
            "rollout_collection",
            "TypeError: unsupported operand type(s) for |: 'NoneType' and 'dict'",
            Layer.DATA_SCHEMA,
        ),
        ("rollout_collection", "AttributeError: 'str' object has no attribute 'get'", Layer.DATA_SCHEMA),
        (
            "rollout_collection",
            "nemo_gym.config_types.ConfigError: Malformed JSON in 'train.jsonl' at line 17: unexpected character",
            Layer.DATA_SCHEMA,
        ),
        (
            "train_data_utils",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Row\ninput\n  Field required",
            Layer.DATA_SCHEMA,
        ),
        (
            "prompt",
            "KeyError: \"Prompt template references field 'question' but the row has others\"",
            Layer.DATA_SCHEMA,
        ),
        ("train_data_utils", "ValueError: task_input must be an object, got str", Layer.DATA_SCHEMA),
        ("rollout_collection", "ValueError: num_repeats must be >= 1, got 0", Layer.CONFIG),
        (
            "rollout_collection",
            "ValueError: No environment server route is configured for taskset 'math'",
            Layer.CONFIG,
        ),
        (
            "rollout_collection",
            "nemo_gym.config_types.ConfigPathNotFoundError: Input file not found: 'data/trian.jsonl' (--input).",
            Layer.CONFIG,
        ),
        (
            "rollout_collection",
            "ValueError: Rows would be scored by a verifier that does not accept the agent running them:\n  - a",
            Layer.CONFIG,
        ),
        ("train_data_utils", "ValueError: Dataset 'math' (data/train.jsonl) is missing on disk.", Layer.CONFIG),
    ],
)
def test_what_stops_gym_before_the_first_request_is_the_rows_or_the_options(
    module: str, raised: str, layer: Layer
) -> None:
    diagnosis = diagnose(Material(log=traceback(f"{GYM}/{module}.py", raised)))
    assert diagnosis.layer is layer
    assert diagnosis.rule in {"config.preflight", "data.preflight"}


def test_what_a_request_of_the_collector_meets_is_not_about_the_rows() -> None:
    """Frames of the collector stand above every failure of a row as well."""
    raised = "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:15001 ssl:default"
    diagnosis = diagnose(Material(log=traceback(f"{GYM}/rollout_collection.py", raised)))
    assert diagnosis.layer is Layer.INFRA


@pytest.mark.parametrize(
    ("log", "layer"),
    [
        (traceback(VLLM, "AssertionError: Encoder cache miss", "(EngineCore_DP0 pid=31) "), Layer.MODEL_SERVING),
        (traceback(SGLANG, "IndexError: list index out of range"), Layer.MODEL_SERVING),
        (("(APIServer pid=3) ValueError: Something new about a kernel",), Layer.MODEL_SERVING),
        (("(APIServer pid=3) ValueError: Unknown method: fp7. Must be one of ['awq', 'fp8'].",), Layer.CONFIG),
        (traceback(VLLM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
         Layer.THROUGHPUT_RESOURCES),
        (traceback("/opt/gym/resources_servers/math/app.py", "ZeroDivisionError: division by zero", "(math) "),
         Layer.VERIFIER_RUNTIME),
        (("(APIServer pid=3) INFO 11-02 10:00:00 [loggers.py:123] Engine 000: Running: 12 reqs, Waiting: 0 reqs",
          "(APIServer pid=3) WARNING 11-02 10:00:00 [api_server.py:1] Failed to import fastokens, falling back."),
         Layer.NONE),
    ],
)  # fmt: skip
def test_an_exception_is_whose_code_raised_it(log: tuple[str, ...], layer: Layer) -> None:
    assert diagnose(Material(log=log)).layer is layer
