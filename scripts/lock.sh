#!/bin/sh
# Makes requirements/*.lock from pyproject.toml: the version of every package, for Python 3.11 and newer, and the hashes of
# all its files in the package index. Versions in the present locks are kept if they satisfy the requirements.
# Usage: scripts/lock.sh [OPTION…]   options of `uv pip compile`: --upgrade, --upgrade-package NAME, --no-index …
set -eu
cd "$(dirname "$0")/.."
# Use only the package index: other sources may lack files of a version, or have torch's CPU build as torch.
export UV_INDEX= UV_FIND_LINKS=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=$*
compile() {
    # shellcheck disable=SC2086 # multiple options
    "${PYTHON:-.venv/bin/python}" scripts/run_uv.py pip compile -q --universal --python-version 3.11 --no-sources \
        --generate-hashes --no-annotate --custom-compile-command "make lock" $options "$@"
}
echo "lock: requirements/uv.lock"
echo uv | compile -o requirements/uv.lock -
echo "lock: requirements/docs.lock"
compile --project "$work" -o requirements/docs.lock requirements/docs.in
echo "lock: requirements/loadgen.lock"
compile --group pyproject.toml:loadgen-source -o requirements/loadgen.lock
# The index of the other packages lacks torch's CPU build, and the list of its files is not accessible to everybody.
# setup.sh installs it before the lock, which has only its requirements (cpu.in).
echo "lock: requirements/cpu.lock"
echo torch > "$work/excluded"
compile --excludes "$work/excluded" --extra cpu --extra ray --extra dev -o requirements/cpu.lock \
    pyproject.toml requirements/cpu.in
# Run outside the project, because pyproject.toml excludes packages only for the CPU build.
echo "lock: requirements/gpu.lock"
compile --project "$work" --extra gpu --extra ray --extra dev -o requirements/gpu.lock pyproject.toml
