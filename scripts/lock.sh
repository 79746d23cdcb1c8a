#!/bin/sh
# Makes requirements/*.lock from pyproject.toml: the version of every package, for Python 3.11 and newer, and the hashes of
# all files that the package index has of it. Versions of the present locks are kept where they still fit.
# Usage: scripts/lock.sh [OPTION…]   options of `uv pip compile`: --upgrade, --upgrade-package NAME, --no-index …
set -eu
cd "$(dirname "$0")/.."
# The package index alone: further sources may have a part of a version's files, or torch's CPU build for torch.
export UV_INDEX= UV_FIND_LINKS=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=$*
compile() {
    # shellcheck disable=SC2086 # several options
    "${PYTHON:-.venv/bin/python}" scripts/run_uv.py pip compile -q --universal --python-version 3.11 --no-sources \
        --generate-hashes --no-annotate --custom-compile-command "make lock" $options "$@"
}
echo "lock: requirements/uv.lock"
echo uv | compile -o requirements/uv.lock -
# torch's CPU build is in no index that has the others, nor is one list of its files within everybody's reach: setup.sh
# installs it before the lock, which names what it requires (cpu.in) without it.
echo "lock: requirements/cpu.lock"
echo torch > "$work/excluded"
compile --excludes "$work/excluded" --extra cpu --extra ray --extra dev -o requirements/cpu.lock \
    pyproject.toml requirements/cpu.in
# Outside of the project: what pyproject.toml excludes is excluded for the CPU build.
echo "lock: requirements/gpu.lock"
compile --project "$work" --extra gpu --extra ray --extra dev -o requirements/gpu.lock pyproject.toml
