"""Findings on the requests, replicas and host of a single run."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from compliance.judge.verdict import Finding
from compliance.signoff.changed_options import asked_options
from compliance.signoff.claim import Claim
from compliance.signoff.judge import sign_off
from compliance.signoff.provenance import FOREIGN_DIFFERENCE, one_machine, run_proofs
from compliance.signoff.requests import at_once, batch_limit, late_issues, replicas
from compliance.signoff.signoff_verdict import action, asks_remeasure
from runs.files.writing import write_json
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.observed import FOREIGN_SHARE, Contention
from tests.support.files.editing import each_record, read_records
from tests.support.runs.recorded import recorded
from tests.support.runs.signoff_fixtures import FrozenRuns, evidence, label_of
from tests.support.runs.submission_runs import CONFIGURATION
from tests.support.runs.technique_rows import manifest, weights

FIRST_NS, TOKEN_NS = 2_000_000, 1_000_000
WINDOW_S, CORES = 4.0, 2
Json = dict[str, Any]
With = Callable[[str, float], Path]


def findings(path: Path) -> list[Finding]:
    return [finding for finding in run_proofs(evidence(path)) if finding.severity != "note"]


@pytest.mark.parametrize(
    "name", ["ss-1", "ss-acc", "srv-1", "srv-trace", "srv-acc", "off-1", "int-1", "vllm-off", "vllm-off-acc"]
)
def test_a_consistent_run_has_no_findings(runs: FrozenRuns, name: str) -> None:
    assert findings(runs(name)) == []


@pytest.mark.parametrize(
    ("run", "faults", "check", "slug", "text"),
    [
        ("off-params", [["set_manifest", "plan.sampling.max_tokens", 128]], "P-4", "other_limit", "with 64"),
        ("off-slots-1", [["set_manifest", "engine.configuration.slots", 4]], "P-7", "more_than_the_batch", "limit"),
        ("srv-1", [["set_detail", "requested_server_target_qps", 201.0]], "P-7", "settings_contradict_record", "200"),
        ("ss-1", [["set_detail", "requested_min_duration_ms", 600000]], "P-7", "settings_contradict_record", "400"),
    ],
)  # fmt: skip
def test_each_fault_is_reported_by_its_check(
    runs: FrozenRuns, tmp_path: Path, run: str, faults: list[list[object]], check: str, slug: str, text: str
) -> None:
    run_findings = findings(runs.copy(tmp_path / "run", run, *faults))
    assert [
        entry
        for entry in run_findings
        if (entry.rule.partition("/")[0], label_of(entry), entry.slug) == (check, "FAIL", slug) and text in entry.text
    ]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([["cap_prompts", 512], ["set_manifest", "plan.dataset_sha256", "0" * 64]], [("NOTE", "prompts_not_compared")]),
        ([["set_manifest", "plan.dataset_path", "/gone"]], []),  # the bundled one is the same
    ],
)
def test_prompts_are_compared_with_the_recorded_dataset(
    runs: FrozenRuns, tmp_path: Path, faults: list[list[object]], expected: list[tuple[str, str]]
) -> None:
    run = runs.copy(tmp_path / "run", "ss-1", *faults)
    proofs = [proof for proof in run_proofs(evidence(run)) if proof.rule.startswith("H-2/")]
    assert [(label_of(proof), proof.slug) for proof in proofs] == expected


def test_possible_preemption_beyond_the_cache_is_a_warning(runs: FrozenRuns, tmp_path: Path) -> None:
    """Only vLLM sets requests aside, if the tokens in flight exceed its cache."""
    run = RunDir(runs.copy(tmp_path / "run", "off-slots-1"))
    content = orjson.loads(run.manifest.read_bytes())
    content["plan"]["engine"] = "vllm"
    content["observed"]["model"] |= {"sha256": {"model.safetensors": "0" * 64}, "weights": weights()}
    content["engine"]["configuration"] = CONFIGURATION | {"max_num_seqs": 2, "data_parallel_size": 2}
    write_json(run.manifest, content)

    def severities() -> set[str]:
        return {label_of(finding) for finding in findings(run.root) if finding.slug == "more_than_the_batch"}

    assert severities() == {"FLAG"}
    run.engine_log.write_text("INFO GPU KV cache size: 1,000,000 tokens\n")
    assert severities() == {"FAIL"}
    run.engine_log.write_text("INFO GPU KV cache size: 9,000 tokens\n")
    assert severities() == {"FLAG"}


def test_the_batch_limit_is_read_from_the_engine_configuration() -> None:
    assert batch_limit(manifest(configuration={})) is None
    assert batch_limit(manifest(configuration={"max_num_seqs": 256})) == 256
    assert batch_limit(manifest(configuration={"max_num_seqs": 256, "data_parallel_size": 2})) == 512
    assert batch_limit(manifest(engine="dummy", configuration={"slots": 0})) is None
    assert batch_limit(manifest(engine="dummy", configuration={"slots": 4})) == 4


def test_requested_options_have_the_names_of_the_engine() -> None:
    record = manifest(options={"max_num_seqs": 8})
    record.asked |= {"dtype": "bfloat16", "tensor_parallel_size": None, "dummy_slots": 3}
    assert asked_options(record) == {"max_num_seqs": 8, "dtype": "bfloat16"}


def test_late_queries_on_a_busy_host_are_a_warning(runs: FrozenRuns, tmp_path: Path) -> None:
    run = RunDir(runs.copy(tmp_path / "run", "srv-1"))
    each_record(run, lambda record: record | {"issue_ns": record["issue_ns"] + 300_000_000 * (record["seq"] % 20 == 0)})
    (finding,) = late_issues(evidence(run.root))
    assert (finding.rule, finding.severity) == ("B-4/contended", "warning")


def on_machine(runs: FrozenRuns, hostname: str, boot_id: str | None) -> Manifest:
    manifest = read_manifest(RunDir(runs("srv-1")).manifest)
    host = manifest.observed.host.model_copy(update={"hostname": hostname, "boot_id": boot_id})
    manifest.observed.host = host
    return manifest


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (("node", "a"), ("node", "a"), True),
        (("pod-1", "a"), ("pod-2", "a"), True),
        (("localhost", "a"), ("localhost", "b"), False),
        (("node", None), ("node", "b"), True),
        (("localhost", None), ("localhost", None), None),
        (("localhost.localdomain", None), ("localhost.localdomain", None), None),
        (("node-1", None), ("node-2", None), False),
    ],
)
def test_hosts_are_distinguished_by_more_than_their_names(
    runs: FrozenRuns, first: tuple[str, str | None], second: tuple[str, str | None], is_same: bool | None
) -> None:
    assert one_machine(on_machine(runs, *first), on_machine(runs, *second)) is is_same


@pytest.mark.parametrize(
    ("lag_ms", "foreign", "severities"), [(0.0, 0.0, ["error"]), (60_000.0, 0.0, []), (0.0, 0.9, ["warning"])]
)
def test_delayed_stamps_on_a_busy_host_are_not_a_larger_batch(
    runs: FrozenRuns, tmp_path: Path, lag_ms: float, foreign: float, severities: list[str]
) -> None:
    run = runs.copy(
        tmp_path / "run", "srv-1", ["set_manifest", "engine.configuration.slots", 1],
        ["set_manifest", "observed.loop_lag", {"p99_ms": lag_ms, "worst_ms": lag_ms, "moments": 9, "interval_ms": 1.0}],
        ["set_manifest", "observed.contention", contention(foreign)],
    )  # fmt: skip
    reported = [finding.severity for finding in at_once(evidence(run))]
    assert reported == severities


# Foreign CPU time ----------------------------------------------------------------------------------------------------


def contention(foreign_share: float, over_s: float = WINDOW_S, **changed: Any) -> dict[str, Any]:
    foreign_s = round(over_s * CORES * foreign_share, 2)
    made = {"window_s": over_s, "usable_cores": CORES, "busy_cpu_s": foreign_s + 1.0, "stolen_cpu_s": 0.0}
    made |= {"own_cpu_s": 1.0, "foreign_cpu_s": foreign_s, "load_average_start": 0.1, "load_average_end": 0.2}
    return made | changed


@pytest.fixture
def with_foreign_load(runs: FrozenRuns, tmp_path: Path) -> With:
    """Return a run during which other processes used a share of the cores."""

    def make(name: str, share: float) -> Path:
        requests = read_records(RunDir(runs(name)))
        span_ns = max(request["complete_ns"] for request in requests) - min(request["issue_ns"] for request in requests)
        window_s = span_ns / 1e9 + 0.1
        return runs.copy(tmp_path / name, name, ["set_manifest", "observed.contention", contention(share, window_s)])

    return make


def contended(all_findings: list[Finding]) -> list[Finding]:
    return [finding for finding in all_findings if finding.slug == "contended"]


def test_foreign_cpu_time_is_relative_to_all_usable_cores() -> None:
    measured = Contention.model_validate(contention(0.25))
    assert measured.foreign_share == pytest.approx(2.0 / (4.0 * 2))


@pytest.mark.parametrize("name", sorted(contention(0.1)))
@pytest.mark.parametrize("value", [None, -1, float("nan"), float("inf"), "1", "-"])
def test_invalid_contention_numbers_are_refused(name: str, value: object) -> None:
    damaged = contention(0.1, **{name: value})
    if value == "-":
        damaged.pop(name)
    with pytest.raises(ValidationError, match=name):
        Contention.model_validate(damaged)


@pytest.mark.parametrize(("share", "label"), [(FOREIGN_SHARE - 0.02, "PASS"), (FOREIGN_SHARE + 0.02, "FLAG")])
def test_one_repetition_on_a_busy_host_is_flagged(
    with_foreign_load: With, runs: FrozenRuns, share: float, label: str
) -> None:
    busy = with_foreign_load("srv-2", share)
    verdict = sign_off("baseline", [with_foreign_load("srv-1", 0.0), busy, runs("srv-acc")])
    assert verdict.outcome == label
    assert [reason.where for reason in contended(verdict.all_findings)] == [str(busy / "manifest.json")] * (
        label == "FLAG"
    )


@pytest.mark.parametrize("scope", ["patch", "profile"])
@pytest.mark.parametrize(
    ("reference", "candidate", "flags"),
    [
        (0.01, 0.02, 0),
        (0.01 + FOREIGN_DIFFERENCE + 0.02, 0.01, 1),
        (0.01, 0.01 + FOREIGN_DIFFERENCE + 0.02, 1),
    ],
)
def test_the_difference_in_foreign_cpu_time_is_flagged(
    with_foreign_load: With, runs: FrozenRuns, scope: Any, reference: float, candidate: float, flags: int
) -> None:
    ref = [with_foreign_load("ss-1", reference), with_foreign_load("ss-3", reference), runs("ss-acc")]
    cand = [with_foreign_load("ss-fast-1", candidate), with_foreign_load("ss-fast-2", candidate)]
    verdict = sign_off(scope, ref, cand, Claim(levers=["tpot_ms"]))
    reasons = contended(verdict.all_findings)
    assert [label_of(reason) for reason in reasons] == ["FLAG"] * flags
    assert verdict.outcome == ("FLAG" if flags else "PASS")
    for reason in reasons:
        assert reason.numbers["foreign_shares"] == pytest.approx(sorted((reference, candidate)), abs=0.003)


@pytest.mark.parametrize(("reference", "candidate", "busy"), [(0.98, 0.97, 4), (0.12, 0.08, 2), (0.08, 0.12, 2)])
def test_busy_hosts_on_both_sides_are_flagged(
    with_foreign_load: With, runs: FrozenRuns, reference: float, candidate: float, busy: int
) -> None:
    ref = [with_foreign_load("ss-1", reference), with_foreign_load("ss-3", reference), runs("ss-acc")]
    cand = [with_foreign_load("ss-fast-1", candidate), with_foreign_load("ss-fast-2", candidate)]
    verdict = sign_off("patch", ref, cand, Claim(levers=["tpot_ms"]))
    reasons = [reason for reason in contended(verdict.all_findings) if "foreign_share" in reason.numbers]
    assert (verdict.outcome, action(verdict), asks_remeasure(verdict)) == ("FLAG", "remeasure", True)
    named = {reason.files[0].parent.name for reason in reasons}
    assert len(named) == busy
    assert all(("fast" in name) == (candidate > FOREIGN_SHARE) for name in named if busy == 2)


def test_foreign_cpu_time_of_different_scenarios_is_not_compared(with_foreign_load: With) -> None:
    runs = [
        with_foreign_load(name, share)
        for name, share in (("ss-1", 0.0), ("ss-acc", 0.0), ("srv-1", 0.08), ("srv-acc", 0.5))
    ]
    assert contended(sign_off("bundle", runs).findings) == []


def test_foreign_cpu_time_of_accuracy_runs_is_ignored(with_foreign_load: With, runs: FrozenRuns) -> None:
    assert sign_off("harness", [runs("ss-1"), with_foreign_load("ss-acc", 0.6)]).outcome == "PASS"


def test_runs_without_contention_record_are_noted(with_foreign_load: With, runs: FrozenRuns) -> None:
    verdict = sign_off("baseline", [with_foreign_load("off-1", 0.6), *runs.paths("off-2", "off-acc")])
    (reason,) = [finding for finding in verdict.all_findings if finding.slug == "contention_not_recorded"]
    assert (verdict.outcome, label_of(reason), reason.numbers) == ("PASS", "NOTE", {"runs": 3})


# Replicas -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDir(shutil.copytree(recorded() / "replicas", tmp_path_factory.mktemp("replicas") / "run"))
    renumber(run, lambda record: int(record["replica"]))
    return run.root


def renumber(run: RunDir, number: Callable[[Json], int], faster: float = 1.0) -> None:
    """Let a replica complete each query in the time that its engine needs on an idle host."""

    def edit(record: Json) -> Json:
        first_ns = record["issue_ns"] + FIRST_NS
        token_ns = TOKEN_NS / (faster if number(record) == 0 else 1.0)
        end_ns = first_ns + int((record["output_tokens"] - 1) * token_ns)
        return record | {"replica": number(record), "first_token_ns": first_ns, "complete_ns": end_ns}

    each_record(run, edit)


def replica_findings(run_dir: RunDir, *, contended: bool = False) -> list[tuple[str, str]]:
    run = evidence(run_dir.root)
    if contended:
        assert run.manifest is not None
        run.manifest.observed.contention = Contention.model_validate(contention(0.9))
    return [(replica.rule, replica.severity) for replica in replicas(run)]


def other_weights(run: RunDir) -> None:
    content = orjson.loads(run.manifest.read_bytes())
    content["replicas"][1]["weights_sha256"] = {"a.safetensors": "0" * 64}
    write_json(run.manifest, content)


def more_cores(run: RunDir, faster: float) -> None:
    """Give the first replica twice as many cores as the other one."""
    renumber(run, own, faster)
    content = orjson.loads(run.manifest.read_bytes())
    for replica, cores in zip(content["replicas"], ([0, 1, 2, 3], [4, 5]), strict=True):
        replica["cores"] = cores
    write_json(run.manifest, content)


def own(record: Json) -> int:
    return int(record["replica"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda run: None, []),
        (other_weights, [("P-7/replicas_differ", "error")]),
        (
            lambda run: renumber(run, lambda _: 0),
            [("P-4/silent_replica", "error"), ("H-5/replica_too_fast", "warning")],
        ),
        (lambda run: renumber(run, own, 1.5), []),
        (lambda run: renumber(run, own, 3.0), [("H-5/replica_too_fast", "warning")]),
        (lambda run: renumber(run, own, 20.0), [("H-5/replica_too_fast", "error")]),
        (lambda run: more_cores(run, 3.0), []),  # 1.5 times for its cores
        (lambda run: more_cores(run, 20.0), [("H-5/replica_too_fast", "error")]),  # 10 times
        (lambda run: renumber(run, lambda record: int(record["seq"] % 5 == 0)), [("H-5/replica_too_fast", "warning")]),
    ],
    ids=["honest", "weights", "silent", "1.5 times", "3 times", "20 times", "cores", "cores of little use", "share"],
)
def test_inconsistent_replicas_are_reported(
    run: Path, tmp_path: Path, change: Callable[[RunDir], None], expected: list[tuple[str, str]]
) -> None:
    run_dir = RunDir(shutil.copytree(run, tmp_path / "run"))
    change(run_dir)
    assert replica_findings(run_dir) == expected
    severities = {
        severity for rule, severity in replica_findings(run_dir, contended=True) if rule == "H-5/replica_too_fast"
    }
    assert "error" not in severities  # on a busy host
