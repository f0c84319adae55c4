"""The rules, one module a layer; their order decides only between equals."""

from gymtap.proxy.diagnose.rule import Rule
from gymtap.proxy.diagnose.rules import (
    cache_resume,
    config,
    data_schema,
    failure_kinds,
    infra,
    model_serving,
    throughput_resources,
    verifier_runtime,
)


def all_rules() -> tuple[Rule, ...]:
    """Every built-in rule."""
    return (
        *infra.RULES,
        *config.RULES,
        *throughput_resources.RULES,
        *data_schema.RULES,
        *cache_resume.RULES,
        *model_serving.RULES,
        *failure_kinds.RULES,
        *verifier_runtime.RULES,
    )
