# Every target runs the setup that it needs. For `make setup`: PYTHON is the interpreter (3.11 or newer; default python3).
# VLLM is cpu, gpu or installed (the vLLM of that interpreter); default: the hardware of the machine. LOADGEN is wheel or
# source; default: a build from source where no wheel exists.
PYTHON ?=
VLLM ?=
LOADGEN ?=
PY := .venv/bin/python
# Parallel test files in `make test`, also on one core, because tests wait half of their time. Each uses up to 0.5 GiB.
WORKERS ?= 4
PYTEST := $(PY) -m pytest -q --durations=25
BY_FILE := --dist loadfile --no-loadscope-reorder
DEMO := output/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: setup lock setup-quantize demo published test test-engines test-long test-all redteam record-runs freeze peers docs lint clean

setup:
	@PYTHON=$(PYTHON) LOADGEN=$(LOADGEN) sh scripts/setup.sh $(VLLM)

# requirements/*.lock from pyproject.toml; LOCK is for options of `uv pip compile`, such as --upgrade.
lock: setup
	@sh scripts/lock.sh $(LOCK)

# For `main.py quantize`.
setup-quantize: setup
	@sh scripts/setup_quantize.sh

demo: setup
	$(PY) main.py --scenario Offline --vllm --accuracy --output-log-dir $(DEMO)/accuracy
	$(PY) main.py --scenario Offline --vllm --output-log-dir $(DEMO)/performance

# Download published results into the cache. Without them, `make test-long` skips their tests.
published: setup
	@sh tools/fetch_published.sh

# The documentation as static HTML, in dist/site. It needs no network to view, and no vLLM to build.
docs:
	@PYTHON=$(PYTHON) sh scripts/setup_docs.sh
	.venv-docs/bin/python -m tools.site

lint: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) -m tools.audit_dependencies

# Let Python cache compiled modules, also if the environment disables it.
test test-engines test-long redteam freeze: export PYTHONDONTWRITEBYTECODE :=

# Every package, with the dummy engine and recorded runs, and one run of the real vLLM.
test: setup
	$(PYTEST) -n $(WORKERS) $(BY_FILE) -m "not vllm and not browser and not long"

# Tests that start vLLM, Ray, `vllm serve` or a browser, two files in parallel; then, alone, the tests with time limits of
# Ray. Without Chromium, the tests in a browser are skipped.
LATE := tests/vllm/test_cluster_vllm.py
test-engines: setup
	$(PYTEST) -n 2 $(BY_FILE) -m "(vllm or browser) and not long" --ignore=$(LATE); beside=$$?; \
	$(PYTEST) $(LATE) && exit $$beside

# Tests that take minutes or download packages; then, alone, the tests that compare measured times.
ALONE := tests/redteam tests/scenarios/audit tests/scenarios/test_over_http.py tests/scenarios/tune tests/vllm/test_endpoint.py
test-long: setup
	$(PYTEST) -n 2 $(BY_FILE) -m long $(addprefix --ignore=,$(ALONE)); beside=$$?; \
	$(PYTEST) -m long $(ALONE) && exit $$beside

# All tests in sequence; after a failure, the others still run.
test-all:
	@$(MAKE) --no-print-directory -k -j 1 lint test test-engines test-long

redteam: setup
	$(PY) -m pytest -q tests/redteam

# Repeat the recorded runs of the tests after a change of the manifest's version. Requires an idle machine.
record-runs: setup
	$(PY) -m tests.support.runs.make_recorded_runs

# Write the findings of every command on every recorded input to tests/frozen. Takes ten minutes.
freeze: setup
	$(PY) -m tests.frozen

# Compare the harness with LoadGen and vLLM alone.
peers: setup
	$(PY) -m tools.peers

# Keep measured results (output/).
clean:
	rm -rf .venv .venv-before .venv-quantize .venv-docs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
