"""This harness: its directory, its version, and its state in git."""

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Any

from runs.processes.child import run_program

HARNESS_ROOT = Path(__file__).resolve().parent.parent
IN_CHECKOUT = (HARNESS_ROOT / ".git").exists()  # .git is a directory, or a file in a linked work tree
HARNESS_VERSION = "0.1.0"
IN_WHEEL = not (HARNESS_ROOT / "pyproject.toml").is_file()
NAME = "mlperf-llama-vllm" if IN_WHEEL else "main.py"
# The words that start the program, for messages. main.py sets the variable to the words that the user typed.
PROGRAM = os.environ.get("MLPERF_LLAMA_VLLM_PROGRAM") or (NAME if IN_WHEEL else f"python {NAME}")
# The fix that installs what a run needs. The package is on no registry, so a wheel is installed from a clone.
INSTALL = "run `pip install '.[vllm]'` in a clone of the harness" if IN_WHEEL else "run `make setup`"

# Environment variables that make git use a repository other than the repository of the directory.
_OTHER_REPOSITORY = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"})


def harness_facts() -> dict[str, Any]:
    """Return version and git state of this harness."""
    facts: dict[str, Any] = {"version": HARNESS_VERSION, "git_commit": None, "git_changed": None}
    if not IN_CHECKOUT:  # an installed package may be inside an unrelated repository
        return facts
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        facts["git_commit"] = git(HARNESS_ROOT, "rev-parse", "HEAD").decode().strip()
        facts["git_changed"] = bool(git(HARNESS_ROOT, "status", "--porcelain", "--untracked-files=no").strip())
    return facts


def git(folder: Path, *arguments: str) -> bytes:
    """Return the output of a git command in a folder.

    The command takes no lock, because a killed command would leave it. The checkout may belong to another user.
    Variables that name a repository, as under a git hook, are ignored, and so are changed file modes.

    Raises:
        OSError, SubprocessError: If git is missing or fails.
    """
    settings = ("-c", f"safe.directory={HARNESS_ROOT}", "-c", "core.fileMode=false")
    command = ["git", "--no-optional-locks", *settings, "-C", str(folder), *arguments]
    around = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    done = run_program(command, env=around, timeout_s=60)
    done.check_returncode()
    return done.stdout


def module_path() -> dict[str, str]:
    """Return the environment variable with which a child process finds the modules of the harness."""
    paths = [str(HARNESS_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
