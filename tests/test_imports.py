"""Modules that are imported by name, which import-linter's contracts in pyproject.toml do not see."""

import tomllib

from runs.record.engines.engine_records import BUILT_IN_ENGINES
from tests.conftest import ROOT


def test_dynamic_imports_are_in_the_listed_modules_only() -> None:
    packages = ("compliance", "qsl", "runs", "scenarios", "sut")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    calls = ("import_module(", "load_object(")
    assert {str(path.relative_to(ROOT)) for path in files if any(call in path.read_text() for call in calls)} == {
        "compliance/audits/discovery.py",  # audits; those that a command names are counted
        "compliance/sources.py",  # the module that judges an input
        *("compliance/trees/source.py", "compliance/mlperf_endpoints/submission.py"),  # the comparison with --runs
        "compliance/judge/rule.py",  # the catalog of all rules
        "qsl/dataset_kind.py",  # datasets
        "runs/extensions.py",  # engines and audits of other packages
        "runs/machine/accelerators.py",  # libraries of vendors
        *("runs/record/engines/engine_records.py", "sut/engines.py"),  # kinds of engines
        "scenarios/dispatch.py",  # commands
        *("sut/vllm/core_process.py", "sut/vllm/vllm_kind.py"),  # vLLM
    }


def test_the_contract_on_kinds_of_engines_names_each_built_in_engine() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [contract] = [contract for contract in contracts if contract["name"] == "kinds of engines do not know each other"]
    packages = {".".join(target.split(".")[:2]) for target in BUILT_IN_ENGINES.values()}
    assert set(contract["modules"]) == packages
