"""Contracts: tool schemas, rows and answers against the servers' and vLLM's own rules, before or after the fact."""
