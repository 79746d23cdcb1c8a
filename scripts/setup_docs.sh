#!/bin/sh
# Builds .venv-docs, in which `make docs` builds the documentation site. Usage: scripts/setup_docs.sh
# PYTHON is the interpreter; default: that of .venv, or else python3.
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat requirements/docs.lock scripts/setup_docs.sh | cksum)
if [ -f .venv-docs/stamp ] && [ "$(cat .venv-docs/stamp)" = "$stamp" ]; then
    exit 0
fi
echo "setup: building .venv-docs"
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=${PYTHON:-python3}
rm -rf .venv-docs
"$python" -m venv .venv-docs
.venv-docs/bin/python -m pip --disable-pip-version-check --no-input install -q --require-hashes --no-deps \
    -r requirements/docs.lock
echo "$stamp" > .venv-docs/stamp
