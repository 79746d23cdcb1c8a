"""The command `mlperf-llama-vllm`, also `python -m mlperf_llama_vllm`: main.py of the clone or of the wheel."""

import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Run the command line; return the exit code."""
    here = Path(__file__).resolve().parent
    path = next(candidate for candidate in (here / "main.py", here.parent / "main.py") if candidate.is_file())
    spec = importlib.util.spec_from_file_location("mlperf_llama_vllm.main", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    code: int = module.entry()
    return code


if __name__ == "__main__":
    sys.exit(main())
