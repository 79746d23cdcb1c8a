# Every target does the set-up it needs. For `make setup`: PYTHON names the interpreter (3.11 or newer; python3), VLLM what
# it is made for: cpu, gpu, installed (the vLLM of that interpreter); by default what the machine has.
PYTHON ?=
VLLM ?=
PY := .venv/bin/python
# Test files at a time in `make test`, on one core too: half of a test's time is waiting. Each takes up to 0.5 GiB.
WORKERS ?= 4
PYTEST := $(PY) -m pytest -q --durations=25
BY_FILE := --dist loadfile --no-loadscope-reorder
DEMO := output/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: setup lock setup-quantize demo published test test-engines test-long test-all redteam record-runs freeze peers lint clean

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
	@sh tools/fetch_published.sh

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

# Python is to keep what it compiled, whatever the environment says.
test test-engines test-long redteam freeze: export PYTHONDONTWRITEBYTECODE :=

# Every package, with the dummy engine and recorded runs, and two runs of the real vLLM.
test: setup
	$(PYTEST) -n $(WORKERS) $(BY_FILE) -m "not vllm and not long"

# What starts vLLM, Ray or `vllm serve`: two files at a time; last, alone, what Ray gives up where it is late.
LATE := tests/vllm/test_cluster_vllm.py
test-engines: setup
	$(PYTEST) -n 2 $(BY_FILE) -m "vllm and not long" --ignore=$(LATE); beside=$$?; \
	$(PYTEST) $(LATE) && exit $$beside

# What takes minutes or fetches packages; last, alone, what compares measured times.
ALONE := tests/redteam tests/scenarios/audit tests/scenarios/test_over_http.py tests/scenarios/tune tests/vllm/test_endpoint.py
test-long: setup
	$(PYTEST) -n 2 $(BY_FILE) -m long $(addprefix --ignore=,$(ALONE)); beside=$$?; \
	$(PYTEST) -m long $(ALONE) && exit $$beside

# All of them, one after the other; where one fails, the others are run nevertheless.
test-all:
	@$(MAKE) --no-print-directory -k -j 1 lint test test-engines test-long

redteam: setup
	$(PY) -m pytest -q tests/redteam

# The runs that tests of what judges read, after a change of the record's version. On an idle machine.
record-runs: setup
	$(PY) -m tests.support.make_recorded_runs

# What every command that judges finds in every recorded input; a change of it shows in the commit. Ten minutes.
freeze: setup
	$(PY) -m tests.frozen

# The harness measured against what it builds on.
peers: setup
	$(PY) -m tools.bench

# What was measured (output/) stays.
clean:
	rm -rf .venv .venv-before .venv-quantize .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
