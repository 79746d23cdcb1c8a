"""The Python API: its examples, its errors, and its wheel."""

import doctest
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import mlperf_llama_vllm as api
from runs.bench.bench_record import BenchRecord, Conditions, write_bench
from tests.conftest import ROOT
from tests.support.runs.recorded import RESULTS, recorded


@pytest.fixture
def result() -> Path:
    return recorded() / RESULTS["Offline"]


def test_docstring_examples_are_correct(result: Path) -> None:
    done = doctest.testmod(api, extraglobs={"result": result})
    assert done.failed == 0
    assert done.attempted >= 10


def test_each_public_name_has_a_docstring() -> None:
    for name in api.__all__:
        assert getattr(api, name).__doc__, name
    assert {name for name in vars(api) if getattr(vars(api)[name], "__module__", "") == api.__name__} >= (
        set(api.__all__) - {"HarnessError"}
    )


def test_an_opened_run_and_its_verdict_agree(result: Path) -> None:
    run = api.open_run(result / "accuracy")
    assert (run.mode, run.verdict, run.numbers) == ("AccuracyOnly", "DONE", {})
    assert run.manifest is not None
    (verdict,) = api.verify(result)
    assert (verdict.outcome, verdict.exit_code) == ("PASS", 0)
    (verdict,) = api.verify(result, official=True)
    assert (verdict.outcome, verdict.exit_code) == ("FAIL", 1)
    assert verdict.reasons
    violated = {finding["rule"] for finding in verdict.findings if finding["severity"] == "error"}
    assert violated <= api.rules().keys()
    with pytest.raises(api.HarnessError, match="in_round 'v9': unknown round"):
        api.verify(result, in_round="v9")


def test_a_bench_is_read(tmp_path: Path) -> None:
    conditions = Conditions(equal={}, system={})
    record = BenchRecord(
        status="running", label="a", command=[], target="m", conditions=conditions, limits=None, percentile=None,
        percentile_reason="",
    )  # fmt: skip
    write_bench(tmp_path, record)
    assert api.read_bench(tmp_path)["label"] == "a"


def test_a_run_is_started_and_a_refused_one_raises(tmp_path: Path) -> None:
    options = ("--scenario", "Offline", "--engine", "dummy", "--output-log-dir", tmp_path / "run")
    assert api.run(*options).verdict == "VALID"
    with pytest.raises(api.HarnessError, match="already has a run") as refused:
        api.run(*options)
    assert refused.value.exit_code == 3
    assert "new directory" in refused.value.fix


# The wheel ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of a copy of this clone, because a build writes into the directory of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True)
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file():
            (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "clone" / name).write_bytes((ROOT / name).read_bytes())
    pip("wheel", "--no-build-isolation", "--no-deps", "-w", folder, folder / "clone")
    (path,) = folder.glob("*.whl")
    return path


def pip(*arguments: object) -> None:
    words = [sys.executable, "-m", "pip", *map(str, arguments), "-q", "--no-index", "--disable-pip-version-check"]
    subprocess.run(words, check=True)


def test_the_wheel_contains_one_package_with_all_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "mlperf_llama_vllm",
        f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info",
    }
    inside = {name.partition("/")[2] for name in names}
    folders = ("runs", "sut", "qsl", "compliance", "scenarios", "configs")
    wanted = {path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()}
    wanted = {str(path.relative_to(ROOT)) for path in wanted if "__pycache__" not in path.parts}
    assert inside >= wanted | {"main.py", "user.conf", "audit.config"}
    assert not any(name.startswith(("tests/", "tools/", "docs/")) or name.endswith((".sh", ".pyc")) for name in inside)
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert not any(line.split()[1].startswith(("vllm", "torch")) for line in needed)


def test_an_installed_wheel_ignores_user_modules_of_the_same_names(wheel: Path, result: Path, tmp_path: Path) -> None:
    """Its packages are found although the directory of the user's script has modules with their names."""
    pip("install", "--no-deps", "--target", tmp_path / "site", wheel)
    assert {path.name for path in (tmp_path / "site").glob("[!_]*") if ".dist-info" not in path.name} == {
        "bin", "mlperf_llama_vllm",
    }  # fmt: skip
    (tmp_path / "work" / "runs").mkdir(parents=True)
    for name in ("main.py", "compliance.py", "runs/__init__.py"):
        (tmp_path / "work" / name).write_text("raise SystemExit('the user's module')")
    (tmp_path / "work" / "program.py").write_text(
        "import sys, mlperf_llama_vllm as api\nprint(api.ROOT, api.verify(sys.argv[1])[0].outcome, sys.path[0])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def words_of(*command: object) -> list[str]:
        words, folder = [sys.executable, *map(str, command)], tmp_path / "work"
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    run = shutil.copytree(result / "performance/run_1", tmp_path / "run_1")
    root, outcome, first = words_of("program.py", run)
    assert (root, outcome) == (str(tmp_path / "site/mlperf_llama_vllm"), "PASS")
    assert Path(first) == tmp_path / "work"
    assert words_of("-m", "mlperf_llama_vllm", "--help")[1] == "mlperf-llama-vllm"
    assert words_of(tmp_path / "site/bin/mlperf-llama-vllm", "verify", run, "-q") == []
