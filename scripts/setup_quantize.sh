#!/bin/sh
# Builds .venv-quantize: llm-compressor and its requirements, which take precedence over the packages of .venv.
# Usage: scripts/setup_quantize.sh   (after `make setup`)
set -eu
cd "$(dirname "$0")/.."
stamp=$(cat .venv/stamp requirements/quantize.txt scripts/setup_quantize.sh | cksum)
if [ -f .venv-quantize/stamp ] && [ "$(cat .venv-quantize/stamp)" = "$stamp" ]; then
    exit 0
fi
echo "setup: building .venv-quantize"
rm -rf .venv-quantize
.venv/bin/python -m venv --without-pip .venv-quantize
where='import sysconfig; print(sysconfig.get_path("purelib"))'
beside=$(.venv/bin/python -c "$where")
echo "import site; site.addsitedir('$beside')" > "$(.venv-quantize/bin/python -c "$where")/harness.pth"
torch=$(.venv/bin/python -c 'import importlib.metadata as of; print(of.version("torch"))')
echo "torch==$torch" > .venv-quantize/constraint.txt
.venv-quantize/bin/python -m pip --disable-pip-version-check --no-input install -q \
    -c .venv-quantize/constraint.txt -r requirements/quantize.txt 2> .venv-quantize/pip.log ||
    { cat .venv-quantize/pip.log >&2; exit 3; } # pip's conflicts with vLLM do not matter, because vLLM is not used there
.venv-quantize/bin/python -c 'import llmcompressor' > /dev/null
echo "$stamp" > .venv-quantize/stamp
echo "setup: done"
