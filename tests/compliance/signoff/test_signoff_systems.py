"""Comparison of systems: both modes, an audit, a bundle and its changed options; and forged runs."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.rule import find_rule
from compliance.results.find_results import find_results
from compliance.results.policy import judge_run
from compliance.results.run_evidence import RunEvidence
from compliance.results.scoring import with_scorer
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence
from compliance.signoff.harness import FASTER_FLAG, caching, one_system_in_both_modes, pace
from compliance.signoff.judge import sign_off
from compliance.signoff.provenance import foreign_runs, one_bundle
from compliance.submission.build import Submission
from runs.loadgen.detail_log import read_detail
from runs.machine.environment import ACCELERATOR_FACTS
from runs.record.layout import CampaignDir, ResultDir, RunDir
from tests.signoff.forge.faults import inject, set_manifest
from tests.signoff.forge.manifest_faults import shorten_requests
from tests.support.files.editing import read_records, reseal, set_at, set_record, write_records
from tests.support.runs.recorded import recorded
from tests.support.runs.signoff_fixtures import FrozenRuns, evidence, label_of, slugs

RUNS = ("ss-1", "ss-acc", "srv-1", "srv-acc")
ANOTHER = {**dict.fromkeys(("vendor", *ACCELERATOR_FACTS)), "name": "another"}  # an accelerator
POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"
Values = dict[str, Any]  # key in the manifest → value


def edited_copy(runs: FrozenRuns, folder: Path, name: str, values: Values) -> Path:
    """Copy a run with other values in its record; `later` moves its times by this many ns."""
    copy = RunDir(runs.copy(folder / name, name))
    content = json.loads(copy.manifest.read_bytes())
    set_record(copy, {place: content[place] + value if values is LATER else value for place, value in values.items()})
    return copy.root


# A host of another name; with an equal boot ID it would be a renamed host
ELSEWHERE = {"observed.host.hostname": "another", "observed.host.boot_id": "another"}
LATER = dict.fromkeys(("start_time_ns", "end_time_ns"), 2 * 365 * 86_400 * 10**9)


def test_two_scenarios_of_one_system_have_no_findings(runs: FrozenRuns) -> None:
    assert list(one_bundle([evidence(path) for path in runs.paths(*RUNS)])) == []


@pytest.mark.parametrize(
    ("changed", "values", "slug"),
    [
        ("srv-1", ELSEWHERE, "several_systems"),
        ("srv-acc", {"observed.host.cpu": "another"}, "several_systems"),
        ("srv-1", {"observed.software.torch": "1.0"}, "several_systems"),
        ("srv-acc", {"observed.harness.git_commit": "0" * 40}, "several_systems"),
        ("srv-1", {"observed.model.sha256": {"model.safetensors": "0" * 64}}, "several_systems"),
        ("srv-acc", {"plan.dataset_sha256": "0" * 64}, "several_systems"),
        ("srv-1", {"observed.loadgen.extension_sha256": "0" * 64}, "several_systems"),
        ("srv-1", {"observed.accelerators": [ANOTHER]}, "several_systems"),
        ("srv-1", {"plan.sampling.temperature": 0.7}, "several_systems"),
        ("srv-acc", LATER, "far_apart"),
    ],
)
def test_scenarios_of_two_systems_are_reported(
    runs: FrozenRuns, tmp_path: Path, changed: str, values: Values, slug: str
) -> None:
    """Each scenario alone may be consistent."""
    names = ("off-1", "off-acc", "srv-1", "srv-acc")
    paths = [edited_copy(runs, tmp_path, name, values) if name == changed else runs(name) for name in names]
    reported_slugs = {finding.slug for finding in one_bundle([evidence(path) for path in paths])}
    assert reported_slugs == {slug}


def test_runs_of_patches_must_share_scenario_and_system_of_the_bundle(runs: FrozenRuns, tmp_path: Path) -> None:
    bundle = [evidence(path) for path in runs.paths("off-1", "off-2", "off-acc")]
    first, second, accuracy, *foreign = (
        evidence(path) for path in runs.paths("off-1", "off-fast-1", "off-acc", "ss-1", "ss-fast-1")
    )
    assert foreign_runs([first, second, accuracy], bundle) == ""
    assert "scenario" in foreign_runs(foreign, bundle)
    elsewhere = evidence(edited_copy(runs, tmp_path, "off-fast-1", ELSEWHERE))
    assert "host.hostname" in foreign_runs([first, elsewhere], bundle)


@pytest.mark.parametrize(
    ("slug", "values"),
    [
        ("other_harness", {"observed.harness.git_commit": "a" * 40}),
        ("other_harness", {"observed.harness.version": "9"}),
        ("far_apart", LATER),
    ],
)
def test_ineligible_candidate_runs_are_flagged(runs: FrozenRuns, tmp_path: Path, slug: str, values: Values) -> None:
    ref, cand = runs.paths("off-1", "off-2", "off-acc"), [edited_copy(runs, tmp_path, "off-fast-1", values)]
    verdict = sign_off("patch", ref, [*cand, runs("off-fast-2")], Claim(levers=["tpot_ms"]))
    reported = {finding.slug: finding.severity for finding in verdict.all_findings}
    assert (reported[slug], verdict.outcome) == ("warning", "FLAG")


@pytest.mark.parametrize(
    ("pool_tokens", "variable", "severity"),
    [
        (80_444, {}, None),
        (80_284, {}, None),  # free memory differs with the other users of the accelerator's memory
        (60_333, {}, "warning"),
        (60_333, {"VLLM_CPU_KVCACHE_SPACE": "3"}, "warning"),  # a quarter of the free memory
        (80_444, {"OMP_NUM_THREADS": "1"}, "error"),
    ],
)
def test_different_free_memory_is_not_another_system(
    runs: FrozenRuns, tmp_path: Path, pool_tokens: int, variable: dict[str, str], severity: str | None
) -> None:
    accuracy = RunDir(runs.copy(tmp_path / "accuracy", "vllm-off-acc"))
    accuracy.engine_log.write_text(accuracy.engine_log.read_text().replace("80,444 tokens", f"{pool_tokens:,} tokens"))
    for name, value in variable.items():
        set_manifest(accuracy, f"engine.configuration.environment.{name}", value)
    findings = list(one_system_in_both_modes([evidence(runs("vllm-off")), evidence(accuracy.root)]))
    assert {finding.severity for finding in findings if finding.rule == "H-1/other_path"} == (
        {severity} if severity else set()
    )


def test_a_model_in_another_folder_is_compared_by_its_files(runs: FrozenRuns, tmp_path: Path) -> None:
    accuracy = RunDir(runs.copy(tmp_path / "accuracy", "vllm-off-acc"))
    for place in ("plan.model_path", "engine.configuration.model"):
        set_manifest(accuracy, place, "/another/folder")
    findings = [*one_system_in_both_modes([evidence(runs("vllm-off")), evidence(accuracy.root)])]
    assert [finding for finding in findings if finding.rule == "H-1/other_path"] == []


def test_a_performance_run_faster_than_its_accuracy_run_is_flagged(runs: FrozenRuns, tmp_path: Path) -> None:
    assert list(pace(evidence(runs("ss-1")), evidence(runs("ss-acc")))) == []
    assert list(pace(evidence(runs("ss-1")), evidence(runs("ss-fast-acc")))) == []  # slower than its accuracy run
    (reason,) = pace(evidence(runs("ss-fast-1")), evidence(runs("ss-acc")))
    assert (label_of(reason), reason.slug) == ("FLAG", "faster_than_accuracy")
    findings = list(pace(evidence(runs("ss-null")), evidence(runs("ss-acc"))))
    assert {label_of(finding) for finding in findings} == {"FAIL"}
    half = runs.copy(tmp_path / "half", "srv-1")
    shorten_requests(RunDir(half), 0.9 / FASTER_FLAG)
    assert [run.slug for run in pace(evidence(half), evidence(runs("srv-acc")))] == ["faster_than_accuracy"]
    lower = runs.copy(tmp_path / "lower", "srv-1", ["set_detail", "effective_target_qps", 100.0])
    shorten_requests(RunDir(lower), 0.9 / FASTER_FLAG)
    assert list(pace(evidence(lower), evidence(runs("srv-acc")))) == []


@pytest.mark.parametrize(("busy", "severity"), [(0.0, "FAIL"), (0.2, "FAIL"), (0.5, "FLAG"), (0.95, "FLAG")])
def test_an_accuracy_run_slowed_by_a_busy_host_is_not_flagged(
    runs: FrozenRuns, tmp_path: Path, busy: float, severity: str
) -> None:
    fast = runs.copy(tmp_path / "fast", "srv-1")
    shorten_requests(RunDir(fast), 0.15)
    times = {"window_s": 5.0, "usable_cores": 2, "busy_cpu_s": 10 * busy, "own_cpu_s": 0.0, "foreign_cpu_s": 10 * busy}
    more = {"stolen_cpu_s": 0.0, "load_average_start": 9.0, "load_average_end": 9.0}
    accuracy = runs.copy(tmp_path / "accuracy", "srv-acc", ["set_manifest", "observed.contention", times | more])
    (reason,) = pace(evidence(fast), evidence(accuracy))
    assert (label_of(reason), reason.slug) == (severity, "faster_than_accuracy")


def test_a_ratio_within_the_resolution_of_stamps_is_a_warning(runs: FrozenRuns, tmp_path: Path) -> None:
    pair = [runs.copy(tmp_path / name, name) for name in ("srv-1", "srv-acc")]
    for run, factor in zip(pair, (0.001, 0.1), strict=True):
        shorten_requests(RunDir(run), factor)
    (reason,) = pace(*(evidence(run) for run in pair))
    assert (label_of(reason), reason.slug) == ("FLAG", "faster_than_accuracy")


RECORD = "audit_output_caching.json"


def first_run(folder: Path, kind: str) -> Path:
    """Return the first run of a kind."""
    (run,) = folder.glob(f"{kind}-*round1/")
    return run


def other_engine(folder: Path) -> None:
    set_at(first_run(folder, "repeat") / "manifest.json", "plan.engine_options.slots", 9)


def left_out(kind: str, *, run: bool = True) -> Callable[[Path], None]:
    """Remove a run of this kind from the record and from the directory."""

    def change(folder: Path) -> None:
        label = first_run(folder, kind).name
        kept = [run for run in json.loads((folder / RECORD).read_text())["runs"] if run["label"] != label]
        set_at(folder / RECORD, "runs", kept)
        if run:
            shutil.rmtree(folder / label)

    return change


def reference_again(folder: Path) -> None:
    repeat = first_run(folder, "repeat")
    shutil.rmtree(repeat)
    shutil.copytree(first_run(folder, "reference"), repeat)


def other_rows(folder: Path) -> None:
    """Let the record of the second reference run claim other samples than it issued."""
    (run,) = map(RunDir, folder.glob("reference-*round2/"))
    rows = json.loads((first_run(folder, "reference") / "manifest.json").read_bytes())["plan"]["rows"]
    set_at(run.manifest, "plan.rows", rows)
    reseal(run)


def of_an_earlier_version(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(recorded() / "caching-of-an-earlier-version" / "audit" / "output_caching", folder)


def prefix_caching(folder: Path) -> None:
    """Enable prefix caching in each run, so that the runs are of one system. The audit then ends after two runs."""
    record = json.loads((folder / RECORD).read_text())["runs"]
    for entry in record[2:]:
        shutil.rmtree(folder / entry["label"])
    set_at(folder / RECORD, "runs", record[:2])
    for run in (*map(RunDir, folder.glob("*/")), ResultDir(folder.parents[1]).performance):
        if run.manifest.is_file():
            set_record(run, {"engine.configuration.enable_prefix_caching": True})


# Change of an audit → rule, severity and text of the finding.
CACHING: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "another engine": (other_engine, "FAIL caching_audit_forged", "manifest.json"),
    "another engine, sealed anew": (
        lambda folder: [other_engine(folder), reseal(RunDir(first_run(folder, "repeat")))],
        "FAIL caching_audit_forged", "engine_options.slots: 1 in the first, 9 in the second",
    ),
    "not passed": (
        lambda folder: [set_at(folder / RECORD, "passed", False), set_at(folder / RECORD, "reason", "too fast")],
        "FAIL caching_audit_failed", "too fast",
    ),
    "prefix caching in force": (prefix_caching, "FAIL caching_audit_failed", "prefix caching in the engine"),
    "the reference again": (reference_again, "FAIL caching_audit_forged", "did not apply audit.config"),
    "not in the record": (left_out("repeat", run=False), "FAIL caching_audit_forged", "names the runs"),
    **{
        f"without {kind}": (left_out(kind), "FAIL caching_audit_forged", "")
        for kind in ("repeat", "few", "reference")
    },
    "with other rows": (other_rows, "FAIL caching_audit_forged", "the rows of the dataset differ"),
    "of an earlier version": (of_an_earlier_version, "FLAG caching_audit_absent", "earlier version"),
}  # fmt: skip


@pytest.mark.parametrize("case", ["untouched", *CACHING])
def test_a_caching_audit_is_reevaluated_from_its_runs(tmp_path: Path, case: str) -> None:
    change, reason, sentence = CACHING.get(case, (lambda folder: None, "NOTE caching_audited", ""))
    result = ResultDir(Path(shutil.copytree(recorded() / "caching", tmp_path / "result")))
    change(result.audit("output_caching"))
    texts = {
        f"{label_of(finding)} {finding.slug}": finding.text for finding in caching(evidence(result.performance.root))
    }
    assert texts.keys() == {reason}
    assert sentence in texts[reason]


def test_a_repeated_run_has_the_audit_of_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ResultDir(Path(shutil.copytree(recorded() / "caching", tmp_path / "result")))
    repeat = result.performance.root.rename(result.performance.root.with_name("run_2"))
    monkeypatch.chdir(repeat)
    for path in (repeat, Path(), Path("..") / repeat.name):
        assert [finding.rule for finding in caching(evidence(path))] == ["H-5/caching_audited"]


def test_sign_off_reuses_the_scores_of_verify(runs: FrozenRuns, scorings: list[tuple[str, ...]]) -> None:
    pair = runs.paths("srv-1", "srv-acc")
    run = next(run for result in find_results(pair) for run in result.runs if run.mode == "AccuracyOnly")
    with with_scorer(None) as (sources, _):
        verified = judge_run(RunEvidence.of(run, sources=sources))
        assert len(scorings) == 1
        signed = sign_off("harness", pair, sources=sources)
        assert len(scorings) == 1
    assert signed.outcome == sign_off("harness", pair).outcome == "PASS"
    assert len(scorings) == 2
    assert verified.details.values["scores"]


def test_submit_scores_each_run_once(
    build: Callable[..., Submission], campaign: CampaignDir, scorings: list[tuple[str, ...]]
) -> None:
    outcome = build()
    assert [finding.sentence for finding in outcome.all_findings] == []
    assert outcome.details.signed is not None
    assert outcome.details.signed.outcome in ("PASS", "FLAG")
    assert len(outcome.details.judged) == 2
    assert 0 < len(scorings) == len(set(scorings))


def test_references_of_a_run_are_read_if_its_dataset_is_unchanged(runs: FrozenRuns, tmp_path: Path) -> None:
    copy = runs.copy(tmp_path / "run", "srv-1")
    run = find_results([copy])[0].runs[0]
    references = Evidence.of(run).references
    assert references is not None
    assert run.manifest is not None
    assert run.manifest.plan.dataset_sha256 == references.sha256
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["plan"]["dataset_sha256"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert Evidence.of(find_results([copy])[0].runs[0]).references is None


def test_a_performance_run_forged_from_the_accuracy_run_is_reported(runs: FrozenRuns, tmp_path: Path) -> None:
    """The run has the responses of the accuracy run, at three quarters of their times."""
    run = runs.copy(tmp_path / "run", "ss-null", ["adopt", "ss-1"], ["borrow_answers", "ss-acc"])
    run_dir, draw = RunDir(run), random.Random(3)
    shown = {record["sample_index"]: record for record in read_records(RunDir(runs("ss-acc")))}
    records = sorted(read_records(run_dir), key=lambda record: int(record["seq"]))
    now_ns = start_ns = records[0]["issue_ns"]
    for record in records:
        share, first = 0.75 * draw.uniform(0.985, 1.015), shown[record["sample_index"]]
        for name in ("first_token_ns", "complete_ns"):
            record[name] = now_ns + int((first[name] - first["issue_ns"]) * share)
        record["issue_ns"], now_ns = now_ns, record["complete_ns"] + draw.randrange(60_000, 180_000)
    write_records(run_dir, records)
    values = read_detail(run_dir.detail).values
    begin, end = (datetime.strptime(str(values[key]), POWER_TIME) for key in ("power_begin", "power_end"))
    seconds = (now_ns - start_ns) / 1e9 + 0.004
    for fault in (
        ["scale_clock", seconds / (end - begin).total_seconds()],
        ["set_manifest", "end_time_ns", records[-1]["complete_ns"] + 300_000_000],
        ["rebuild", 1],
    ):
        inject(run_dir, str(fault[0]), fault[1:], run)
    verdict = sign_off("harness", [run, runs("ss-acc")])
    assert verdict.outcome == "FAIL"
    assert slugs(verdict) & {"settings_contradict_record", "log-records"}


def test_ineligible_runs_recorded_as_eligible_fail(runs: FrozenRuns, tmp_path: Path) -> None:
    faults: list[list[object]] = [["set_manifest", "official", True], ["set_manifest", "unofficial_reasons", []]]
    verdict = sign_off("bundle", [runs.copy(tmp_path / name, name, *faults) for name in ("ss-1", "ss-acc")])
    assert verdict.outcome == "FAIL"
    assert {find_rule(rule).kind for rule in slugs(verdict)} == {"official"}
