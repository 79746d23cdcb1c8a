"""Count the lines of the product by package, without tests and tools: `python -m tools.product_lines`."""

from pathlib import Path

from runs.harness import HARNESS_ROOT

PACKAGES = ("mlperf_llama_vllm", "compliance", "scenarios", "runs", "sut", "qsl", "scripts")


def product_lines(root: Path = HARNESS_ROOT) -> dict[str, int]:
    """Return the lines of Python by package, and of the top-level modules by name."""
    files = {name: (root / name).rglob("*.py") for name in PACKAGES} | {path.name: [path] for path in root.glob("*.py")}
    return {name: sum(path.read_bytes().count(b"\n") for path in paths) for name, paths in files.items()}


if __name__ == "__main__":
    lines = product_lines()
    print("\n".join(f"{count:6,}  {name}" for name, count in {**lines, "all": sum(lines.values())}.items()))
