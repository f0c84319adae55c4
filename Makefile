# The two commands to know: `make demo` and `make test`. Each does all of its own set-up, on a fresh machine and again.
.DEFAULT_GOAL := help
BIN := .venv/bin

.PHONY: help demo test check unit bench gym gym-env test-gym pictures screenshots lock clean

help: ## what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.synced: pyproject.toml uv.lock tools/setup.sh
	@tools/setup.sh

demo: .venv/.synced ## a miniature Gym through the tap: rows, a call tree, a failing exchange
	@$(BIN)/gymtap demo

test: check unit ## everything but the real Gym: checks, then tests

check: .venv/.synced ## format, lint, types, import contracts, dependency hygiene
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo
	@$(BIN)/deptry --no-ansi proxy addons schemas >/dev/null 2>&1 || $(BIN)/deptry --no-ansi proxy addons schemas

unit: .venv/.synced ## the tests that need nothing but this clone
	@$(BIN)/pytest -q -n auto -m "not gym"

bench: .venv/.synced ## throughput beside mitmdump and a bare aiohttp proxy, in one run
	@$(BIN)/python benchmarks/throughput.py

gym-env: .venv/.synced ## NeMo Gym 0.7.0 in a Python 3.13 environment of its own (about a minute and 1 GB)
	@examples/gym_env.sh

gym: gym-env ## a real Gym environment through `gymtap run`, then its rows
	@examples/gym_demo.sh

test-gym: gym-env ## the tests on the real NeMo Gym
	@$(BIN)/pytest -q -m gym

pictures: .venv/.synced ## the pictures of the README, from real output
	@$(BIN)/python docs/make_pictures.py

screenshots: .venv/.synced ## every view of the terminal UI, as SVG and as text (docs/images/tui)
	@$(BIN)/python docs/make_screenshots.py

lock: .venv/.synced ## write uv.lock anew after a change of dependencies
	@UV_PYTHON_DOWNLOADS=never $(BIN)/uv lock --python $(BIN)/python

clean: ## remove what was made here
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
