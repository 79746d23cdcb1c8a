# Every target does the set-up it needs. For `make setup`: PYTHON names the interpreter (3.11 or newer; python3), VLLM what
# it is made for: cpu, gpu, installed (the vLLM of that interpreter); by default what the machine has.
PYTHON ?=
VLLM ?=
PY := .venv/bin/python
# Test files at a time: most of them wait. Fewer where memory is short.
WORKERS ?= 6
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
TESTED := (not vllm or main_path) and not long and not quick
ENGINES := vllm and not main_path and not long and not quick
DEMO := output/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: setup lock setup-quantize demo published test test-fast side-by-side test-engines test-long redteam record-legs bench lint clean

setup:
	@PYTHON=$(PYTHON) sh scripts/setup.sh $(VLLM)

# requirements/*.lock from pyproject.toml; LOCK is for options of `uv pip compile`, such as --upgrade.
lock: setup
	@sh scripts/lock.sh $(LOCK)

# For `main.py quantize`.
setup-quantize: setup
	@sh scripts/setup_quantize.sh

demo: setup
	$(PY) main.py --scenario Offline --vllm --accuracy --output-log-dir $(DEMO)/accuracy
	$(PY) main.py --scenario Offline --vllm --output-log-dir $(DEMO)/performance

# Results of others, into the cache: tests of `make test-long` that read them are skipped without.
published: setup
	@sh scripts/fetch_published.sh

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

# Thousands of processes are started: Python is to keep what it compiled, whatever the environment says.
test test-fast side-by-side test-engines test-long redteam: export PYTHONDONTWRITEBYTECODE :=

test-fast: setup
	$(PY) -m pytest -q $(SIDE_BY_SIDE) -m "not slow and not vllm and not long and not timed"

# Lint beside the tests, most of which wait. What compares measured times runs alone, whatever came of the rest.
test: setup
	$(MAKE) --no-print-directory -k -j 2 lint side-by-side; together=$$?; \
	$(PY) -m pytest -q --durations=25 -m "$(TESTED) and timed" && exit $$together

side-by-side: setup
	$(PY) -m pytest -q --durations=25 $(SIDE_BY_SIDE) -m "$(TESTED) and not timed"

# What starts vLLM, Ray or `vllm serve`. Two at a time: each computes.
test-engines: setup
	$(PY) -m pytest -q --durations=25 -n 2 --dist loadfile --no-loadscope-reorder \
		-m "$(ENGINES) and not timed"; side_by_side=$$?; \
	$(PY) -m pytest -q --durations=25 -m "$(ENGINES) and timed" && exit $$side_by_side

# What takes longer than `make test` may, or fetches packages; last, alone, what compares measured times.
ALONE := tests/redteam tests/scenarios/test_over_http.py tests/scenarios/tune tests/vllm/test_endpoint.py
test-long: setup
	$(PY) -m pytest -q --durations=25 -n 2 --dist loadfile -m long $(addprefix --ignore=,$(ALONE)); beside=$$?; \
	$(PY) -m pytest -q --durations=25 -m long $(ALONE) && exit $$beside

redteam: setup
	$(PY) -m pytest -q tests/redteam

# The legs that tests of what judges read, after a change of the record's version. On an idle machine.
record-legs: setup
	$(PY) -m tests.support.record_legs

bench: setup
	$(PY) -m scripts.bench

# What was measured (output/) stays.
clean:
	rm -rf .venv .venv-before .venv-quantize .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
