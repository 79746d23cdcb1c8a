#!/bin/sh
# Run the measurements on a GPU machine (tools/gpu/README.md).
# Usage: sh tools/gpu/measure.sh [OPTION…]
#   OUT=DIR         where the files to keep are written; default output/gpu/out
#   GPU_SITE=DIR    where the packages are installed; default /opt/gpu-site
#   GPU_PARTS=DIR   where the packed parts are; default .gpu/parts
#   REHEARSE=dummy  the same steps with the dummy engine and the environment of `make setup`, on any machine
set -eu
cd "$(dirname "$0")/../.."
STARTED_S=$(date +%s) # the time of the command includes the installation
export STARTED_S
if [ "${REHEARSE:-}" = dummy ]; then
    exec .venv/bin/python -m tools.gpu.measure "$@"
fi

GPU_SITE=${GPU_SITE:-/opt/gpu-site}
export GPU_SITE
python3 tools/gpu/unpack.py
PYTHONPATH=$GPU_SITE${PYTHONPATH:+:$PYTHONPATH}
PATH=$GPU_SITE/bin:$PATH
# FlashInfer is not packed. vLLM 0.24 imports it by default, for sampling with top-k, which greedy requests never do.
VLLM_USE_FLASHINFER_SAMPLER=0
# On CUDA vLLM forks its engine core by default; a fork of the run's process keeps the locks of its threads.
VLLM_WORKER_MULTIPROC_METHOD=spawn
PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE # compiled once, the packages start faster
export PYTHONPATH PATH VLLM_USE_FLASHINFER_SAMPLER VLLM_WORKER_MULTIPROC_METHOD PYTHONUNBUFFERED

# vLLM's libraries load the driver's library by its name alone.
if ! python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2> /dev/null; then
    library=$(find /usr/local/nvidia /usr/lib* -name libcuda.so.1 2> /dev/null | head -n 1)
    [ -z "$library" ] || export LD_LIBRARY_PATH="$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
exec python3 -m tools.gpu.measure "$@"
