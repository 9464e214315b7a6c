PYTHON ?= python3
BIN = .venv/bin

.PHONY: run test test-slow check bench clean

run: .venv/installed           ## see processes take turns, on a local file
	$(BIN)/python examples/turns.py

test: .venv/installed          ## every test that is quick, on every store
	$(BIN)/python -m pytest -m "not slow" -n 4

test-slow: .venv/installed     ## real faults that take seconds each
	$(BIN)/python -m pytest -m slow

check: .venv/installed         ## style and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: .venv/installed         ## measured side by side with the alternatives
	$(BIN)/python -m benchmarks

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[redis,dev]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
