# Two commands are enough: `make run` shows the demo, `make test` runs the tests.
SHELL := /bin/bash
SECONDS ?= 0
BENCH ?=
PY := .venv/bin/python

.PHONY: run test check bench clean

run: .venv/ready
	@scripts/with-java .venv/bin/muntin demo --seconds $(SECONDS)

test: .venv/ready-dev
	@scripts/with-java $(PY) -m pytest

check: .venv/ready-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: .venv/ready-dev
	@scripts/with-java $(PY) -m benchmarks.run $(BENCH)

.venv/ready: pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv .
	@touch $@

.venv/ready-dev: pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv ".[dev]"
	@touch .venv/ready $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
