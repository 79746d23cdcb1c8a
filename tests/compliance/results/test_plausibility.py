"""Rules on a single run: values that violate them, values that do not, and runs that they cannot judge."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compliance.accuracy.metrics import ROUGE
from compliance.accuracy.scores import DecodedResponse, TokenIds
from compliance.judge.verdict import Finding
from compliance.results.official_rules import performance_limits
from compliance.results.plausibility import (
    PADDING_LOOKED_AT,
    first_token_takes_a_step,
    first_tokens_not_held_back,
    first_tokens_on_the_line,
    first_tokens_plausible,
    not_padded,
    not_the_reference,
    repeats_cost_as_much,
    responses_plausible,
    scores_within_reach,
    shared_responses,
)
from compliance.results.run_evidence import RunEvidence
from qsl.tokenizers import ByteTokenizer
from runs.benchmarks import BENCHMARKS
from runs.numbers.numbers import LatencyNumbers, reported_numbers
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.observed import FOREIGN_SHARE
from runs.record.requests_log import RequestTable
from tests.signoff.forge.forged_runs import rebuild
from tests.support.files.editing import each_record, set_record
from tests.support.official import DATACENTER
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.records import request_table
from tests.support.runs.signoff_fixtures import FrozenRuns

MS = 1_000_000


def table(
    samples: Sequence[int], ttft_ms: Sequence[float], latency_ms: Sequence[float], tokens: int = 11
) -> RequestTable:
    """Return sequential requests. A negative time to first token means a missing one."""
    issue_ns = np.arange(len(samples)) * 10**9
    first_ns, done_ns = (issue_ns + np.array(times) * MS for times in (ttft_ms, latency_ms))
    return request_table(issue_ns, first_ns, done_ns, sample_index=samples, output_tokens=tokens)


def passed(finding: Finding | None) -> bool:
    assert finding is not None
    return finding.passed


# Shared responses
# -------------------------------------------------------------------------------------------------------


def responses(count: int, *same: int, different_ids: int = 40) -> list[tuple[int, TokenIds]]:
    """Return one response for each of so many samples; the named samples have the response of the first one."""
    ids = np.arange(50, dtype=np.int32) % different_ids
    return [(index, ids if index in same else ids + index) for index in range(count)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (responses(60), True),
        (responses(60) * 2, True),  # the same sample may come again
        (responses(61, 60), True),  # two pairs: one article twice
        (responses(62, 60, 61), False),
        (responses(60, *range(60), different_ids=15), None),  # repeating texts may be equal
        (responses(60, *range(60), different_ids=16), False),
        ([], None),
        (responses(10_000, *range(10)), True),
        (responses(10_000, *range(11)), False),
    ],
)
def test_equal_responses_to_different_samples_are_reported(
    samples: list[tuple[int, TokenIds]], expected: bool | None
) -> None:
    finding = shared_responses(samples)
    assert (None if finding is None else finding.passed) is expected
    if len(samples) == 62:
        assert finding is not None
        assert finding.found == "3 of 62 (for example 0, 60, 61)"


# Repetitions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
@pytest.mark.parametrize(
    ("ttft_ms", "latency_ms", "expected"),
    [(20, 100, True), (8, 40, True), (90, 400, True), (20, 39, False), (7, 100, False)],
)
def test_repeated_samples_that_are_too_fast_are_reported(
    scenario: str, ttft_ms: float, latency_ms: float, expected: bool
) -> None:
    times = table([*range(30)] * 2, [20.0] * 30 + [ttft_ms] * 30, [100.0] * 30 + [latency_ms] * 30)
    finding = repeats_cost_as_much(times, scenario)
    assert passed(finding) is expected
    if ttft_ms == 7:  # cache of prompts alone
        assert finding is not None
        assert finding.found == "0.35 (median time to first token)"


@pytest.mark.parametrize(
    ("share", "foreign", "lag_ms", "severity"),
    [
        (0.33, 0.0, 0.0, "error"),
        (0.33, FOREIGN_SHARE, 20.0, "error"),  # idle host
        (0.33, 0.875, 0.0, "warning"),
        (0.33, 0.15, 0.0, "error"),  # too small to explain it
        (0.02, 0.875, 1.0, "error"),
        (0.08, 0.77, 8.0, "warning"),  # the first queries waited for the loop
    ],
)
def test_fast_repetitions_on_a_busy_host_are_a_note(share: float, foreign: float, lag_ms: float, severity: str) -> None:
    times = table([*range(30)] * 2, [20.0] * 30 + [20 * share] * 30, [100.0] * 60)
    finding = repeats_cost_as_much(times, "Server", foreign, lag_ms * MS)
    assert finding is not None
    assert (finding.passed, finding.severity) == (False, severity)


@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
@pytest.mark.parametrize("cached", ["answers", "first tokens"])
@pytest.mark.parametrize(("period", "is_warned"), [(2, True), (5, True), (20, False)])
def test_a_share_of_repetitions_from_a_cache_is_reported(
    scenario: str, cached: str, period: int, is_warned: bool
) -> None:
    new_ms = [20.0 + number % 30 for number in range(60)]
    ttft_ms = [1.0 if number % period == 0 else value for number, value in enumerate(new_ms)]
    longer_ms = 80.0 if cached == "first tokens" else 0.0
    latency_ms = [new_latency_ms + 80.0 for new_latency_ms in new_ms] + [
        first_ms + (longer_ms if first_ms == 1 else 80.0) for first_ms in ttft_ms
    ]
    finding = repeats_cost_as_much(table([*range(60)] * 2, new_ms + ttft_ms, latency_ms), scenario)
    assert finding is not None
    assert (finding.passed, finding.severity) == ((False, "warning") if is_warned else (True, "pass"))


def test_repetitions_with_widely_spread_times_are_not_reported() -> None:
    chance = np.random.default_rng(1)
    for _ in range(200):
        times_ms = chance.lognormal(3, 1, 80)
        finding = repeats_cost_as_much(table([*range(40)] * 2, list(times_ms), list(times_ms + 1)), "Server")
        assert finding is not None
        assert finding.severity != "warning"


@pytest.mark.parametrize(
    ("samples", "ttft_ms", "scenario"),
    [([*range(30), *range(19)], 1.0, "Server"), ([0] * 49, 1.0, "Server"), ([], 1.0, "Server"),
     ([*range(30)] * 2, -1.0, "Offline")],
)  # fmt: skip
def test_too_few_or_untimed_repetitions_are_not_judged(samples: list[int], ttft_ms: float, scenario: str) -> None:
    count = len(samples)
    assert repeats_cost_as_much(table(samples, [ttft_ms] * count, [2.0] * count), scenario) is None


# First tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttft_ms", "latency_ms", "tokens", "scenario", "expected"),
    [
        (5.0, 105.0, 11, "SingleStream", True),  # 10 later tokens in 100 ms: 10 ms each
        (4.9, 104.9, 11, "SingleStream", False),
        (0.1, 100.0, 11, "Server", None),
        (-1.0, 100.0, 11, "SingleStream", None),
        (0.1, 0.1, 1, "SingleStream", None),
    ],
)
def test_a_first_token_faster_than_one_step_is_reported(
    ttft_ms: float, latency_ms: float, tokens: int, scenario: str, expected: bool | None
) -> None:
    finding = first_token_takes_a_step(table([0, 1], [ttft_ms] * 2, [latency_ms] * 2, tokens=tokens), scenario)
    assert (None if finding is None else finding.passed) is expected


# Texts ----------------------------------------------------------------------------------------------------------------

REFERENCE = "The council voted on Monday to close the old bridge.\nTraffic will be led round by the mill."


@pytest.mark.parametrize(
    ("prediction", "verbatim"),
    [
        (REFERENCE, True),
        (REFERENCE.replace("\n", "  "), True),
        (REFERENCE[:45], True),  # cut at the longest output
        (REFERENCE[:45] + "�", True),
        (REFERENCE[:39], False),  # too short for a verdict
        ("The council voted on Monday to close the bridge. Traffic will be led round.", False),
        ("On Monday. " + REFERENCE, False),
        ("", False),
    ],
)
def test_predictions_that_quote_the_reference_text_are_reported(prediction: str, verbatim: bool) -> None:
    """One equal text in a hundred may be chance."""
    predictions = ["A text of its own that nobody else wrote."] * 99
    assert passed(not_the_reference([*predictions, prediction], [REFERENCE] * 100))
    assert passed(not_the_reference([*predictions[1:], *[prediction] * 2], [REFERENCE] * 100)) is not verbatim
    assert not_the_reference([], []) is None


def words(texts: list[str]) -> list[list[int]]:
    """Return one ID for each word."""
    return [[0] * len(text.split()) for text in texts]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([6] * 100, None),
        ([5 + 16] * 100, None),
        ([*[6] * 99, 128], None),
        ([*[6] * 98, 128, 128], "2 of 100 (largest surplus: 123 IDs)"),
    ],
)
def test_padded_outputs_are_reported(ids: list[int], expected: str | None) -> None:
    finding = not_padded(ids, ["five words and a blank "] * 100, words)
    assert finding is not None
    assert (finding.passed, expected in (None, finding.found)) == (expected is None, True)
    assert not_padded([], [], words) is None


def test_outputs_are_sampled_for_padding_until_one_is_padded() -> None:
    reviewed: list[int] = []

    def words(batch: list[str]) -> list[list[int]]:
        reviewed.append(len(batch))
        return [[1] * 6 for _ in batch]

    count = 2 * PADDING_LOOKED_AT + 1
    assert passed(not_padded([6] * count, ["text"] * count, words))
    assert reviewed == [PADDING_LOOKED_AT]
    padded = [128 if place % 50 == 0 else 6 for place in range(count)]
    finding = not_padded(padded, ["text"] * count, words)
    assert not passed(finding)
    assert str(finding.found).startswith("81 of 4001 (largest")


@pytest.mark.parametrize(("factor", "expected"), [(1.09, None), (1.11, "1.110 (rouge2 17.6573)")])
def test_scores_outside_their_possible_range_are_reported(factor: float, expected: str | None) -> None:
    reference = {name: target.reference for name, target in DATACENTER.targets.items()}
    finding = scores_within_reach(ROUGE, {**reference, "rouge2": reference["rouge2"] * factor}, DATACENTER.targets)
    assert passed(finding) is (expected is None)
    assert finding.found.startswith(expected or "")


# On a run's responses
# ---------------------------------------------------------------------------------------------------


def failed_on(texts: list[str], references: list[str]) -> set[str]:
    """Return the checks that fail for the responses of a byte-tokenized run."""
    tokenizer = ByteTokenizer()
    responses = [
        DecodedResponse(index, np.array(list(text.encode()), dtype=np.int32), text) for index, text in enumerate(texts)
    ]
    return {check.text for check in responses_plausible(responses, references, tokenizer) if not check.passed}


def test_implausible_responses_of_a_run_violate_their_rules() -> None:
    references = [f"The reference of article {number}: a bridge was closed, a mill was built." for number in range(30)]
    predictions = [f"What a model makes of article {number}, with verbs and nouns." for number in range(30)]
    assert failed_on(predictions, references) == set()
    assert failed_on([text.ljust(128) for text in predictions], references) == {
        "outputs padded with token IDs that leave no text"
    }
    assert failed_on([*predictions[:-3], *predictions[:1] * 3], references) == {"samples with an identical output"}
    assert failed_on([text[:64] for text in references], references) == {
        "outputs that equal the beginning of their reference text"
    }


def ttft(least_ms: float, p50_ms: float, p90_ms: float) -> LatencyNumbers:
    values_ns = {"min": round(least_ms * 1e6), "p50": round(p50_ms * 1e6)}
    return LatencyNumbers.model_validate(dict.fromkeys(LatencyNumbers.model_fields, round(p90_ms * 1e6)) | values_ns)


@pytest.mark.parametrize(
    ("least_ms", "p50_ms", "p90_ms", "limit_ms", "p10_ms", "passes"),
    [
        (1500.5, 1750.4, 1751.4, 2000, None, False),  # as in published results
        (10.0, 1750.3, 1750.5, 2000, None, False),
        (1664.0, 1750.0, 1820.0, 2000, None, False),  # with a jitter of 5 %
        (20.0, 1750.0, 1820.0, 2000, 1680.0, False),  # except one
        (27.3, 523.6, 1809.3, 2000, 180.0, True),  # slow engine
        (27.3, 1500.0, 1800.0, 2000, None, True),
        (99.0, 100.0, 100.2, 2000, None, True),  # too early for any gain
        (449.0, 450.0, 452.0, 500, None, False),
        (1500.5, 1750.4, 1751.4, 0, None, None),
    ],
)
def test_first_tokens_delayed_to_the_limit_are_reported(
    least_ms: float, p50_ms: float, p90_ms: float, limit_ms: float, p10_ms: float | None, passes: bool | None
) -> None:
    p10_ns = None if p10_ms is None else p10_ms * 1e6
    finding = first_tokens_not_held_back(ttft(least_ms, p50_ms, p90_ms), limit_ms * 1e6, p10_ns)
    assert (None if finding is None else finding.passed) is passes


@pytest.mark.parametrize(
    ("foreign", "lag_p99_ms", "severity"),
    [
        (0.0, 400.0, "error"),  # idle host
        (0.9, 5.0, "error"),  # the loop reported them
        (0.9, 400.0, "warning"),
    ],
)
def test_delayed_first_tokens_on_a_busy_host_are_a_note(
    runs: DummyRuns, tmp_path: Path, foreign: float, lag_p99_ms: float, severity: str
) -> None:
    run = runs.copy(tmp_path / "run", "Server")

    def delay_first_token(request: dict[str, Any]) -> dict[str, Any]:
        first_ns = request["issue_ns"] + (700 + request["seq"] % 20) * MS
        return request | {"first_token_ns": first_ns, "complete_ns": first_ns + request["output_tokens"] * MS}

    each_record(run, delay_first_token)
    rebuild(run, 1)
    cores = json.loads(run.manifest.read_bytes())["observed"]["contention"]
    foreign_s = foreign * cores["window_s"] * cores["usable_cores"]
    busy = {"busy_cpu_s": cores["own_cpu_s"] + foreign_s, "foreign_cpu_s": foreign_s}
    lag = {"observed.loop_lag.p99_ms": lag_p99_ms, "observed.loop_lag.worst_ms": 500.0}
    set_record(run, {"observed.contention": cores | busy, **lag})
    findings = [
        finding for finding in first_tokens_plausible(FinishedRun(run)) if finding.rule == "plausible-first-tokens-held"
    ]
    assert (findings[0].passed, findings[0].severity) == (False, severity)


@pytest.mark.parametrize(
    ("held_ms", "jitter", "tokens", "passes"),
    [
        (0.0, 0.0, (20, 128), True),
        (1750.0, 0.05, (20, 128), False),
        (1750.0, 0.4, (20, 128), False),  # with any jitter
        (1300.0, 0.5, (60, 128), False),  # also if most responses are long
        (300.0, 0.2, (20, 128), True),  # too early for any gain
        (1750.0, 0.2, (128, 129), None),  # responses of one length allow no verdict
    ],
)
@pytest.mark.parametrize("queued_ms", [50.0, 900.0])
def test_first_tokens_delayed_by_different_times_are_reported(
    held_ms: float, jitter: float, tokens: tuple[int, int], passes: bool | None, queued_ms: float
) -> None:
    """Requests of honest engines differ in their pace and in their waiting time."""
    draw = np.random.default_rng(5)
    count = 10_000
    output = draw.integers(*tokens, count)
    ttft_ms = draw.exponential(queued_ms, count) + 20
    pace_ms = 60 * draw.lognormal(0, 0.2, count)
    done_ms = ttft_ms + pace_ms * (output - 1)
    told_ms = np.minimum(np.maximum(ttft_ms, held_ms * (1 + jitter * draw.uniform(-1, 1, count))), done_ms)
    table = request_table(np.zeros(count), told_ms * MS, done_ms * MS, output_tokens=output)
    finding = first_tokens_on_the_line(table, 2e9)
    assert (None if finding is None else finding.passed) is passes


@pytest.mark.parametrize(
    ("benchmark", "tokens", "broken"),
    [
        ("llama2-70b", 294.45, False), ("llama2-70b", 266.0, False), ("llama2-70b", 2 * 294.45, True),
        ("llama2-70b", 147.0, True), ("llama3_1-8b", 2 * 294.45, None),
    ],
)  # fmt: skip
def test_tokens_per_sample_outside_the_accuracy_target_are_reported(
    benchmark: str, tokens: float, broken: bool | None, frozen: FrozenRuns
) -> None:
    """The benchmarks are those whose target has a number of tokens."""
    run = RunEvidence(RunDir(frozen("off-1")), benchmark_override=BENCHMARKS[benchmark])
    rate = reported_numbers(run.detail).samples_per_second or 0
    run.detail.values["result_tokens_per_second"] = tokens * rate
    outcomes = [finding.passed for finding in performance_limits(run) if finding.rule == "perf-tokens-per-sample"]
    assert len(outcomes) == (0 if broken is None else 2)
    assert broken is None or all(outcomes) is not broken
