#!/bin/sh
# Builds .venv with locked versions: the CUDA engine where there is an NVIDIA GPU, else the CPU engine.
# Usage: scripts/setup.sh [cpu|gpu]   (PYTHON names the interpreter, default python3)
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
kind=${1:-}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $python is older than Python 3.11; name a newer one: make setup PYTHON=python3.11" >&2
    exit 3
fi
if [ -z "$kind" ]; then
    if nvidia-smi -L 2>/dev/null | grep -q GPU; then kind=gpu; else kind=cpu; fi
fi

# The stamp says which locks the environment was built from; a changed lock builds it anew.
stamp="$kind $(cat requirements/"$kind".* scripts/setup.sh | cksum) $("$python" -c 'import sys; print(sys.version_info[:2])')"
if [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ]; then
    exit 0
fi

echo "setup: building .venv for $kind (a few minutes)"
rm -rf .venv
"$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }
if [ "$kind" = gpu ]; then
    pip install -q -c requirements/gpu.lock -r requirements/gpu.in
else
    # The CPU build carries a local version on x86-64 Linux, where the plain name means the CUDA build. Where the
    # configured index does not have it, PyTorch's own index does; other platforms have one build only.
    pip install -q --no-deps torch==2.13.0+cpu 2>/dev/null ||
        pip install -q --no-deps torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu ||
        pip install -q --no-deps torch==2.13.0
    pip install -q --no-deps -r requirements/cpu.lock
fi
.venv/bin/python -c 'import torch, vllm, mlperf_loadgen' >/dev/null
echo "$stamp" > .venv/stamp
echo "setup: done"
