"""Count the lines of the product by package, without tests and tools: `python -m tools.product_lines`."""

from pathlib import Path

from runs.harness import HARNESS_ROOT

PACKAGES = ("compliance", "scenarios", "runs", "sut", "qsl", "scripts")


def product_lines(root: Path = HARNESS_ROOT) -> dict[str, int]:
    """Lines of Python by package; those of modules at the top under their names."""
    files = {name: (root / name).rglob("*.py") for name in PACKAGES} | {path.name: [path] for path in root.glob("*.py")}
    return {name: sum(path.read_bytes().count(b"\n") for path in paths) for name, paths in files.items()}


if __name__ == "__main__":
    lines = product_lines()
    print("\n".join(f"{count:6,}  {name}" for name, count in {**lines, "all": sum(lines.values())}.items()))
