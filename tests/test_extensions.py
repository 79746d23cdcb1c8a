"""Engines and audits of other packages: the example package as pip installs it, and packages that are refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mlperf_llama_vllm as api
from compliance.audits.base import AuditTest
from runs.errors import ExitCode, InputError, SetupError
from runs.extensions import AUDIT_GROUP, ENGINE_GROUP, find_extension, find_extensions, load_extensions
from runs.record.manifest import read_manifest
from sut.engine_kind import EngineKind
from tests.conftest import ROOT

CONF = "*.Offline.min_duration = 1\n*.Offline.min_query_count = 8\n*.Offline.target_qps = 9\n"
ENGINE = """
from pydantic import BaseModel
from sut.engine_kind import EngineKind

class Options(BaseModel):
    {option}: int = 1

class Kind(EngineKind):
    name = "mine"
    help = "of a test"
    options = Options

    def plan(self, options, run): ...

    def make(self, plan): ...
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the example package."""
    folder = tmp_path_factory.mktemp("echo")
    shutil.copytree(ROOT / "examples" / "echo", folder / "source")
    words = ("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", folder / "site")
    done = subprocess.run([sys.executable, "-m", "pip", *words, folder / "source"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def with_packages(site: Path, cwd: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run main.py with the packages of a directory."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, str(ROOT / "main.py"), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)


def add_package(site: Path, name: str, code: str, entry: str = "mine", group: str = ENGINE_GROUP) -> None:
    """Write a package with one module and one entry point, as an installation leaves it."""
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {name}:Kind\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory of packages, on the path of this process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    find_extensions.cache_clear()
    before = {*sys.modules}
    yield tmp_path
    find_extensions.cache_clear()
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
            del sys.modules[name]


def test_the_engine_of_a_package_runs_and_its_version_is_in_the_manifest(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "user.conf").write_text(CONF)
    load = ("--scenario", "Offline", "--total-sample-count", "8", "--user-conf", tmp_path / "user.conf")
    done = with_packages(installed, tmp_path, *load, "--engine", "echo", "--output-log-dir", tmp_path / "run")
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["observed"]["engine_package"] == {"name": "mlperf-echo", "version": "1.0.0"}
    assert manifest["engine"]["configuration"] == {"delay_ms": 2.0, "slots": 0}
    assert np.all(api.read_requests(tmp_path / "run" / "requests.jsonl")["output_tokens"] == 128)
    # Without the package, the requirements for vLLM apply.
    with pytest.raises(InputError, match="install package mlperf-echo"):
        read_manifest(tmp_path / "run" / "manifest.json")


def test_the_audit_of_a_package_runs_and_its_version_is_in_the_record(installed: Path, tmp_path: Path) -> None:
    words = ("--test", "sample_lengths", "--scenario", "Offline", "--engine", "echo", "--output-log-dir", tmp_path)
    done = with_packages(installed, tmp_path, "audit", *words)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    record = json.loads((tmp_path / "audit" / "sample_lengths" / "audit_sample_lengths.json").read_text())
    assert record["package"] == {"name": "mlperf-echo", "version": "1.0.0"}
    assert [finding["rule"] for finding in record["findings"]] == ["sample-lengths"]


def test_an_unusable_package_ends_only_the_commands_that_name_it(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    add_package(site, "broken", "import a_module_that_is_missing")
    run = ("run", "--scenario", "Offline", "--dry-run", "--engine")
    refused = with_packages(site, tmp_path, *run, "mine")
    assert refused.returncode == ExitCode.REFUSED
    assert "engine mine of package broken 1.0" in refused.stderr
    assert "a_module_that_is_missing" in refused.stderr
    assert with_packages(site, tmp_path, *run, "dummy").returncode == ExitCode.OK
    assert "engine mine of package broken 1.0" in with_packages(site, tmp_path, "doctor").stdout


@pytest.mark.parametrize(
    ("code", "entry", "reason"),
    [
        ("raise SystemExit(5)", "mine", "SystemExit"),
        ("Kind = 3", "mine", "not a subclass of sut.engine_kind.EngineKind"),
        ("from sut.engine_kind import EngineKind\nclass Kind(EngineKind): ...", "mine", "incomplete"),
        (ENGINE.format(option="mine_size"), "yours", "the class has the name mine"),
        (ENGINE.format(option="size"), "mine", "the option size must begin with mine_"),
        (ENGINE.format(option="mine_size"), "dummy", "the harness has an engine with this name"),
    ],
)
def test_an_unusable_engine_is_refused_with_its_package(code: str, entry: str, reason: str, site: Path) -> None:
    add_package(site, "package_of_a_test", code, entry)
    usable, faults = load_extensions(ENGINE_GROUP, EngineKind, ["dummy"])
    assert not usable
    assert "package_of_a_test 1.0" in faults[entry].message
    assert reason in faults[entry].message
    assert faults[entry].exit_code == ExitCode.REFUSED


def test_an_engine_that_two_packages_declare_is_refused(site: Path) -> None:
    for name in ("first_package", "second_package"):
        add_package(site, name, ENGINE.format(option="mine_size"))
    usable, faults = load_extensions(ENGINE_GROUP, EngineKind, ())
    assert not usable
    assert "first_package and second_package" in faults["mine"].message


def test_an_engine_with_options_of_its_own_is_usable(site: Path) -> None:
    add_package(site, "package_of_a_test", ENGINE.format(option="mine_size"))
    usable, faults = load_extensions(ENGINE_GROUP, EngineKind, ["dummy"])
    assert not faults
    assert usable["mine"].options.model_fields.keys() == {"mine_size"}


def test_an_audit_may_have_options_of_the_audits_of_the_harness(site: Path) -> None:
    code = """
from compliance.audits.base import AuditTest
from compliance.audits.options import AuditOptions

class Options(AuditOptions):
    threshold: float = 0.1
    size: int = 1

class Kind(AuditTest):
    name, summary, options = "mine", "of a test", Options
    def runs(self, request): ...
    def verify(self, request, runs): ...
"""
    add_package(site, "package_of_a_test", code, group=AUDIT_GROUP)
    _, faults = load_extensions(AUDIT_GROUP, AuditTest, (), {"test", "ref", "run", "threshold"})
    assert "the option size must begin with mine_" in faults["mine"].message
    usable, _ = load_extensions(AUDIT_GROUP, AuditTest, (), {"test", "ref", "run", "threshold", "size"})
    assert isinstance(usable["mine"], AuditTest)


def test_a_missing_extension_is_refused() -> None:
    with pytest.raises(SetupError, match="unknown engine 'absent'"):
        find_extension(ENGINE_GROUP, "absent")
