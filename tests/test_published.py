"""`make published`: the results that tests read are fetched from a repository of many, and nothing else of it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SYSTEM = "XE8640_4xH100_vLLM"
WANTED = (
    f"closed/RedHat/results/{SYSTEM}/llama3.1-8b/Offline/performance/run_1/mlperf_log_detail.txt",
    f"closed/RedHat/compliance/{SYSTEM}/llama3.1-8b/Server/TEST06/verify_accuracy.txt",
    f"closed/RedHat/systems/{SYSTEM}.json",
    "closed/Intel/measurements/1-node-2S-GNR_128C/llama3_1-8b/Server/user.conf",
    "closed/Intel/results/1-node-1x-BMG-Pro-B60-Dual/llama3.1-8b-edge/Offline/accuracy/accuracy.txt",
)
OTHERS = (
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
    for name in (*WANTED, *OTHERS):
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


def fetch(cache: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "MLPERF_LLAMA_VLLM_CACHE": str(cache)}
    command = ["sh", str(ROOT / "scripts" / "fetch_published.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_tests_read_is_fetched_and_nothing_else(remote: tuple[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert fetch(cache, *remote).returncode == 0
    (found,) = cache.iterdir()
    assert {path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()} == set(WANTED)
    again = fetch(cache, "file:///nowhere", "HEAD")
    assert (again.returncode, "is there already" in again.stdout) == (0, True)


def test_nothing_is_left_of_what_was_not_fetched_whole(remote: tuple[str, str], tmp_path: Path) -> None:
    for url, commit in ((remote[0], "0" * 40), ("file:///nowhere", remote[1])):
        done = fetch(tmp_path / "cache", url, commit)
        assert done.returncode != 0
        assert done.stderr
        assert list((tmp_path / "cache").iterdir()) == []
