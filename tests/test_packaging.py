"""The package: its dependencies are those of `make setup`, it installs, and what is installed runs a leg."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from runs.environment import HARNESS_VERSION
from tests.conftest import ROOT
from tests.support.legs import arguments

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[=<>;\s]", line)[0].lower() for line in lines}


def locked(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", "\n".join(lines).replace("_", "-")))


def test_the_dependencies_are_those_of_make_setup() -> None:
    harness = [line for line in (ROOT / "requirements" / "harness.in").read_text().splitlines() if line[:1] != "#"]
    assert names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["dev"]) == names(harness)
    assert PROJECT["version"] == HARNESS_VERSION


@pytest.mark.parametrize(("extra", "lock"), [("cpu", "cpu.lock"), ("gpu", "gpu.in")])
def test_an_extra_names_the_locked_engine(extra: str, lock: str) -> None:
    versions = locked(lock)
    for requirement in PROJECT["optional-dependencies"][extra]:
        name, version = requirement.split("==")
        if name != "torch" or extra == "gpu":  # the CPU's torch is named in scripts/setup.sh
            assert versions[name] == version
        else:
            assert f"torch=={version}" in (ROOT / "scripts" / "setup.sh").read_text()


@pytest.mark.long
def test_what_pip_installs_runs_a_leg(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    (source / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(source)], check=True)
    # What it depends on is taken from this environment: to fetch it again would take many minutes.
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = home / "bin" / "mlperf-llama-vllm"
    told = subprocess.run([str(command), "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout.split()[-1] == HARNESS_VERSION
    leg = subprocess.run(
        [str(command), *map(str, arguments("Offline", tmp_path / "leg"))],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert leg.returncode == 0, leg.stdout + leg.stderr
    assert "VALID" in leg.stdout
    embedded = subprocess.run(
        [str(command), "run", "--scenario", "Offline", "--engine", "dummy", "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert embedded.returncode == 0, embedded.stderr  # configs/ and user.conf are in the package
