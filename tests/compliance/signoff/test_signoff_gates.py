"""Gates of a baseline, a patch and a bundle: spread, gain, changed options, claims, verdicts of patches."""

import json
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from compliance.judge.record import record
from compliance.judge.verdict import Finding, stated
from compliance.results.scoring import ScoreSources
from compliance.signoff import judge
from compliance.signoff.baseline import judge_spread
from compliance.signoff.changed_options import (
    CLASS_A,
    CLASS_B,
    NEEDS_QUALITY_GATE,
    SIDE_EFFECTS,
    class_of,
    inert,
    judge_changed_options,
    option_of,
)
from compliance.signoff.claim import Claim, PatchVerdict, read_claim
from compliance.signoff.gain import drift, headline_integrity, isolated, real_gain
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import NOISE_BAND_PCT, SignOff, SignOffDetails, action, blocks, headline
from runs.files.writing import write_json
from runs.record.engines.engine_log import EngineLog
from runs.record.fingerprint import BOTH_MODES, differences
from tests.support.runs.records import request_table
from tests.support.runs.signoff_fixtures import FrozenRuns, evidence, label_of, slugs

TOKENS = "tokens_per_second"


def severities_and_slugs(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(label_of(finding), finding.slug) for finding in findings]


def patch(findings: Sequence[Finding] = (), **options: Any) -> SignOff:
    return SignOff([*findings], details=SignOffDetails("patch", NOISE_BAND_PCT, "open", **options))


def decide(findings: list[Finding]) -> tuple[str, str | None]:
    verdict = patch(findings=findings)
    return verdict.outcome, action(verdict)


def test_the_most_severe_finding_decides_the_verdict() -> None:
    notes: list[Finding] = [stated("P-6/replayed", "")]
    assert decide(notes) == ("PASS", "pass")
    flags = [
        *notes,
        stated("B-1/noisy_baseline", ""),
        stated("G-8/not_a_kernel_gain", ""),
    ]
    assert decide(flags) == ("FLAG", "downgrade_headline")
    assert decide([*flags[:2], stated("G-2/overstated", "")]) == ("FLAG", "correct_headline")
    assert decide([*flags, stated("P-1/missing_raw", "")]) == ("FAIL", "eject")
    both = patch(findings=[stated("B-4/contended", "busy", severity="warning"), stated("G-2/overstated", "too large")])
    assert headline(both) == "FLAG, action correct_headline: G-2/overstated: too large; and 1 more"


@pytest.mark.parametrize(
    ("repeats", "spread_pct", "expected", "action"),
    [
        ([966.36, 1004.05, 1004.71], 3.82, [("FLAG", "noisy_baseline"), ("FLAG", "warmup_outlier")], "remeasure"),
        ([1004.05, 966.36, 1004.71], 3.82, [("FLAG", "noisy_baseline"), ("FLAG", "outlier")], "remeasure"),
        ([960.0, 980.0, 1004.0], 4.49, [("FLAG", "noisy_baseline")], "remeasure"),
        ([1000.0, 1010.0], 1.0, [("NOTE", "spread")], "pass"),
        ([1004.30, 1004.71, 1005.40, 1005.48, 1004.90, 1005.10], 0.118, [("NOTE", "steady")], "pass"),
    ],
)
def test_the_spread_of_repeated_runs_is_judged_by_the_noise_band(
    repeats: list[float], spread_pct: float, expected: list[tuple[str, str]], action: str
) -> None:
    findings = list(judge_spread(TOKENS, repeats, NOISE_BAND_PCT))
    assert severities_and_slugs(findings) == expected
    assert findings[0].numbers["spread_pct"] == pytest.approx(spread_pct, abs=0.006)
    assert decide(findings)[1] == action


@pytest.mark.parametrize(
    ("name", "ref", "cand", "expected"),
    [
        (TOKENS, [100.0, 100.1], [100.3, 100.4], ("FAIL", "no_real_gain")),  # +0.3 % within the band of 0.5 %
        (TOKENS, [100.0, 103.0], [102.0, 106.0], ("FAIL", "overlap")),
        (TOKENS, [100.0, 100.1], [110.0, 110.2], ("NOTE", "real_gain")),
        ("latency_p90_ms", [100.0, 100.1], [90.0, 90.2], ("NOTE", "real_gain")),
        ("latency_p90_ms", [100.0, 103.0], [94.0, 101.0], ("FAIL", "overlap")),
        (TOKENS, [100.0, 100.1], [90.0, 90.2], ("FAIL", "no_real_gain")),
        (TOKENS, [100.0], [110.0, 111.0], ("FAIL", "too_few_repeats")),
    ],
)
def test_a_gain_must_exceed_the_noise_band_without_overlap(
    name: str, ref: list[float], cand: list[float], expected: tuple[str, str]
) -> None:
    assert severities_and_slugs(real_gain(patch().details, name, ref, cand)) == [expected]


def test_drift_is_relative_to_the_claimed_baseline() -> None:
    verdict = patch(metrics={"ref": {TOKENS: 1004.9}, "cand": {}})
    assert severities_and_slugs(drift(verdict.details, TOKENS, Claim(baseline=1300))) == [("FAIL", "baseline_drift")]
    assert severities_and_slugs(drift(verdict.details, TOKENS, Claim(baseline=1003))) == [("NOTE", "no_drift")]
    assert severities_and_slugs(drift(verdict.details, TOKENS, Claim())) == [("NOTE", "no_earlier_baseline")]


def test_a_worse_latency_missing_from_the_claim_is_reported() -> None:
    metrics = {
        "ref": {"tokens_per_second": 1000.0, "ttft_p99_ms": 2916.0, "tpot_p99_ms": 20.0},
        "cand": {"tokens_per_second": 1100.0, "ttft_p99_ms": 9446.0, "tpot_p99_ms": 21.0},
    }
    verdict = patch(e2e_delta_pct=10.0, metrics=metrics)
    reported = list(headline_integrity(verdict.details, TOKENS, Claim()))
    assert severities_and_slugs(reported) == [("FLAG", "hidden_regression")]
    assert reported[0].numbers == {"metric": "ttft_p99_ms", "before": 2916.0, "after": 9446.0}
    verdict.findings, verdict.details.compared = reported, True
    assert record(verdict)["headline_integrity"] == "flag"
    alone = Claim(reported_metrics=[TOKENS])
    verdict.findings = list(headline_integrity(verdict.details, TOKENS, alone))
    assert ("FAIL", "cherry_picked") in severities_and_slugs(verdict.all_findings)
    assert record(verdict)["headline_integrity"] == "fail"
    metrics["cand"]["ttft_p99_ms"] = 2000.0  # better as well
    verdict.findings = list(headline_integrity(verdict.details, TOKENS, alone))
    assert (verdict.findings, record(verdict)["headline_integrity"]) == ([], "ok")


@pytest.mark.parametrize(
    ("real", "expected"), [(True, ("FLAG", "isolated_headline")), (False, ("FAIL", "isolated_only"))]
)
def test_an_isolated_speedup_is_not_accepted_as_headline(real: bool, expected: tuple[str, str]) -> None:
    verdict = patch(e2e_delta_pct=10.0)
    reasons = list(isolated(verdict.details, Claim(isolated_speedup=3.03), real=real))
    assert severities_and_slugs(reasons) == [expected]
    assert decide(reasons)[1] == ("replace_headline_with_e2e" if real else "eject")
    assert list(isolated(verdict.details, Claim(), real=real)) == []


def test_each_option_has_exactly_one_class() -> None:
    assert not CLASS_A & CLASS_B
    assert NEEDS_QUALITY_GATE <= CLASS_B
    assert SIDE_EFFECTS.keys() <= CLASS_A | CLASS_B
    assert [class_of(name) for name in ("attention_backend", "speculative", "turbo")] == ["A", "B", None]


def test_conditions_are_compared_by_key() -> None:
    first = {"engine_options.slots": 4, "host.cpu": "a", "loadgen.min_duration_ms": 600_000}
    second = {"engine_options.slots": 6, "host.cpu": "a", "loadgen.min_duration_ms": 0, "environment.X": "1"}
    unequal = differences(first, second)
    assert unequal == {
        "engine_options.slots": (4, 6),
        "environment.X": (None, "1"),
        "loadgen.min_duration_ms": (600_000, 0),
    }
    assert differences(first, second, BOTH_MODES).keys() == {"engine_options.slots", "environment.X"}
    assert [option_of(key) for key in ("engine_options.cache_dtype", "resolved.kv_cache_dtype")] == [
        "kv_cache_dtype"
    ] * 2


@pytest.mark.parametrize(
    ("batch_limit", "pool_tokens", "preempted", "without_effect"),
    [
        (8, 1000, False, True),
        (2, 1000, False, False),
        (8, 70, False, False),
        (8, 1000, True, False),
        (8, None, False, False),
    ],
)
def test_a_side_effect_is_harmless_if_no_run_reached_its_limit(
    batch_limit: int, pool_tokens: int | None, preempted: bool, without_effect: bool
) -> None:
    run = SimpleNamespace(
        # Three requests, at most two at a time: the first ends when the third begins.
        requests=request_table(
            [0, 5, 10], [1, 6, 11], [10, 30, 20], prompt_tokens=[10, 20, 40], output_tokens=[1, 2, 4]
        ),
        manifest=SimpleNamespace(engine=SimpleNamespace(configuration={"max_num_seqs": batch_limit})),
        engine_log=EngineLog(kv_cache_tokens=pool_tokens, preempted=preempted),
        dir=SimpleNamespace(root="run", engine_log="run/engine.log"),
    )
    reasons = [inert(["kv_cache_tokens"], run, run, Claim())]  # type: ignore[arg-type]
    expected = ("NOTE", "inert_side_effect") if without_effect else ("FAIL", "unproven_side_effect")
    assert severities_and_slugs(reasons) == [expected]
    assert record(patch(reasons, compared=True))["same_conditions_ok"] is without_effect
    reported = [inert(["kv_cache_tokens"], run, run, Claim(conditions="identical"))]  # type: ignore[arg-type]
    assert severities_and_slugs(reported) == [("FLAG", "side_effect_not_told") if without_effect else expected]


def test_numpy_numbers_are_plain_numbers_in_the_record() -> None:
    reason = stated("B-4/issue_delay", "", p99_ms=np.float64(1.5), late=np.int64(3))
    content = record(SignOff([reason], details=SignOffDetails("bundle", NOISE_BAND_PCT, "closed")))
    assert json.loads(orjson.dumps(content))["reasons"][0]["numbers"] == {"p99_ms": 1.5, "late": 3}


def test_a_gain_by_batch_size_claimed_for_a_kernel_is_reported(runs: FrozenRuns, tmp_path: Path) -> None:
    places = ("plan.engine_options.", "engine.configuration.", "asked.dummy_")
    options = {"slots": 4, "tpot_ms": 0.1}
    faults = [["set_manifest", place + name, options[name]] for place in places for name in options]
    cand = [runs.copy(tmp_path / name, name, *faults) for name in ("off-slots-1", "off-slots-2")]
    claim = Claim(levers=["tpot_ms"], lever_class="A")
    verdict = sign_off("patch", runs.paths("off-1", "off-2", "off-acc"), cand, claim)
    assert (verdict.outcome, slugs(verdict)) == ("FAIL", {"more_than_the_batch"})


@pytest.mark.parametrize("taken_back", [True, False])
def test_a_reference_slowed_by_an_option_is_reported(runs: FrozenRuns, tmp_path: Path, taken_back: bool) -> None:
    fault = [["unask", "dummy_slots"]] if taken_back else []
    cand = [runs.copy(tmp_path / name, name, *fault) for name in ("off-slots-1", "off-slots-2")]
    claim = Claim(levers=["slots"], lever_class="B")
    verdict = sign_off("patch", runs.paths("off-1", "off-2", "off-acc"), cand, claim)
    assert (verdict.outcome, slugs(verdict, "FLAG")) == (
        ("FLAG", {"handicapped_reference"}) if taken_back else ("PASS", set())
    )


@pytest.mark.parametrize(
    ("lever", "slug"), [("OMP_NUM_THREADS", "handicapped_reference"), ("max_num_seqs", "second_knob")]
)
def test_a_reference_slowed_by_an_environment_variable_is_reported(
    runs: FrozenRuns, tmp_path: Path, lever: str, slug: str
) -> None:
    slow = ["set_manifest", "engine.configuration.environment.OMP_NUM_THREADS", "1"]
    ref, cand = evidence(runs.copy(tmp_path / "ref", "vllm-off", slow)), evidence(runs("vllm-off"))
    findings = judge_changed_options(patch().details, ref, cand, Claim(levers=[lever]))
    assert slug in {finding.slug for finding in findings}


@pytest.mark.parametrize("is_chosen", [False, True])
def test_core_binding_is_a_side_effect_of_the_number_of_ranks(
    runs: FrozenRuns, tmp_path: Path, is_chosen: bool
) -> None:
    name, bind = "VLLM_CPU_OMP_THREADS_BIND", "0|1"
    ranks: list[list[object]] = [
        ["set_manifest", "plan.engine_options.data_parallel_size", 2],
        ["set_manifest", "asked.engine_arg", {"data_parallel_size": 2}],
    ]
    planned = [] if is_chosen else [["set_manifest", f"plan.environment.{name}", bind]]
    faults = [*ranks, *planned, ["set_manifest", f"engine.configuration.environment.{name}", bind]]
    ref, cand = evidence(runs("vllm-off")), evidence(runs.copy(tmp_path / "cand", "vllm-off", *faults))
    verdict = patch()
    claim = Claim(levers=["data_parallel_size"])
    reported = {finding.slug for finding in judge_changed_options(verdict.details, ref, cand, claim)}
    assert ("second_knob" in reported) is is_chosen
    assert verdict.details.lever_class == "B"


def test_a_patch_verdict_that_differs_from_its_runs_is_reported(runs: FrozenRuns, tmp_path: Path) -> None:
    ref, cand = runs.paths("off-1", "off-2", "off-acc"), runs.paths("off-two-1", "off-two-2", "off-two-acc")
    slower = runs.paths("off-cold-1", "off-3")
    for lever, side in (("tpot_ms", runs.paths("off-fast-1", "off-fast-2")), ("slots", slower)):
        record = {"audit_scope": "patch", "verdict": "PASS", "e2e_delta_pct": 900.0, "levers": [lever]}
        paths = {"ref": [str(value) for value in ref], "cand": [str(value) for value in side]}
        write_json(tmp_path / f"{lever}.json", record | paths)
    write_json(
        tmp_path / "claim.json",
        {
            "levers": ["tpot_ms", "slots"],
            "patch_verdicts": [{"lever": name, "verdict_file": f"{name}.json"} for name in ("tpot_ms", "slots")],
        },
    )
    verdict = sign_off("bundle", ref, cand, read_claim(tmp_path / "claim.json"))
    assert verdict.outcome == "FAIL"
    (decomposed,) = verdict.details.lever_decomposition
    assert (decomposed["lever"], decomposed["class"], decomposed["verdict"]) == ("tpot_ms", "A", "PASS")
    assert verdict.details.class_a is None  # the other changed option is unknown
    assert float(decomposed["delta_pct"]) < 100  # not the 900 % that the file says
    (lacking,) = [finding for finding in verdict.all_findings if finding.slug == "missing_patch_verdict"]
    assert "re-evaluated: FAIL" in lacking.text
    write_json(tmp_path / "slots.json", record | paths | {"ref": paths["ref"] * 200})  # which would take minutes
    verdict = sign_off("bundle", ref, cand, read_claim(tmp_path / "claim.json"))
    assert any(
        "names 602 runs" in finding.text for finding in verdict.all_findings if finding.slug == "missing_patch_verdict"
    )


def test_a_verdict_file_is_relative_to_its_claim(tmp_path: Path) -> None:
    absolute = tmp_path / "elsewhere" / "b.json"
    patches = [{"lever": "a", "verdict_file": "a.json"}, {"lever": "b", "verdict_file": os.fspath(absolute)}]
    write_json(tmp_path / "claim.json", {"patch_verdicts": patches})
    assert read_claim(tmp_path / "claim.json") == Claim(
        patch_verdicts=[
            PatchVerdict(lever="a", verdict_file=tmp_path / "a.json"),
            PatchVerdict(lever="b", verdict_file=absolute),
        ]
    )


def test_patches_are_reevaluated_with_the_sources_of_the_bundle(
    runs: FrozenRuns, scorings: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ref, cand = runs.paths("off-1", "off-2", "off-acc"), runs.paths("off-two-1", "off-two-2", "off-two-acc")
    for place, run in zip(("performance/run_1", "performance/run_2", "accuracy"), ref, strict=True):
        shutil.copytree(run, tmp_path / "before" / place)
    patches = []
    for lever, candidate in (("tpot_ms", ("off-fast-1", "off-fast-2")), ("slots", ("off-slots-1", "off-slots-2"))):
        signed = sign_off("patch", [tmp_path / "before"], runs.paths(*candidate), Claim(levers=[lever]))
        assert signed.outcome == "PASS"
        write_json(tmp_path / f"{lever}.json", record(signed))
        patches.append(PatchVerdict(lever=lever, verdict_file=tmp_path / f"{lever}.json"))
    used: list[ScoreSources] = []
    load = judge.load
    monkeypatch.setattr(
        judge, "load", lambda paths, sources, read: (used.append(sources), load(paths, sources, read))[1]
    )
    scorings.clear()
    claim, score_sources = Claim(levers=["tpot_ms", "slots"], patch_verdicts=patches), ScoreSources(model_path="bytes")
    verdict = sign_off("bundle", ref, cand, claim, sources=score_sources)
    assert [(record["lever"], record["class"]) for record in verdict.details.lever_decomposition] == [
        ("slots", "B"),
        ("tpot_ms", "A"),
    ]
    factors = [1 + record["delta_pct"] / 100 for record in verdict.details.lever_decomposition]
    share = math.log(factors[1]) / math.log(math.prod(factors))
    assert verdict.details.class_a == pytest.approx({"delta_pct": (factors[1] - 1) * 100, "share": share})
    assert any(
        f"class A alone: {verdict.details.class_a['delta_pct']:+.2f}%, {share:.0%}" in entry.text
        for entry in verdict.all_findings
    )
    assert {"explained", "unexplained_delta"} & (slugs(verdict, "NOTE") | slugs(verdict, "FLAG"))
    assert "missing_patch_verdict" not in slugs(verdict)
    assert [sources.model_path for sources in used] == ["bytes"] * 6  # reference and candidate, of bundle and patches
    assert len({id(sources.scorer) for sources in used}) == 1
    assert len(scorings) == len(set(scorings)) <= 2  # responses of off-acc and off-two-acc may be equal
    lacking = sign_off("bundle", ref, cand, claim.model_copy(update={"patch_verdicts": patches[:1]}))
    assert (lacking.outcome, blocks(lacking)) == ("FAIL", True)
    assert "missing_patch_verdict" in slugs(lacking)


def test_a_bundle_with_incoherent_reference_responses_is_refused(runs: FrozenRuns, tmp_path: Path) -> None:
    ref = [runs.copy(tmp_path / name, name, ["repeat_one_token"]) for name in ("off-1", "off-2", "off-acc")]
    verdict = sign_off("bundle", ref, runs.paths("off-two-1", "off-two-2", "off-two-acc"), Claim(levers=["tpot_ms"]))
    assert "unverifiable_noncoherent_reference" in slugs(verdict)
    assert verdict.details.correctness_status == "unverifiable_noncoherent_reference"
