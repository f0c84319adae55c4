"""One meaning, many wordings: providers' words for a prompt that does not fit, and words that only look like them."""

import json

import pytest

from gymtap.proxy.diagnose import diagnose, from_case
from gymtap.schemas import Diagnosis

OVERFLOWS = (
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion. Current length is 70000 while limit is 65536",
    "Input length 265330 exceeds the maximum allowed input length of 262144 tokens.",
    "The input (265330 tokens) is longer than the model's context length (262144 tokens).",
    "prompt token count of 145000 exceeds the limit of 128000",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 262144 (requested: 300000)",
    "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
    "Range of input length should be [1, 129024]",
    "prompt is too long: 200005 tokens > 200000 maximum",
    "The total length of all messages is too long.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "The sum of prompt length (9031), query length (0) should not exceed max_num_tokens (8192)",
    "max_tokens must be at least 1, got -186.",
    "You passed 9031 input tokens and requested 1024 output tokens. However, the model's context length is 8192.",
)
OTHERS = (
    "invalid temperature: exceeds the maximum allowed value",
    "the requested image size exceeds the limit of this endpoint",
    "`max_completion_tokens` must be less than or equal to `32768`, the maximum value",
    "Too many tokens, please wait before trying again.",
    "Request too large on tokens per min (TPM): Limit 30000, Requested 41000. The input tokens must be reduced.",
    "Invalid schema for function: properties exceed the limit of 100",
)


def answered(message: str) -> Diagnosis:
    exchange = {
        "boundary": "model->provider",
        "request": {"method": "POST", "url": "http://h:1/v1/chat/completions", "body_text": '{"messages":[]}'},
        "response": {"status": 400, "headers": {}, "body_text": json.dumps({"error": {"message": message}})},
    }
    return diagnose(from_case({"exchanges": [exchange]}))


@pytest.mark.parametrize("message", OVERFLOWS)
def test_a_prompt_that_does_not_fit_is_known_by_what_is_measured_and_what_it_passes(message: str) -> None:
    assert answered(message).rule == "data.context_overflow"


@pytest.mark.parametrize("message", OTHERS)
def test_limits_of_other_things_are_not_the_prompts(message: str) -> None:
    assert answered(message).rule != "data.context_overflow"


def layer_of(status: int, body: str) -> str:
    exchange = {
        "boundary": "model->provider",
        "request": {"method": "POST", "url": "http://h:1/v1/chat/completions", "body_text": '{"messages":[]}'},
        "response": {"status": status, "headers": {}, "body_text": body},
    }
    return str(diagnose(from_case({"exchanges": [exchange]})).layer)


@pytest.mark.parametrize(
    ("message", "layer"),
    [
        ("This model does not support image inputs.", "config"),
        ("Function calling is not enabled for models/gemma-3-27b-it", "config"),
        ("tools is not supported in this model. For a list of supported models refer to docs", "config"),
        ("Prompt contains 5 audio items but the model supports at most 1", "config"),
        ("The requested n=8 is not supported; only n=1", "config"),
        ("max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for this model", "config"),
        ("Range of max_tokens should be [1, 8192]", "config"),
        ("User location is not supported for the API use.", "config"),
        ("This organization has been disabled.", "config"),
        ("LLM Provider NOT provided. Pass in the LLM provider you are trying to call.", "config"),
        ("Unsupported model: small-v9", "config"),
        ("input must have less than 2048 tokens", "data_schema"),
        ("schema produces a constraint that has too many states for serving", "data_schema"),
        ("look-around, including look-ahead and look-behind, is not supported", "data_schema"),
        ("Input data may contain inappropriate content.", "data_schema"),
        ("messages: text content blocks must be non-empty", "data_schema"),
        ("Please ensure that function call turn comes immediately after a user turn.", "verifier_runtime"),
        ("When using `tool_choice`, `tools` must be set. (parameter=tool_choice)", "model_serving"),
        ('can only concatenate str (not "list") to str', "model_serving"),
    ],
)
def test_whose_a_refused_request_is_follows_from_what_the_provider_says_of_it(message: str, layer: str) -> None:
    assert layer_of(400, json.dumps({"error": {"message": message}})) == layer


@pytest.mark.parametrize(
    ("line", "layer"),
    [
        ("ValueError: Tokenizer class Qwen9 does not exist or is not currently imported.", "model_serving"),
        ("AssertionError: non-contiguous tokens", "model_serving"),
        ("Caused by: dns error: failed to lookup address information", "infra"),
        ("TimeoutError: Timed out waiting for servers to spin up after 600s: ['policy_model']", "infra"),
        ("Error: No such image: sweb.eval.x86_64.django__django-13820:latest", "infra"),
        ('Error: pull: Get "https://registry.example:5000/v2/": context deadline exceeded', "infra"),
        ('Error: head "https://ghcr.example/v2/team/box/manifests/1.2": net/http: TLS handshake timeout', "infra"),
        ('Error: Get "https://api.example/v2/chat": context deadline exceeded', "throughput_resources"),
        ("0/12 nodes are available: 12 Insufficient nvidia.com/gpu.", "infra"),
        ("Back-off restarting failed container vllm in pod policy-0", "infra"),
        ("ray.exceptions.ObjectStoreFullError: Failed to put object in object store", "throughput_resources"),
        ("psycopg2.OperationalError: FATAL: remaining connection slots are reserved", "throughput_resources"),
        ("huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.", "config"),
        ("ValueError: backend=cloud requires a domain and a key: set BOX_DOMAIN / BOX_API_KEY", "config"),
        ("wandb: ERROR Error while calling W&B API: user is not logged in (<Response [401]>)", "config"),
        ("jupyter_client.kernelspec.NoSuchKernel: No such kernel named python3", "verifier_runtime"),
        ("TypeError: unhashable type: 'list'", "verifier_runtime"),
        ("error: something that nobody has seen yet", "unknown"),
        ("Token indices sequence length is longer than the specified maximum sequence length (9 > 8).", "none"),
        ("WARNING The model has a long context length (131072). This may cause OOM during profiling.", "none"),
        ("resource_tracker: There appear to be 3 leaked semaphore objects to clean up at shutdown", "none"),
        ('INFO httpx: HTTP Request: POST http://h/v1/chat/completions "HTTP/1.1 200 OK"', "none"),
        ("450/1000 [10:00<12:00, errors=0, timeouts=0]", "none"),
    ],
)
def test_one_line_of_a_log_is_told_by_its_words_and_a_librarys_chatter_is_none(line: str, layer: str) -> None:
    assert diagnose(from_case({"log": line + "\n"})).layer == layer


@pytest.mark.parametrize(
    ("line", "runner_up"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB.", "model_serving"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "model_serving"),
        ("kernel: Out of memory: Killed process 4711 (python)", "infra"),
    ],
)
def test_the_gpus_memory_may_be_the_engines_matter_and_the_hosts_the_nodes(line: str, runner_up: str) -> None:
    found = diagnose(from_case({"log": line + "\n"}))
    assert (found.layer, found.runner_up) == ("throughput_resources", runner_up)
