# Two commands are enough: `make run` shows the demo, `make test` runs the tests.
SHELL := /bin/bash
SECONDS ?= 0
BENCH ?=
TESTS ?=
WORKERS ?= 2
MINUTES ?= 10
# Another Python has an environment of its own: `make test PYTHON=python3.13`.
export VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
PY := $(VENV)/bin/python

.PHONY: run test soak check bench clean

run: $(VENV)/ready
	@scripts/with-java $(VENV)/bin/muntin demo --seconds $(SECONDS)

# All tests, or some: `make test TESTS=tests/logs`.
test: $(VENV)/ready-dev
	@scripts/with-java $(PY) -m pytest -n $(WORKERS) --dist loadgroup $(TESTS)

# Property tests with seeds that are printed, until MINUTES are over. `make soak SEED=…` repeats one.
soak: $(VENV)/ready-dev
	@scripts/with-java scripts/soak $(PY) $(MINUTES) $(WORKERS) $(TESTS)

check: $(VENV)/ready-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: $(VENV)/ready-dev
	@scripts/with-java $(PY) -m benchmarks.run $(BENCH)

$(VENV)/ready: pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv ".[run]"
	@touch $@

$(VENV)/ready-dev: pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv ".[dev]"
	@touch $(VENV)/ready $@

clean:
	rm -rf .venv .venv-* build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
