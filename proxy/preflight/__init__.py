"""The live preflight: what an endpoint says to the tools of a dataset, before a rollout is spent."""
