"""The audit.config templates: they have the settings of the audits of this harness, and each one runs."""

from pathlib import Path

import pytest

from compliance.audits.base import RunSpec
from compliance.audits.discovery import AUDITS
from compliance.audits.mode_comparison import DrawnRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.conf_lines import read_stored
from runs.loadgen.user_conf import check_conf, read_conf_text
from runs.record.layout import RunDir
from tests.conftest import ROOT, RunMain
from tests.support.published import CHECKOUT, needs_checkout
from tests.support.runs.audit_runs import request_of
from tests.support.runs.run_commands import arguments

FOLDER = ROOT / "configs" / "audits"
REFERENCE = "output_caching-reference"
DRAWN = 720381539243781796  # seed of official audits; those of this harness draw one


def spec_of(name: str, scenario: Scenario = "Offline") -> RunSpec:
    """Return the run of an audit that a template is for."""
    test = AUDITS[name.removesuffix("-reference")]
    request = request_of(test.name, scenario=scenario, loaded_count=13_368)
    if test.existing == ("accuracy", "performance"):
        request = DrawnRequest(**dict(request), log_seed=DRAWN)
    spec = test.runs(request)[-1]
    if name == "output_caching":  # the repeating runs follow from the reference
        repeat = {"performance_issue_unique": 0, "performance_issue_same": 1, "performance_issue_same_index": 3}
        return RunSpec("repeat", settings=dict(spec.settings) | repeat, scenario=scenario)
    return spec


def test_each_template_belongs_to_an_audit() -> None:
    assert {path.stem for path in FOLDER.glob("*.config")} <= {*AUDITS, REFERENCE}
    assert (ROOT / "audit.config").samefile(FOLDER / "TEST04.config")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.config")))
def test_each_template_has_the_settings_of_its_audit(name: str, run_main: RunMain, tmp_path: Path) -> None:
    path, spec = FOLDER / f"{name}.config", spec_of(name)
    settings = read_stored(path)
    assert {setting.model for setting in settings} == {setting.scenario for setting in settings} == {"*"}
    assert {setting.key: int(setting.value) for setting in settings} == dict(spec.settings)
    for benchmark in BENCHMARKS.values():
        for scenario in benchmark.scenarios:
            judged = check_conf(read_conf_text(path, ""), path, benchmark, scenario, audit=True)
            assert (judged.problems, judged.note) == ([], "")
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out, "--dummy-ttft-ms", 250, "--audit-conf", path))
    assert finished.code == 0, finished.stderr
    RunArtifacts(RunDir(out), spec=spec).check_engaged()


@needs_checkout
def test_official_audit_configurations_are_accepted() -> None:
    paths = sorted(Path(CHECKOUT, "compliance").glob("**/audit.config"))
    assert {path.relative_to(CHECKOUT).parts[1] for path in paths} >= {"TEST01", "TEST04", "TEST06", "TEST07", "TEST09"}
    for path in paths:
        for benchmark in BENCHMARKS.values():
            for scenario in benchmark.scenarios:
                judged = check_conf(read_conf_text(path, ""), path, benchmark, scenario, audit=True)
                assert judged.problems == []
                assert ("test0" in judged.note) == ("test0" in path.read_text())
