"""Single rules of the sign-off, on numbers and small files."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from compliance.finding import Finding, fail, note, warn
from compliance.signoff.baseline import NOISE_BAND_PCT, judge_spread
from compliance.signoff.claim import Claim
from compliance.signoff.gain import drift, headline_integrity, isolated, real_gain
from compliance.signoff.levers import (
    CLASS_A,
    CLASS_B,
    NEEDS_QUALITY_GATE,
    SIDE_EFFECTS,
    class_of,
    inert,
    option_of,
    peak_in_flight,
)
from compliance.signoff.signoff_verdict import SignOff
from runs.loadgen.detail_log import read_detail
from runs.record.engine_log import EngineLog, read_engine_log
from runs.record.fingerprint import BOTH_MODES, differences
from runs.record.requests_log import Digests, RequestTable
from tests.support.signoff_fixtures import as_word

TOKENS = "tokens_per_second"
REPEATS = [966.36, 1004.05, 1004.71]
REPEATED_WARM = [1004.30, 1004.71, 1005.40, 1005.48, 1004.90, 1005.10]


def slugs(reasons: object) -> list[tuple[str, str]]:
    return [(as_word(reason), reason.slug) for reason in reasons]  # type: ignore[attr-defined]


def patch(**known: Any) -> SignOff:
    return SignOff("patch", NOISE_BAND_PCT, "open", **known)


def decide(findings: list[Finding]) -> tuple[str, str | None]:
    verdict = patch(findings=findings)
    return verdict.outcome, verdict.action


def test_a_fail_outranks_a_flag_and_a_flag_a_pass() -> None:
    notes: list[Finding] = [note("P-6/replayed", "")]
    assert decide(notes) == ("PASS", "pass")
    flags = [
        *notes,
        warn("B-1/noisy_baseline", ""),
        warn("G-8/not_a_kernel_gain", ""),
    ]
    assert decide(flags) == ("FLAG", "downgrade_headline")
    assert decide([*flags, fail("P-1/missing_raw", "")]) == ("FAIL", "eject")


def test_a_cold_first_repeat_is_named() -> None:
    reasons = list(judge_spread("tokens_per_second", REPEATS, NOISE_BAND_PCT))
    assert slugs(reasons) == [("FLAG", "noisy_baseline"), ("FLAG", "warmup_outlier")]
    assert reasons[0].numbers["spread_pct"] == pytest.approx(3.82, abs=0.005)
    assert decide(reasons) == ("FLAG", "remeasure")


def test_steady_repeats_pass() -> None:
    (reason,) = judge_spread("tokens_per_second", REPEATED_WARM, NOISE_BAND_PCT)
    assert (as_word(reason), reason.slug) == ("NOTE", "steady")
    assert reason.numbers["spread_pct"] == pytest.approx(0.118, abs=0.001)


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
def test_a_gain_is_real_beyond_the_band_and_without_overlap(
    name: str, ref: list[float], cand: list[float], expected: tuple[str, str]
) -> None:
    assert slugs(real_gain(patch(), name, ref, cand)) == [expected]


def test_drift_is_measured_against_the_given_baseline() -> None:
    verdict = patch(metrics={"ref": {TOKENS: 1004.9}, "cand": {}})
    assert slugs(drift(verdict, TOKENS, Claim(baseline=1300))) == [("FAIL", "baseline_drift")]
    assert slugs(drift(verdict, TOKENS, Claim(baseline=1003))) == [("NOTE", "no_drift")]
    assert slugs(drift(verdict, TOKENS, Claim())) == [("NOTE", "no_earlier_baseline")]


def test_a_hidden_latency_is_told_and_hidden_on_purpose_fails() -> None:
    metrics = {
        "ref": {"tokens_per_second": 1000.0, "ttft_p99_ms": 2916.0, "tpot_p99_ms": 20.0},
        "cand": {"tokens_per_second": 1100.0, "ttft_p99_ms": 9446.0, "tpot_p99_ms": 21.0},
    }
    verdict = patch(e2e_delta_pct=10.0, metrics=metrics)
    told = list(headline_integrity(verdict, TOKENS, Claim()))
    assert slugs(told) == [("FLAG", "hidden_regression")]
    assert told[0].numbers == {"metric": "ttft_p99_ms", "before": 2916.0, "after": 9446.0}
    alone = Claim(reported_metrics=[TOKENS])
    verdict.findings, verdict.compared = list(headline_integrity(verdict, TOKENS, alone)), True
    assert ("FAIL", "cherry_picked") in slugs(verdict.findings)
    assert verdict.record()["headline_integrity"] == "fail"


@pytest.mark.parametrize(
    ("real", "expected"), [(True, ("FLAG", "isolated_headline")), (False, ("FAIL", "isolated_only"))]
)
def test_a_microbenchmark_is_no_headline(real: bool, expected: tuple[str, str]) -> None:
    verdict = patch(e2e_delta_pct=10.0)
    reasons = list(isolated(verdict, Claim(isolated_speedup=3.03), real=real))
    assert slugs(reasons) == [expected]
    assert decide(reasons)[1] == ("replace_headline_with_e2e" if real else "eject")
    assert list(isolated(verdict, Claim(), real=real)) == []


def test_every_lever_has_one_class() -> None:
    assert not CLASS_A & CLASS_B
    assert NEEDS_QUALITY_GATE <= CLASS_B
    assert SIDE_EFFECTS.keys() <= CLASS_A | CLASS_B
    assert [class_of(name) for name in ("attention_backend", "speculative", "turbo")] == ["A", "B", None]


def test_conditions_are_compared_key_by_key() -> None:
    one = {"engine_options.slots": 4, "host.cpu": "a", "loadgen.min_duration_ms": 600_000}
    other = {"engine_options.slots": 6, "host.cpu": "a", "loadgen.min_duration_ms": 0, "environment.X": "1"}
    found = differences(one, other)
    assert found == {
        "engine_options.slots": (4, 6),
        "environment.X": (None, "1"),
        "loadgen.min_duration_ms": (600_000, 0),
    }
    assert differences(one, other, BOTH_MODES).keys() == {"engine_options.slots", "environment.X"}
    assert [option_of(key) for key in ("engine_options.cache_dtype", "resolved.kv_cache_dtype")] == [
        "kv_cache_dtype"
    ] * 2


def requests_in_flight() -> RequestTable:
    """Three requests, never more than two at a time."""

    def column(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array(values, dtype=np.int64)

    return RequestTable(
        seq=column(0, 1, 2),
        sample_index=column(0, 1, 2),
        prompt_tokens=column(10, 20, 40),
        output_tokens=column(1, 2, 4),
        issue_ns=column(0, 5, 10),
        first_token_ns=column(1, 6, 11),
        complete_ns=column(10, 30, 20),  # the first ends as the third begins
        finish_reason=["stop"] * 3,
        output_sha256=Digests(bytes(32 * 3)),
    )


def test_what_was_in_flight_at_one_time() -> None:
    assert peak_in_flight(requests_in_flight()) == (2, 66)


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
def test_a_side_effect_is_inert_only_when_nothing_came_near_it(
    batch_limit: int, pool_tokens: int | None, preempted: bool, without_effect: bool
) -> None:
    """Two requests and 66 tokens were in flight at most."""
    leg = SimpleNamespace(
        requests=requests_in_flight(),
        manifest=SimpleNamespace(engine=SimpleNamespace(configuration={"max_num_seqs": batch_limit})),
        engine_log=EngineLog(kv_cache_tokens=pool_tokens, preempted=preempted),
        run=SimpleNamespace(root="leg", engine_log="leg/engine.log"),
    )
    reasons = [inert(["kv_cache_tokens"], leg, leg, Claim())]  # type: ignore[arg-type]
    expected = ("NOTE", "inert_side_effect") if without_effect else ("FAIL", "unproven_side_effect")
    assert slugs(reasons) == [expected]
    assert patch(findings=reasons, compared=True).record()["same_conditions_ok"] is without_effect
    told = [inert(["kv_cache_tokens"], leg, leg, Claim(conditions="identical"))]  # type: ignore[arg-type]
    assert slugs(told) == [("FLAG", "side_effect_not_told") if without_effect else expected]


ENGINE_LOG = """(MainProcess pid=71) INFO 11-21 12:00:00 [x.py:1] hello
(EngineCore pid=72) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/llama', \
speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2, quantization=fp8, \
enforce_eager=False, kv_cache_dtype=fp8_e4m3, enable_prefix_caching=False, enable_chunked_prefill=True, seed=0
(EngineCore pid=72) INFO Using FLASH_ATTN backend.
(EngineCore pid=72) INFO GPU KV cache size: 1,234,567 tokens
"""


def test_the_engines_own_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text(ENGINE_LOG)
    log = read_engine_log(path)
    assert log.configuration["dtype"] == "bfloat16"
    assert log.configuration["kv_cache_dtype"] == "fp8_e4m3"
    assert log.configuration["max_model_len"] == 4096
    assert log.configuration["enforce_eager"] is False
    assert log.configuration["speculative"] is False
    assert (log.kv_cache_tokens, log.attention_backend) == (1_234_567, "FLASH_ATTN")
    assert log.dead_line is None
    path.write_text(ENGINE_LOG + "ERROR EngineCore encountered a fatal error\n")
    assert read_engine_log(path).dead_line == 5
    path.write_text("")
    assert read_engine_log(path).configuration == {}


def test_a_log_that_says_things_twice_is_not_one_log(tmp_path: Path) -> None:
    def record(key: str, pid: int, warning: str = "false") -> str:
        metadata = f'{{"is_error": false, "is_warning": {warning}, "pid": {pid}}}'
        return f':::MLLOG {{"key": "{key}", "value": 1, "time_ms": 0.1, "metadata": {metadata}}}\n'

    path = tmp_path / "detail.txt"
    path.write_text(record("a", 1) + record("b", 1) + record("generic_message", 1) * 2 + record("w", 1, "true") * 2)
    assert read_detail(path).repeated == {}
    path.write_text(record("a", 1) + record("b", 1) + record("a", 2))
    assert read_detail(path).repeated == {"a": 3}


def test_numbers_of_numpy_stand_in_the_record_as_plain_ones() -> None:
    reason = note("B-4/issue_delay", "", p99_ms=np.float64(1.5), late=np.int64(3))
    record = SignOff("bundle", NOISE_BAND_PCT, "closed", findings=[reason]).record()
    assert json.loads(orjson.dumps(record))["reasons"][0]["numbers"] == {"p99_ms": 1.5, "late": 3}
