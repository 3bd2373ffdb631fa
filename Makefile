# Two commands are enough: `make run` shows the demo, `make test` runs the tests.
SHELL := /bin/bash
SECONDS ?= 0
BENCH ?=
TESTS ?=
WORKERS ?= 2
MINUTES ?= 10
FAULTS ?= 200
# Another Python has an environment of its own: `make test PYTHON=python3.13`.
export VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
PY := $(VENV)/bin/python

.PHONY: run test soak faults check bench clean

run: $(VENV)/ready
	@scripts/with-java $(VENV)/bin/muntin demo --seconds $(SECONDS)

# All tests, or some: `make test TESTS=tests/logs`.
test: $(VENV)/ready-dev
	@scripts/with-java $(PY) -m pytest -n $(WORKERS) --dist loadgroup --durations 40 --durations-min 5 $(TESTS)

# Property tests with seeds that are printed, until MINUTES are over. `make soak SEED=…` repeats one.
soak: $(VENV)/ready-dev
	@scripts/with-java scripts/soak $(PY) $(MINUTES) $(WORKERS) $(TESTS)

# Kills, stops and starves a running program and its logs, and compares what it stores with the
# truth. `make faults SEED=…` repeats the choices of a run; FAULTS is how many there are.
faults: $(VENV)/ready-dev
	@scripts/with-java $(PY) -m tests.faults --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

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
