"""What no honest system does, whatever its hardware: rules on a single run, without a second one to compare with.

Audits compare runs, and a cheat that acts in all runs alike, or that notices an audit, passes them. These rules look at
one run's own record. Each limit lies far from what honest systems show, so that a finding means something.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compliance.accuracy.metrics import Metric, Scores
from compliance.accuracy.scores import DecodedResponse, TokenIds
from compliance.judge.check import check, decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS, RERUN
from qsl.tokenizers import Tokenizer
from runs.benchmark import Target
from runs.numbers.numbers import LatencyNumbers, reported_numbers
from runs.record.finished_run import FinishedRun
from runs.record.observed import FOREIGN_SHARE
from runs.record.requests_log import NO_TIME, RequestTable

# The same text for different articles: two of them may be the same article. Outputs of few different IDs do not count:
# a weak model falls into the same loop over and over.
DIFFERENT_IDS = 16
MIN_SHARED = 3
SHARED_SHARE = 0.001
# A prediction that is a stretch of the reference from its start, at least so long.
VERBATIM_CHARACTERS = 40
VERBATIM_SHARE = 0.01
# IDs that leave no trace in the text: special ones, and blanks at the ends, which scoring strips. Tokenizing the text
# again gives about as many IDs as the model made (the embedded model's responses have up to 4 more than their text).
PADDING_IDS = 16
PADDING_SHARE = 0.01
# To tokenize takes long. Where the share is 1 %, none of so many outputs is padded in 2 of 10^9 cases.
PADDING_LOOKED_AT = 2_000
# Quantized and full-precision models of the benchmark lie within 1 or 2 % of the reference scores.
ROUGE_SHARE = 1.1
# Repeated samples against their own first occurrence. Short honest runs come down to 0.67 as the machine warms up.
REPEATED_SAMPLES = 20
REPEAT_SHARE = 0.4
# Some of them from a cache leave the median alone. Where repetitions and first occurrences cost the same, no more of
# the ones than of the others are below the fifth percentile; below 0.4 of it none was seen in honest runs.
QUICKEST_PERCENTILE = 5
QUICK_SHARE = 0.1
# One step of a model alone gives the first token (over the whole prompt) or the next one (over one token).
FIRST_TOKEN_SHARE = 0.5

# Times to the first token that pile up at one value, far from none: reported when it suited, not when it was there. In
# published Server results of v6.1 that did so the median and the 90th percentile are 0.01 to 0.1 % apart, and the
# smallest is 0.86 of the median; in honest ones the 90th percentile is 1.9 to 3.6 of it, and the smallest 0.1 to 0.2.
HELD_APART = 0.01
HELD_SPAN = 0.25  # of the median: from the low end, jitter and all
HELD_LIMIT_SHARE = 0.25  # of the limit; below it nothing is gained by holding back

# Or they are reported near one value with any jitter: then the time from first token to last, as a line over the number
# of tokens, begins below zero, by as long as tokens that were there waited. Of an honest engine it begins at zero,
# whatever its pace; five standard errors and a quarter of the median time to first token are far from that.
HELD_ERRORS = 5.0
HELD_LINE = 0.25
MIN_LINE = 64

EncodeBatch = Callable[[list[str]], Sequence[Sequence[int]]]


@decides("plausible", ("plausible-shared-answers", "error", OURS, "different samples have different outputs", RERUN))
def shared_responses(responses: Iterable[tuple[int, TokenIds]]) -> Finding | None:
    """Do different samples get different responses? A system that drops samples answers them with a canned text. None
    when there is no response of at least 16 different IDs.

    Args:
        responses: sample index and output IDs, in any order; indices may repeat.
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
        "",
        len(largest) <= allowed,
        f"one output for {len(largest)} of {samples} samples (such as {', '.join(map(str, sorted(largest)[:3]))})",
        f"at most {allowed} samples with the same output of {DIFFERENT_IDS} different IDs or more",
    )


@decides("plausible", ("plausible-repeats", "error", OURS, "repeated samples cost as much as new ones", RERUN))
def repeats_cost_as_much(
    requests: RequestTable, loadgen_scenario: str, foreign: float = 0.0, lag_ns: float = 0.0
) -> Finding | None:
    """Does a sample take as long when it comes again? In SingleStream and Server, where each sample has its own time.

    Others that used the cores when the samples came first, and later did not, make repetitions shorter, by as much as
    they left the run less, or as its loop was late, for which a request waits twice; so far it is a warning. So are
    some repetitions far quicker than any new sample: what else used the accelerators is not in the manifest. None where
    fewer than 20 samples were repeated or the scenario is another.

    Args:
        foreign: share of the cores that others used while the run was made.
        lag_ns: how late the loop was, at p99.
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
    found = compared(
        "plausible-repeats",
        "",
        share >= REPEAT_SHARE,
        f"the median repetition has {share:.2f} of its first occurrence's {name}",
        f"at least {REPEAT_SHARE:g}",
    )
    if not found.passed:
        explained = share >= REPEAT_SHARE * (1 - foreign) or late[name] >= REPEAT_SHARE
        return _to_ask(found) if foreign > FOREIGN_SHARE and explained else found
    # The finding on the median, unless more repetitions than chance allows are quicker than nearly any new sample.
    name, share = max(quick.items(), key=lambda item: item[1])
    if share <= QUICK_SHARE:
        return found
    said = f"{share:.0%} of the repetitions have less than {REPEAT_SHARE:g} of the {name} that all but the quickest"
    told = f"{said} {QUICKEST_PERCENTILE} % of new samples have"
    return replace(found, severity="warning", found=told, required=f"at most {QUICK_SHARE:.0%}")


@decides(
    "plausible",
    ("plausible-first-token", "error", OURS, "the first token takes as long as one step of the model", RERUN),
)  # fmt: skip
def first_token_takes_a_step(requests: RequestTable, loadgen_scenario: str) -> Finding | None:
    """Is there time for the prompt before the first token? In SingleStream alone, where nothing else is computed, and
    where outputs have two tokens."""
    several = requests.output_tokens >= 2
    if loadgen_scenario != "SingleStream" or not several.any() or (requests.first_token_ns == NO_TIME).any():
        return None
    ttft_ns = requests.first_token_ns[several] - requests.issue_ns[several]
    span_ns = requests.complete_ns[several] - requests.first_token_ns[several]
    tpot_ms = float(np.median(span_ns / (requests.output_tokens[several] - 1))) / 1e6
    ttft_ms = float(np.median(ttft_ns)) / 1e6
    return compared(
        "plausible-first-token",
        "",
        ttft_ms >= FIRST_TOKEN_SHARE * tpot_ms,
        f"median time to first token {ttft_ms:.3f} ms, per later token {tpot_ms:.3f} ms",
        f"at least {FIRST_TOKEN_SHARE:g} of the time per later token",
    )


@decides(
    "plausible",
    ("plausible-first-tokens-held", "error", OURS, "first tokens are reported at once", RERUN),
)  # fmt: skip
def first_tokens_not_held_back(
    ttft_ns: LatencyNumbers | None, limit_ns: float, p10_ns: float | None = None
) -> Finding | None:
    """Are first tokens reported at once? Reported late, but within the limit, they make TPOT smaller at no cost.

    Args:
        ttft_ns: of a Server run.
        limit_ns: the TTFT that LoadGen judged by.
        p10_ns: the tenth percentile, by the request log; None: the smallest counts.
    """
    if ttft_ns is None or limit_ns <= 0:
        return None
    low_ns = ttft_ns.min if p10_ns is None else p10_ns
    alike = ttft_ns.p90 - ttft_ns.p50 <= HELD_APART * ttft_ns.p50 or ttft_ns.p90 - low_ns <= HELD_SPAN * ttft_ns.p50
    return compared(
        "plausible-first-tokens-held",
        "",
        not (alike and ttft_ns.p50 >= HELD_LIMIT_SHARE * limit_ns),
        f"TTFT is {ttft_ns.p50 / 1e6:,.1f} ms at p50, {ttft_ns.p90 / 1e6:,.1f} ms at p90 and {low_ns / 1e6:,.1f} ms at "
        f"{'p0' if p10_ns is None else 'p10'}",
        f"p90 more than {HELD_APART:.0%} above p50 and {HELD_SPAN:.0%} above the low end, or p50 below "
        f"{HELD_LIMIT_SHARE:.0%} of the limit of {limit_ns / 1e6:,.0f} ms",
        p50_ns=ttft_ns.p50,
        p90_ns=ttft_ns.p90,
        low_ns=low_ns,
    )


def first_tokens_on_the_line(requests: RequestTable, limit_ns: float) -> Finding | None:
    """Does a response of no further tokens take no further time? In a record of a Server run with enough responses of
    different lengths."""
    several = (requests.output_tokens > 1) & (requests.first_token_ns != NO_TIME)
    tokens = (requests.output_tokens[several] - 1).astype(np.float64)
    off = tokens - tokens.mean() if len(tokens) else tokens
    if len(tokens) < MIN_LINE or not off.any():
        return None
    spans_ns = (requests.complete_ns - requests.first_token_ns)[several].astype(np.float64)
    ttft_ns = float(np.median((requests.first_token_ns - requests.issue_ns)[several]))
    slope = float(off @ spans_ns / (off @ off))
    begin_ns = float(spans_ns.mean() - slope * tokens.mean())
    rest = spans_ns - begin_ns - slope * tokens
    error_ns = float(np.sqrt(rest @ rest / (len(rest) - 2) * (1 / len(rest) + tokens.mean() ** 2 / (off @ off))))
    held = begin_ns < -HELD_LINE * ttft_ns and begin_ns < -HELD_ERRORS * error_ns
    return compared(
        "plausible-first-tokens-held",
        "later tokens take their time after the first",
        not (held and ttft_ns >= HELD_LIMIT_SHARE * limit_ns),
        f"the time from first token to last begins at {begin_ns / 1e6:,.0f} ms (± {error_ns / 1e6:,.0f}) for responses "
        f"of no further token, TTFT is {ttft_ns / 1e6:,.0f} ms at p50",
        f"above {-HELD_LINE:.0%} of that TTFT, or TTFT below {HELD_LIMIT_SHARE:.0%} of the limit",
        begin_ns=begin_ns,
        error_ns=error_ns,
    )


@decides("plausible", ("plausible-reference-texts", "error", OURS, "outputs are not the reference texts", RERUN))
def not_the_reference(predictions: Sequence[str], references: Sequence[str]) -> Finding | None:
    """Are the predictions a model's own? A system that knows the dataset may answer with its reference texts."""
    if not predictions:
        return None
    verbatim = sum(_is_verbatim(*pair) for pair in zip(predictions, references, strict=True))
    allowed = int(len(predictions) * VERBATIM_SHARE)
    return compared(
        "plausible-reference-texts",
        "",
        verbatim <= allowed,
        f"{verbatim} of {len(predictions)} outputs stand in the reference text word for word, from its start",
        f"at most {allowed}",
    )


def _is_verbatim(prediction: str, reference: str) -> bool:
    said, known = " ".join(prediction.split()), " ".join(reference.split())
    # Of a text cut within a character, the last sign may be a replacement.
    said = said.rstrip("�")
    return len(said) >= min(VERBATIM_CHARACTERS, len(known)) > 0 and known.startswith(said)


@decides("plausible", ("plausible-padding", "error", OURS, "outputs have as many IDs as their text needs", RERUN))
def not_padded(id_counts: Sequence[int], predictions: Sequence[str], encode_batch: EncodeBatch) -> Finding | None:
    """Do the outputs have as many IDs as their text needs? More than that are tokens per second for nothing."""
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
        "",
        padded <= allowed,
        f"{padded} of {len(surplus)} outputs have more than {PADDING_IDS} IDs that leave no text "
        f"(at most {max(surplus)})",
        f"at most {allowed}",
    )


def _looked_at(id_counts: Sequence[int]) -> Iterator[Sequence[int]]:
    """Some outputs first, which follow from all lengths, so that who pads cannot avoid them; then all."""
    count = len(id_counts)
    if count > 2 * PADDING_LOOKED_AT:
        yield random.Random(repr(id_counts)).sample(range(count), PADDING_LOOKED_AT)
    yield range(count)


@decides("plausible", ("plausible-scores", "error", OURS, "scores are within the model's reach", RERUN))
def scores_within_reach(metric: Metric, scores: Scores, targets: Mapping[str, Target]) -> Finding:
    """Are the scores those of this model? The official checker has no upper limit for them."""
    share, name = max((scores[name] / targets[name].reference, name) for name in metric.means if name in targets)
    return compared(
        "plausible-scores",
        "",
        share <= ROUGE_SHARE,
        f"{name} {scores[name]:.4f} is {share:.3f} of the reference score",
        f"at most {ROUGE_SHARE:g} of it",
    )


@decides(
    "plausible", needs=("log", "record"), after=("perf-errors",), also=("plausible-repeats", "plausible-first-token")
)
def requests_plausible(run: FinishedRun) -> list[Finding]:
    """Rules on the times of a performance run that need the request log."""
    if (table := run.requests) is None:
        return []
    scenario = run.detail.scenario
    found = repeats_cost_as_much(table, scenario, *_disturbance(run)), first_token_takes_a_step(table, scenario)
    return [one for one in found if one is not None]


def _disturbance(run: FinishedRun) -> tuple[float, float]:
    """The share of the processors that others used, and the p99 of the loop's lag in ns."""
    observed = run.manifest.observed if run.manifest is not None else None
    if observed is None:
        return 0.0, 0.0
    return observed.foreign_share, observed.loop_lag.p99_ms * 1e6 if observed.loop_lag is not None else 0.0


@decides("plausible", needs=("log", "numbers"), after=("perf-errors",), also=("plausible-first-tokens-held",))
def first_tokens_plausible(run: FinishedRun) -> list[Finding]:
    """Rules on the first tokens of a Server run."""
    if run.detail.scenario != "Server":
        return []
    logged_ns = run.detail.get("requested_server_ttft_latency")
    limit_ns = float(logged_ns) if isinstance(logged_ns, int | float) else 0.0
    table, p10_ns, (foreign, lag_ns) = run.requests, None, _disturbance(run)
    if table is not None and len(table) and not (table.first_token_ns == NO_TIME).any():
        p10_ns = float(np.percentile(table.first_token_ns - table.issue_ns, 10))
    held = first_tokens_not_held_back(reported_numbers(run.detail).ttft_ns, limit_ns, p10_ns)
    # This harness reports to LoadGen at once, so in its runs the engine held tokens back, unless others used the cores
    # and the loop was late. In other runs it is a question for a reviewer.
    late = held is not None and foreign > FOREIGN_SHARE and lag_ns >= HELD_SPAN * held.numbers["p50_ns"]
    found = (
        _to_ask(held) if run.manifest is None or late else held,
        _to_ask(None if table is None else first_tokens_on_the_line(table, limit_ns)),
    )
    return [one for one in found if one is not None]


def _to_ask(found: Finding | None) -> Finding | None:
    return found if found is None or found.passed else replace(found, severity="warning")


def responses_plausible(
    responses: Sequence[DecodedResponse], references: Sequence[str], tokenizer: Tokenizer
) -> list[Finding]:
    """Rules on the scored responses of an accuracy run; `references` of the same samples, in the same order."""
    texts = [response.text.strip() for response in responses]
    found = (
        shared_responses((response.sample_index, response.ids) for response in responses),
        not_padded([len(response.ids) for response in responses], texts, tokenizer.encode_batch),
        not_the_reference(texts, references),
    )
    return [finding for finding in found if finding is not None]


PERFORMANCE = tuple(map(check, (first_tokens_plausible, requests_plausible)))
