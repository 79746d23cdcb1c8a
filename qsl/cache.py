"""The cache of generated files: the embedded model and tokenized bundled data."""

import os
from pathlib import Path

from runs.errors import SetupError

CACHE_VARIABLE = "MLPERF_LLAMA_VLLM_CACHE"
_NAME = "mlperf-llama-vllm"


def cache_dir() -> Path:
    """Return the cache folder, and create it if it is missing.

    It is $MLPERF_LLAMA_VLLM_CACHE, otherwise $XDG_CACHE_HOME/mlperf-llama-vllm, otherwise ~/.cache/mlperf-llama-vllm.

    Raises:
        SetupError: If it cannot be created.
    """
    if directory := os.environ.get(CACHE_VARIABLE):
        folder = Path(directory).expanduser()
    elif xdg := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(xdg) / _NAME
    else:
        folder = Path.home() / ".cache" / _NAME
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cache folder {folder} cannot be created: {error.strerror}", f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    return folder
