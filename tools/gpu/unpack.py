"""Install the archive of pack.py on the GPU machine: `python3 tools/gpu/unpack.py`, repeated as parts arrive.

Parts in .gpu/parts are copied to a directory beside the target, so they may arrive one by one. Exit codes: 0 installed,
4 parts are missing or damaged. The program needs only the standard library. GPU_SITE is the target directory, and
GPU_PARTS the directory of the parts.
"""

import compileall
import hashlib
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

CARRIED = Path(__file__).resolve().parents[2] / ".gpu" / "parts"
SUMS, COMPLETE = "SHA256SUMS", ".complete"
INSTALLED, FAILED = 0, 4
_CHUNK = 1 << 20


def install(carried: Path, site: Path) -> int:
    """Install the archive if all its parts exist; return the exit code."""
    kept, complete = site.with_name(f"{site.name}.parts"), site / COMPLETE
    installed = complete.read_text() if complete.exists() else None
    if (carried / SUMS).exists():
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(carried / SUMS, kept / SUMS)
    if not (kept / SUMS).exists():
        if installed is None:
            return _say(f"no parts in {carried}: copy the parts and {SUMS} to this directory", FAILED)
        return _say(f"{site} is installed", INSTALLED)
    *parts, (digest, archive) = (line.split() for line in (kept / SUMS).read_text().splitlines())
    if installed == digest:
        return _say(f"{site} is installed", INSTALLED)
    missing = [name for wanted, name in parts if not _keep(name, wanted, carried, kept)]
    if missing:
        return _say(f"missing or damaged: {', '.join(missing)}", FAILED)
    archive_path = kept / archive
    with archive_path.open("wb") as stream:
        for _, name in parts:
            stream.write((kept / name).read_bytes())
    if _sha256(archive_path) != digest:
        return _say("the parts do not belong together: pack again", FAILED)
    started = time.monotonic()
    shutil.rmtree(site, ignore_errors=True)
    with tarfile.open(archive_path) as content:
        content.extractall(site, filter="tar")
    archive_path.unlink()
    # Compile, so that imports are faster. Some packages have files for other Python versions, which do not compile.
    compileall.compile_dir(site, quiet=2, workers=0)
    complete.write_text(digest)
    return _say(f"installed in {site} in {time.monotonic() - started:.0f} s", INSTALLED)


def _keep(name: str, digest: str, carried: Path, kept: Path) -> bool:
    """Copy an undamaged part to the kept parts if it is missing; return whether it exists now."""
    if (kept / name).exists() and _sha256(kept / name) == digest:
        return True
    if not (carried / name).exists() or _sha256(carried / name) != digest:
        return False
    shutil.copy(carried / name, kept / name)
    return True


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _say(line: str, code: int) -> int:
    print(f"unpack: {line}", file=sys.stderr if code else sys.stdout, flush=True)
    return code


if __name__ == "__main__":
    parts = Path(os.environ.get("GPU_PARTS", CARRIED))
    sys.exit(install(parts, Path(os.environ.get("GPU_SITE", "/opt/gpu-site"))))
