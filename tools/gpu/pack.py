"""Pack vLLM and the packages of the harness for a GPU machine without a network: `python -m tools.gpu.pack`.

Wheels are downloaded by name, reduced to what one Hopper GPU uses, compressed together and split into parts, which
unpack.py installs.
"""

import argparse
import hashlib
import io
import lzma
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runs.errors import ExecutionError, InputError
from runs.harness import HARNESS_ROOT
from scripts.program import exit_code_of
from tools.gpu.slim import slim
from tools.gpu.unpack import CARRIED, SUMS

PACKAGES = Path(__file__).with_name("packages.yaml")
ARCHIVE = "site.tar.xz"
PYTHON = "3.12"
GLIBC = (17, 24, 26, 27, 28, 31, 34, 35)  # minor versions of glibc 2; pip accepts wheels only for listed versions
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in GLIBC), "manylinux2014_x86_64", "manylinux1_x86_64")
# A dictionary larger than the attention libraries exploits their similarity; a higher preset gains 1%.
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
USELESS = (
    r"\.cpython-3(?!12)\d+-",  # libraries for other Python versions
    r"\.dist-info/(RECORD|sboms/|licenses/)",
    r"\.pyi$",
)
# Files that a bf16 or FP8 Llama model on one Hopper GPU does not use; --whole keeps them.
UNUSED = (
    r"^vllm/vllm-rs$",  # the front end in Rust
    r"^vllm/_rust_tool_parser\.",
    r"^vllm/vllm_flash_attn/_vllm_fa2_C\.",  # FlashAttention 2 is for older GPUs, 4 (cute) for newer ones
    r"^vllm/vllm_flash_attn/cute/",
    r"^vllm/third_party/(deep_gemm|fmha_sm100|flashmla)/",
    r"^vllm/_(flashmla|flashmla_extension|qutlass)_C\.",
    r"^vllm/entrypoints/serve/instrumentator/static/",
    r"^vllm/model_executor/layers/fused_moe/configs/",
    r"\.(jpg|png|svg|hpp|cuh|cu|h|inl)$",
    r"^(openai|fastapi|starlette|nltk)/.*/?tests?/",
    r"^punkt/data/(?!english|prefixes|__init__)",
)
SLIMMED = re.compile(r"^vllm/_(moe_)?C_stable_libtorch\.")  # the libraries with code for every architecture


@dataclass(frozen=True)
class _File:
    """A file to install."""

    name: str
    content: bytes
    is_executable: bool


def carried_packages() -> dict[str, str]:
    """Return the packages to pack, with their versions."""
    listed: dict[str, Any] = yaml.safe_load(PACKAGES.read_text())
    return {name: str(version) for name, version in listed["carried"].items()}


def find_wheel(folder: Path, name: str, version: str) -> Path | None:
    """Return the wheel of a package in a folder."""
    wanted = _normal(name), version
    return next((path for path in sorted(folder.glob("*.whl")) if _wheel_key(path) == wanted), None)


def _wheel_key(path: Path) -> tuple[str, str]:
    name, version, *_ = path.name.split("-")
    return _normal(name), version


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def download(folder: Path, packages: dict[str, str]) -> None:
    """Download the wheels that the folder lacks, with pip's package sources.

    Raises:
        ExecutionError: If pip failed.
    """
    missing = [f"{name}=={version}" for name, version in packages.items() if not find_wheel(folder, name, version)]
    if not missing:
        return
    print(f"pack: downloading {' '.join(missing)}", flush=True)
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    fixed = ["--no-deps", "--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp", *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", *fixed]
    code = subprocess.run([*pip, "-d", str(folder), *missing], check=False).returncode
    if code:
        raise ExecutionError(f"pip download ended with code {code}", "see its message above")


def files_of(wheel: Path, complete: bool) -> Iterator[_File]:
    """Yield the files of a wheel, with their path in the target."""
    unwanted = re.compile("|".join(USELESS if complete else USELESS + UNUSED))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = _place(member.filename)
            if name is None or member.is_dir() or unwanted.search(name):
                continue
            content = archive.read(member)
            if not complete and SLIMMED.search(name):
                slimmed = slim(content)
                print(f"pack: {name}: {slimmed}", flush=True)
                content = slimmed.content
            yield _File(name, content, name.startswith("bin/") or ".so" in Path(name).name)


def _place(name: str) -> str | None:
    """Return the path at which a member of a wheel is installed; None if it is not installed."""
    data = re.match(r"[^/]+\.data/(\w+)/(.+)", name)
    if data is None:
        return name
    return {"purelib": data[2], "platlib": data[2], "scripts": f"bin/{data[2]}"}.get(data[1])


def write_archive(files: list[_File], path: Path) -> int:
    """Write the compressed archive with similar files next to each other; return the size of its content."""
    files = sorted(files, key=lambda file: (Path(file.name).suffix, file.name))
    with lzma.open(path, "wb", filters=COMPRESSION) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for file in files:
            member = tarfile.TarInfo(file.name)
            member.size, member.mode = len(file.content), 0o755 if file.is_executable else 0o644
            archive.addfile(member, io.BytesIO(file.content))
    return sum(len(file.content) for file in files)


def split(archive: Path, folder: Path, part_bytes: int) -> list[Path]:
    """Split an archive into parts, and write the hashes of the parts and, last, of the archive."""
    content = archive.read_bytes()
    parts: list[Path] = []
    for start in range(0, len(content), part_bytes):
        parts.append(folder / f"{archive.name}.{len(parts):02d}")
        parts[-1].write_bytes(content[start : start + part_bytes])
    hashed = [(hashlib.sha256(part.read_bytes()).hexdigest(), part.name) for part in parts]
    hashed.append((hashlib.sha256(content).hexdigest(), archive.name))
    (folder / SUMS).write_text("".join(f"{digest}  {name}\n" for digest, name in hashed))
    return parts


def _pack(options: argparse.Namespace) -> None:
    packages, wheels = carried_packages(), options.wheels
    wheels.mkdir(parents=True, exist_ok=True)
    download(wheels, packages)
    files: list[_File] = []
    for name, version in packages.items():
        wheel = find_wheel(wheels, name, version)
        if wheel is None:
            raise InputError(f"{wheels} has no wheel of {name} {version}", "correct tools/gpu/packages.yaml")
        files += files_of(wheel, options.whole)
    print("pack: compressing, which takes minutes", flush=True)
    CARRIED.mkdir(parents=True, exist_ok=True)
    for old in CARRIED.iterdir():
        old.unlink()
    archive = wheels.parent / ARCHIVE
    unpacked = write_archive(files, archive)
    parts = split(archive, CARRIED, round(options.part_mib * (1 << 20)))
    archive.unlink()
    print(f"pack: {len(files):,} files, {unpacked:,} bytes; copy the checkout and these to the GPU machine:")
    for path in (*parts, CARRIED / SUMS):
        print(f"  {path.relative_to(HARNESS_ROOT)}  {path.stat().st_size:,} bytes")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=CARRIED.with_name("wheels"), help="folder of the wheels")
    parser.add_argument("--part-mib", type=float, default=55, help="size of a part in MiB (default: %(default)s)")
    parser.add_argument("--whole", action="store_true", help="keep files that one Hopper GPU does not use")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _pack(options))


if __name__ == "__main__":
    sys.exit(main())
