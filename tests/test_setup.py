"""`make setup` and `make published`: what they are made for, refused before anything is removed. Without a network."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.environment import HARNESS_ROOT
from runs.errors import ExitCode
from tests.conftest import ROOT

SetUp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the set-up reads of a checkout."""
    folder = tmp_path / "checkout"
    for name in ("scripts", "requirements", "runs"):
        shutil.copytree(HARNESS_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def set_up(checkout: Path) -> SetUp:
    def run(*arguments: str, python: str | Path = sys.executable, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHON": str(python), "PIP_NO_INDEX": "1", **more}
        environment.pop("PYTHONPATH", None)
        return subprocess.run(
            ["sh", "scripts/setup.sh", *arguments], cwd=checkout, env=environment, capture_output=True, text=True
        )

    return run


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An interpreter with nothing installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_what_cannot_be_set_up_is_refused_before_anything_is_removed(
    set_up: SetUp, checkout: Path, bare_python: Path, tmp_path: Path
) -> None:
    refusals = {
        ("none",): "VLLM=none is not cpu, gpu or installed",
        ("installed",): f"{bare_python} has no vLLM and torch",
    }
    for arguments, words in refusals.items():
        done = set_up(*arguments, python=bare_python)
        assert done.returncode == ExitCode.REFUSED
        assert words in done.stderr
    done = set_up(python=tmp_path / "none")
    assert done.returncode == ExitCode.REFUSED
    assert "is no Python 3.11 or newer" in done.stderr
    assert not (checkout / ".venv").exists()


def test_accelerators_without_a_locked_vllm_are_not_taken_for_none(set_up: SetUp, checkout: Path) -> None:
    (checkout / "runs" / "accelerators.py").write_text('def accelerators(): return [{"vendor": "AMD"}] * 8\n')
    done = set_up()
    assert done.returncode == ExitCode.REFUSED
    assert "accelerators of AMD, for which no vLLM is locked here: make setup VLLM=installed" in done.stderr


@pytest.mark.long
def test_an_environment_around_what_is_installed(
    set_up: SetUp, checkout: Path, bare_python: Path, tmp_path: Path
) -> None:
    """An interpreter that has everything, this one's packages, stands for a vendor's."""
    vendors = Path(sysconfig.get_path("purelib", vars={"base": str(bare_python.parents[1])}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name not in ("pip", "installed.pth") and not path.name.startswith(("pip-", "setuptools", "_distutils")):
            (vendors / path.name).symlink_to(path)
    done = set_up("installed", python=bare_python)
    assert done.returncode == 0, done.stderr
    python = checkout / ".venv" / "bin" / "python"
    ask = "import torch, vllm, mlperf_loadgen, click; print(vllm.__file__, click.__file__)"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout.splitlines()[-1].count(str(vendors)) == 2
    stamp = (checkout / ".venv" / "stamp").stat()
    # Later targets name neither kind nor interpreter, and leave the environment alone.
    assert set_up(python="").stdout == ""
    assert (checkout / ".venv" / "stamp").stat().st_mtime_ns == stamp.st_mtime_ns


@pytest.mark.slow
def test_what_is_lacking_is_asked_for_and_nothing_else(set_up: SetUp, bare_python: Path) -> None:
    vendors = Path(sysconfig.get_path("purelib", vars={"base": str(bare_python.parents[1])}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name.startswith(("vllm", "torch")):
            (vendors / path.name).symlink_to(path)
    done = set_up("installed", python=bare_python)
    assert done.returncode != 0
    assert "mlcommons-loadgen==6.0.17" in done.stderr  # the first of the list; there is no index to have it from


@pytest.mark.vllm
def test_the_vllm_of_a_cpu_environment_starts() -> None:
    environment = HARNESS_ROOT / ".venv"
    if not (environment / "stamp").is_file() or not (environment / "stamp").read_text().startswith("cpu "):
        pytest.skip("this checkout's environment is not made by `make setup` for a CPU")
    done = subprocess.run([str(environment / "bin" / "vllm"), "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1].endswith("+cpu")


SYSTEM = "XE8640_4xH100_vLLM"
PUBLISHED = (
    f"closed/RedHat/results/{SYSTEM}/llama3.1-8b/Offline/performance/run_1/mlperf_log_detail.txt",
    f"closed/RedHat/compliance/{SYSTEM}/llama3.1-8b/Server/TEST06/verify_accuracy.txt",
    f"closed/RedHat/systems/{SYSTEM}.json",
    "closed/Intel/measurements/1-node-2S-GNR_128C/llama3_1-8b/Server/user.conf",
    "closed/Intel/results/1-node-1x-BMG-Pro-B60-Dual/llama3.1-8b-edge/Offline/accuracy/accuracy.txt",
)
NOT_WANTED = (
    f"closed/RedHat/results/{SYSTEM}/llama2-70b-99/Offline/accuracy/accuracy.txt",
    f"closed/RedHat/code/{SYSTEM}/llama3.1-8b/main.py",
    f"closed/RedHat/measurements/{SYSTEM}/llama3.1-8b/Offline/mlperf.conf",
    "closed/Intel/systems/another.json",
    "closed/NVIDIA/results/H200/llama3.1-8b/Offline/accuracy/accuracy.txt",
    "README.md",
)


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """A repository of a few results, as git serves one: its URL and its commit."""
    folder = tmp_path / "remote"
    for name in (*PUBLISHED, *NOT_WANTED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    git = ["git", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "results"]):
        subprocess.run([*git, *words], check=True)
    for setting in ("allowFilter", "allowAnySHA1InWant"):
        subprocess.run([*git, "config", f"uploadpack.{setting}", "true"], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return folder.as_uri(), done.stdout.strip()


def fetch_published(cache: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "MLPERF_LLAMA_VLLM_CACHE": str(cache)}
    command = ["sh", str(ROOT / "scripts" / "fetch_published.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_tests_read_is_fetched_and_nothing_else(remote: tuple[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert fetch_published(cache, *remote).returncode == 0
    (found,) = cache.iterdir()
    assert {path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()} == set(PUBLISHED)
    again = fetch_published(cache, "file:///nowhere", "HEAD")
    assert (again.returncode, "is there already" in again.stdout) == (0, True)


def test_nothing_is_left_of_what_was_not_fetched_whole(remote: tuple[str, str], tmp_path: Path) -> None:
    for url, commit in ((remote[0], "0" * 40), ("file:///nowhere", remote[1])):
        done = fetch_published(tmp_path / "cache", url, commit)
        assert done.returncode != 0
        assert done.stderr
        assert list((tmp_path / "cache").iterdir()) == []
