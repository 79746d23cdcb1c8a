# Every target does the set-up it needs. PYTHON names the interpreter for `make setup` (3.11 or newer).
PYTHON ?= python3
PY := .venv/bin/python
SIDE_BY_SIDE := -n 3 --dist loadfile
DEMO := output/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: setup demo test test-fast redteam bench lint clean

setup:
	@PYTHON=$(PYTHON) sh scripts/setup.sh

demo: setup
	$(PY) main.py --scenario Offline --vllm --accuracy --output-log-dir $(DEMO)/accuracy
	$(PY) main.py --scenario Offline --vllm --output-log-dir $(DEMO)/performance

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

test-fast: setup
	$(PY) -m pytest -q $(SIDE_BY_SIDE) -m "not slow and not vllm"

# Most tests wait for legs that sleep: several files at a time. Cheats are told by their times and vLLM takes all cores,
# so these run alone.
test: lint
	$(PY) -m pytest -q $(SIDE_BY_SIDE) -m "not vllm" --ignore=tests/redteam
	$(PY) -m pytest -q -m "not vllm" tests/redteam
	$(PY) -m pytest -q -m vllm

redteam: setup
	$(PY) -m pytest -q tests/redteam

bench: setup
	$(PY) -m scripts.bench

# What was measured (output/) stays.
clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
