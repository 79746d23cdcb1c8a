"""Rules on a single run that every honest system meets, on any hardware.

Audits compare runs. A cheat that acts in all runs, or that detects an audit, passes them. These rules use the files of
one run. Each limit is far from the values of honest systems, so that false alarms are rare.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compliance.accuracy.metrics import Metric, Scores
from compliance.accuracy.scores import DecodedResponse, TokenIds
from compliance.judge.rule import OURS, RERUN, check_of, decides
from compliance.judge.verdict import Finding, compared
from qsl.tokenizers import Tokenizer
from runs.benchmark import Target
from runs.numbers.numbers import LatencyNumbers, reported_numbers
from runs.record.finished_run import FinishedRun
from runs.record.observed import FOREIGN_SHARE
from runs.record.requests_log import NO_TIME, RequestTable

# Limits of plausible-shared-answers: two articles may be identical. Outputs with fewer distinct token IDs do not count,
# because weak models repeat short loops.
DIFFERENT_IDS = 16
MIN_SHARED = 3
SHARED_SHARE = 0.001
# Minimum length of a prediction that equals the beginning of its reference text, and the allowed share of such outputs.
VERBATIM_CHARACTERS = 40
VERBATIM_SHARE = 0.01
# Padding is token IDs without text: special IDs, and blanks at the ends, which scoring strips. Tokenizing the text
# again gives about as many IDs as the model generated (the embedded model generates up to 4 more).
PADDING_IDS = 16
PADDING_SHARE = 0.01
# Number of outputs in the first sample; it is small because tokenizing is slow. If 1% of all outputs are padded, the
# sample misses all of them with probability 2e-9.
PADDING_LOOKED_AT = 2_000
# Quantized and full-precision models of the benchmark are within 1% or 2% of the reference scores.
ROUGE_SHARE = 1.1
# Minimum number of repeated samples, and minimum latency relative to the first occurrence. Honest short runs reach 0.67
# while the machine warms up.
REPEATED_SAMPLES = 20
REPEAT_SHARE = 0.4
# A cache that holds only some responses does not change the median. In honest runs, no repetition was faster than 0.4 ×
# the fifth percentile of the first occurrences.
QUICKEST_PERCENTILE = 5
QUICK_SHARE = 0.1
# The first token needs a step over the whole prompt, each later token a step over one token. A TTFT below this share of
# the time per later token is implausible.
FIRST_TOKEN_SHARE = 0.5

# First tokens that are held back have nearly equal TTFTs. In such published Server results (v6.1), p90 is 0.01% to 0.1%
# above p50 and the minimum is 0.86 × p50. In honest results, p90 is 1.9 to 3.6 × p50 and the minimum 0.1 to 0.2 × p50.
HELD_APART = 0.01
HELD_SPAN = 0.25  # share of p50 between the low end and p90
HELD_LIMIT_SHARE = 0.25  # share of the TTFT limit; below it, holding tokens back gains nothing

# First tokens may be held back for random times. Then a line fitted to the decode time over the number of tokens starts
# below zero. For an honest engine it starts at zero. Limits: five standard errors and a quarter of the median TTFT.
HELD_ERRORS = 5.0
HELD_LINE = 0.25
MIN_LINE = 64

EncodeBatch = Callable[[list[str]], Sequence[Sequence[int]]]


@decides("plausible", ("plausible-shared-answers", "error", OURS, "samples with an identical output", RERUN))
def shared_responses(responses: Iterable[tuple[int, TokenIds]]) -> Finding | None:
    """Compare the responses of different samples, because a system that skips samples returns one fixed text.

    Return None if no response has at least 16 distinct token IDs.

    Args:
        responses: Sample index and output token IDs, in any order; indices may repeat.
    """
    samples_of: defaultdict[bytes, set[int]] = defaultdict(set)
    for sample_index, ids in responses:
        if len(set(ids.tolist())) >= DIFFERENT_IDS:
            samples_of[ids.tobytes()].add(sample_index)
    if not samples_of:
        return None
    largest = max(samples_of.values(), key=len)
    samples = len(set().union(*samples_of.values()))
    allowed = max(MIN_SHARED - 1, int(samples * SHARED_SHARE))
    return compared(
        "plausible-shared-answers",
        len(largest) <= allowed,
        f"{len(largest)} of {samples} (for example {', '.join(map(str, sorted(largest)[:3]))})",
        f"at most {allowed} (outputs with at least {DIFFERENT_IDS} distinct token IDs)",
    )


@decides(
    "plausible",
    ("plausible-repeats", "error", OURS, "latency of repeated samples relative to their first occurrence", RERUN),
)
def repeats_cost_as_much(
    requests: RequestTable, loadgen_scenario: str, foreign: float = 0.0, lag_ns: float = 0.0
) -> Finding | None:
    """Compare the latencies of repeated samples with the latencies of their first occurrence.

    Repetitions may be faster because other processes used the cores, or delayed the event loop, only during the first
    occurrences. A difference that this explains is a warning. Some repetitions that are far faster than all new samples
    are a warning too, because the manifest lacks other uses of the accelerators. Return None for fewer than 20 repeated
    samples or another scenario.

    Args:
        foreign: share of the cores' time that other processes used during the run.
        lag_ns: lag of the event loop at p99.
    """
    if loadgen_scenario not in ("SingleStream", "Server") or not len(requests):
        return None
    order = np.lexsort((requests.seq, requests.sample_index))
    sample = requests.sample_index[order]
    new = np.concatenate(([True], sample[1:] != sample[:-1]))
    first_of = np.maximum.accumulate(np.where(new, np.arange(len(sample)), 0))
    if len(np.unique(sample[~new])) < REPEATED_SAMPLES:
        return None
    shares, late, quick = {}, {}, {}
    for name, end_ns in (("latency", requests.complete_ns), ("time to first token", requests.first_token_ns)):
        if (end_ns == NO_TIME).any():
            continue
        time_ns = np.maximum(1, (end_ns - requests.issue_ns)[order])
        shares[name] = float(np.median((time_ns / time_ns[first_of])[~new]))
        quickest_ns = REPEAT_SHARE * np.percentile(time_ns[new], QUICKEST_PERCENTILE)
        quick[name] = float((time_ns[~new] < quickest_ns).mean())
        late[name] = float(np.median((time_ns / np.maximum(1, time_ns[first_of] - 2 * lag_ns))[~new]))
    name, share = min(shares.items(), key=lambda item: item[1])
    finding = compared(
        "plausible-repeats", share >= REPEAT_SHARE, f"{share:.2f} (median {name})", f"at least {REPEAT_SHARE:g}"
    )
    if not finding.passed:
        explained = share >= REPEAT_SHARE * (1 - foreign) or late[name] >= REPEAT_SHARE
        return _to_ask(finding) if foreign > FOREIGN_SHARE and explained else finding
    # Return the finding on the median, unless too many repetitions are faster than nearly all first occurrences.
    name, share = max(quick.items(), key=lambda item: item[1])
    if share <= QUICK_SHARE:
        return finding
    quickest = f"below {REPEAT_SHARE:g} × the {QUICKEST_PERCENTILE}th percentile of new samples"
    shown = f"{share:.0%} of repetitions have a {name} {quickest}"
    return replace(finding, severity="warning", found=shown, required=f"at most {QUICK_SHARE:.0%}")


@decides(
    "plausible",
    ("plausible-first-token", "error", OURS, "time to first token, compared with the time per later token", RERUN),
)  # fmt: skip
def first_token_takes_a_step(requests: RequestTable, loadgen_scenario: str) -> Finding | None:
    """Compare TTFT with the time per later token. Only in SingleStream is no other query computed at that time."""
    has_later_tokens = requests.output_tokens >= 2
    if loadgen_scenario != "SingleStream" or not has_later_tokens.any() or (requests.first_token_ns == NO_TIME).any():
        return None
    ttft_ns = requests.first_token_ns[has_later_tokens] - requests.issue_ns[has_later_tokens]
    tpot_ms = float(np.median(requests.tpot_ns())) / 1e6
    ttft_ms = float(np.median(ttft_ns)) / 1e6
    return compared(
        "plausible-first-token",
        ttft_ms >= FIRST_TOKEN_SHARE * tpot_ms,
        f"{ttft_ms:.3f} ms (median; {tpot_ms:.3f} ms per later token)",
        f"at least {FIRST_TOKEN_SHARE * tpot_ms:.3f} ms",
    )


@decides(
    "plausible",
    ("plausible-first-tokens-held", "error", OURS, "spread of the time to first token", RERUN),
)  # fmt: skip
def first_tokens_not_held_back(
    ttft_ns: LatencyNumbers | None, limit_ns: float, p10_ns: float | None = None
) -> Finding | None:
    """Check that the system does not hold first tokens back. This would lower TPOT while TTFT stays within its limit.

    Args:
        ttft_ns: TTFT of a Server run.
        limit_ns: Effective TTFT limit.
        p10_ns: Tenth percentile of TTFT, by the request log. Default: the minimum is used.
    """
    if ttft_ns is None or limit_ns <= 0:
        return None
    low, low_ns = ("minimum", ttft_ns.min) if p10_ns is None else ("p10", p10_ns)
    alike = ttft_ns.p90 - ttft_ns.p50 <= HELD_APART * ttft_ns.p50 or ttft_ns.p90 - low_ns <= HELD_SPAN * ttft_ns.p50
    return compared(
        "plausible-first-tokens-held",
        not (alike and ttft_ns.p50 >= HELD_LIMIT_SHARE * limit_ns),
        f"{low} {low_ns / 1e6:,.1f} ms, p50 {ttft_ns.p50 / 1e6:,.1f} ms, p90 {ttft_ns.p90 / 1e6:,.1f} ms",
        f"p90 - p50 above {HELD_APART:.0%} of p50 and p90 - {low} above {HELD_SPAN:.0%} of p50, or p50 below "
        f"{HELD_LIMIT_SHARE:.0%} of the limit of {limit_ns / 1e6:,.0f} ms",
        p50_ns=ttft_ns.p50,
        p90_ns=ttft_ns.p90,
        low_ns=low_ns,
    )


def first_tokens_on_the_line(requests: RequestTable, limit_ns: float) -> Finding | None:
    """Check that the decode time of a Server run, extrapolated to zero further tokens, is not below zero."""
    selected = (requests.output_tokens > 1) & (requests.first_token_ns != NO_TIME)
    tokens = (requests.output_tokens[selected] - 1).astype(np.float64)
    off = tokens - tokens.mean() if len(tokens) else tokens
    if len(tokens) < MIN_LINE or not off.any():
        return None
    spans_ns = (requests.complete_ns - requests.first_token_ns)[selected].astype(np.float64)
    ttft_ns = float(np.median((requests.first_token_ns - requests.issue_ns)[selected]))
    slope = float(off @ spans_ns / (off @ off))
    begin_ns = float(spans_ns.mean() - slope * tokens.mean())
    rest = spans_ns - begin_ns - slope * tokens
    error_ns = float(np.sqrt(rest @ rest / (len(rest) - 2) * (1 / len(rest) + tokens.mean() ** 2 / (off @ off))))
    is_held_back = begin_ns < -HELD_LINE * ttft_ns and begin_ns < -HELD_ERRORS * error_ns
    return compared(
        "plausible-first-tokens-held",
        not (is_held_back and ttft_ns >= HELD_LIMIT_SHARE * limit_ns),
        f"{begin_ns / 1e6:,.0f} ms ± {error_ns / 1e6:,.0f} ms (p50 of TTFT: {ttft_ns / 1e6:,.0f} ms)",
        f"above {-HELD_LINE:.0%} of TTFT, or TTFT below {HELD_LIMIT_SHARE:.0%} of its limit",
        begin_ns=begin_ns,
        error_ns=error_ns,
        text="time after the first token, extrapolated to no further tokens",
    )


@decides(
    "plausible",
    ("plausible-reference-texts", "error", OURS, "outputs that equal the beginning of their reference text", RERUN),
)
def not_the_reference(predictions: Sequence[str], references: Sequence[str]) -> Finding | None:
    """Compare predictions with reference texts. A system that knows the dataset may return them."""
    if not predictions:
        return None
    verbatim = sum(_is_verbatim(*pair) for pair in zip(predictions, references, strict=True))
    allowed = int(len(predictions) * VERBATIM_SHARE)
    return compared(
        "plausible-reference-texts", verbatim <= allowed, f"{verbatim} of {len(predictions)}", f"at most {allowed}"
    )


def _is_verbatim(prediction: str, reference: str) -> bool:
    predicted, expected = " ".join(prediction.split()), " ".join(reference.split())
    # A text that was cut within a character ends with a replacement character.
    predicted = predicted.rstrip("�")
    return len(predicted) >= min(VERBATIM_CHARACTERS, len(expected)) > 0 and expected.startswith(predicted)


@decides("plausible", ("plausible-padding", "error", OURS, "outputs padded with token IDs that leave no text", RERUN))
def not_padded(id_counts: Sequence[int], predictions: Sequence[str], encode_batch: EncodeBatch) -> Finding | None:
    """Compare the number of token IDs of each output with its text; padding would raise tokens/s."""
    if not predictions:
        return None
    for places in _looked_at(id_counts):
        needed = encode_batch([predictions[place].strip() for place in places])
        surplus = [id_counts[place] - len(ids) for place, ids in zip(places, needed, strict=True)]
        padded = sum(ids > PADDING_IDS for ids in surplus)
        if not padded:
            break
    allowed = int(len(predictions) * PADDING_SHARE)
    return compared(
        "plausible-padding",
        padded <= allowed,
        f"{padded} of {len(surplus)} (largest surplus: {max(surplus)} IDs)",
        f"at most {allowed} with a surplus above {PADDING_IDS} IDs",
    )


def _looked_at(id_counts: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield a random sample of outputs, then all outputs. The seed depends on all lengths: no system can predict it."""
    count = len(id_counts)
    if count > 2 * PADDING_LOOKED_AT:
        yield random.Random(repr(id_counts)).sample(range(count), PADDING_LOOKED_AT)
    yield range(count)


@decides("plausible", ("plausible-scores", "error", OURS, "highest score relative to its reference score", RERUN))
def scores_within_reach(metric: Metric, scores: Scores, targets: Mapping[str, Target]) -> Finding:
    """Check that no score is above the scores that this model can reach. The official checker has no upper limit."""
    share, name = max((scores[name] / targets[name].reference, name) for name in metric.means if name in targets)
    return compared(
        "plausible-scores", share <= ROUGE_SHARE, f"{share:.3f} ({name} {scores[name]:.4f})", f"at most {ROUGE_SHARE:g}"
    )


def _ended_with_errors(run: FinishedRun) -> str:
    return "perf-errors is violated" if run.detail.error_count else ""


@decides(
    "plausible",
    needs=("log", "record"),
    applies=_ended_with_errors,
    also=("plausible-repeats", "plausible-first-token"),
)
def requests_plausible(run: FinishedRun) -> list[Finding]:
    """Apply the rules that need the request log of a performance run."""
    if (table := run.requests) is None:
        return []
    scenario = run.detail.scenario
    findings = repeats_cost_as_much(table, scenario, *_disturbance(run)), first_token_takes_a_step(table, scenario)
    return [finding for finding in findings if finding is not None]


def _disturbance(run: FinishedRun) -> tuple[float, float]:
    """Return the share of CPU time that other processes used, and the p99 of the event loop's delay in ns."""
    observed = run.manifest.observed if run.manifest is not None else None
    if observed is None:
        return 0.0, 0.0
    return observed.foreign_share, observed.loop_lag.p99_ms * 1e6 if observed.loop_lag is not None else 0.0


@decides("plausible", needs=("log", "numbers"), applies=_ended_with_errors, also=("plausible-first-tokens-held",))
def first_tokens_plausible(run: FinishedRun) -> list[Finding]:
    """Apply the rules on the first tokens of a Server run."""
    if run.detail.scenario != "Server":
        return []
    logged_ns = run.detail.get("requested_server_ttft_latency")
    limit_ns = float(logged_ns) if isinstance(logged_ns, int | float) else 0.0
    table, p10_ns, (foreign, lag_ns) = run.requests, None, _disturbance(run)
    if table is not None and len(table) and not (table.first_token_ns == NO_TIME).any():
        p10_ns = float(np.percentile(table.first_token_ns - table.issue_ns, 10))
    held_back = first_tokens_not_held_back(reported_numbers(run.detail).ttft_ns, limit_ns, p10_ns)
    # This harness reports tokens to LoadGen immediately. So its engine held them back, unless other processes delayed
    # the event loop. Another harness may report tokens late, so its finding is a warning.
    late = held_back is not None and foreign > FOREIGN_SHARE and lag_ns >= HELD_SPAN * held_back.numbers["p50_ns"]
    findings = (
        _to_ask(held_back) if run.manifest is None or late else held_back,
        _to_ask(None if table is None else first_tokens_on_the_line(table, limit_ns)),
    )
    return [finding for finding in findings if finding is not None]


def _to_ask(finding: Finding | None) -> Finding | None:
    return finding if finding is None or finding.passed else replace(finding, severity="warning")


def responses_plausible(
    responses: Sequence[DecodedResponse], references: Sequence[str], tokenizer: Tokenizer
) -> list[Finding]:
    """Apply the rules on scored responses. `references` has the reference text of each response, in the same order."""
    texts = [response.text.strip() for response in responses]
    findings = (
        shared_responses((response.sample_index, response.ids) for response in responses),
        not_padded([len(response.ids) for response in responses], texts, tokenizer.encode_batch),
        not_the_reference(texts, references),
    )
    return [finding for finding in findings if finding is not None]


PERFORMANCE = tuple(map(check_of, (first_tokens_plausible, requests_plausible)))
