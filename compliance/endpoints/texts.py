"""Prompts and responses against one another, against the dataset, and against the reported numbers of tokens."""

from collections.abc import Iterator

import numpy as np

from compliance.endpoints.endpoints_evidence import EndpointsEvidence
from compliance.evidence.plausibility import DIFFERENT_IDS, MIN_SHARED, REPEAT_SHARE, SHARED_SHARE
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS, RERUN
from qsl.dataset_file import parse_rows, read_bytes
from runs.endpoints.events import NO_TIME, NOTHING, TEXT
from runs.endpoints.folder import NO_INDEX
from runs.endpoints.layout import SUMMARY

# Responses of fewer different words than DIFFERENT_IDS can be equal by chance ("I cannot help with that."): they count
# where more than half of the prompts, and more than eight, have the response.
SHORT_SHARE, SHORT_PROMPTS = 0.5, 8
# Datasets have some rows twice.
SHARED_PROMPTS = 0.01
# Mean bytes of text per token. SmolLM2's tokenizer has 4.4 for the bundled articles, 3.3 for code, 1.6 for Chinese, 1.0
# for numbers and 7.8 at most for 128 random tokens of its vocabulary; only repeated dashes or blanks have more.
MAX_TOKEN_BYTES = 16.0
# Median TPOT against an estimate by bytes instead of tokens, whose ratio differs between responses.
TPOT_APART = 1.6
# Honest servers spread their first tokens over a third of the median and more, also one request at a time.
UNIFORM_TTFT = 0.01
TIMES_AT_LEAST = 20


@decides(
    "plausible",
    ("endpoints-shared-responses", "warning", OURS, "prompts with an identical response", RERUN),
    ("endpoints-swapped-responses", "warning", OURS, "responses of a prompt that are also those of another", RERUN),
    needs=("load",),
)
def responses(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the responses to different prompts, without their digits: a counter makes no other response."""
    load = case.load
    assert load is not None  # see `needs`
    events, rows = load.events, load.rows[load.events.answered[load.rows]]
    # Each response once for each prompt.
    texts, prompts = np.unique(np.stack([events.response_hash[rows], events.prompt_hash[rows]]), axis=1)
    count = len(np.unique(prompts))
    if count < 2:
        return
    known, inverse, times = np.unique(texts, return_inverse=True, return_counts=True)
    shared = {text: number for text, number in zip(known.tolist(), times.tolist(), strict=True) if number > 1}
    allowed = max(MIN_SHARED - 1, int(count * SHARED_SHARE))
    words: dict[int, int] = {}
    for row, (_, response, _) in events.responses() if max(shared.values(), default=0) > allowed else ():
        if (text := int(events.response_hash[row])) in shared:
            words[text] = len(set(response.split()))
    few = max(SHORT_SHARE * count, SHORT_PROMPTS)
    limits = {text: allowed if number >= DIFFERENT_IDS else int(few) for text, number in words.items()}
    most = max((shared[text] for text in words if shared[text] > limits[text]), default=0)
    limit = f"at most {allowed} with {DIFFERENT_IDS} different words or more, {few:g} with fewer"
    yield compared("endpoints-shared-responses", "", not most, f"{most} of {count}", limit, events.path)
    # Responses that two samples exchanged: both prompts have the response of the other, and one of their own.
    _, own, kinds = np.unique(prompts, return_inverse=True, return_counts=True)
    swapped = int(((times[inverse] > 1) & (kinds[own] > 1)).sum())
    right = swapped <= allowed or most > 0
    yield compared("endpoints-swapped-responses", "", right, f"{swapped}", f"at most {allowed}", events.path)


@decides(
    "contradiction",
    ("endpoints-shared-prompts", "warning", OURS, "indices of the dataset with the prompt of another", RERUN),
    ("endpoints-prompt-rows", "warning", OURS, "prompts without the text of their row", "name the run's dataset"),
    ("endpoints-dataset-rows", "warning", OURS, "rows of the dataset", "name the run's dataset"),
    needs=("load",),
)
def prompts(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the prompts of different samples with one another, and with the dataset."""
    load = case.load
    assert load is not None  # see `needs`
    events, place = load.events, load.events.path
    index, first = np.unique(load.index[load.index != NO_INDEX], return_index=True)
    rows = load.rows[load.index != NO_INDEX][first]
    kinds, hashes = events.prompt_kind[rows], events.prompt_hash[rows]
    shared, allowed = len(index) - len(np.unique(hashes)), int(SHARED_PROMPTS * len(index))
    if (kinds != NOTHING).all():
        yield compared("endpoints-shared-prompts", "", shared <= allowed, f"{shared}", f"at most {allowed}", place)
    measured = case.run.datasets(measured=True)
    if case.dataset_path is None or len(measured) != 1 or not (kinds == TEXT).all():
        case.leave("prompts", "give --dataset-path to compare prompts that are texts with their rows")
        return
    dataset = parse_rows(read_bytes(case.dataset_path), case.dataset_path, ())
    if (size := load.size[0]) is not None and load.repeats is None:
        text, files = f"{size} by the order of samples", (case.dataset_path, place)
        yield compared("endpoints-dataset-rows", "", len(dataset) == size, f"{len(dataset)}", text, *files)
    parser = measured[0].get("parser")
    named = [*parser.values(), *parser] if isinstance(parser, dict) else []
    columns = (*named, "article", "prompt")
    column = next((name for name in columns if dataset and isinstance(dataset[0].get(str(name)), str)), None)
    if column is None:
        case.leave("prompts", f"{case.dataset_path} has no column that config.yaml names")
        return
    asked = dict(zip(load.rows.tolist(), load.index.tolist(), strict=True))
    wrong = sum(
        asked[row] >= len(dataset) or str(dataset[asked[row]].get(column)).strip() not in prompt
        for row, prompt in events.prompts()
        if asked.get(row, NO_INDEX) != NO_INDEX
    )
    yield compared("endpoints-prompt-rows", "", not wrong, f"{wrong}", "0", place, case.dataset_path)


@decides(
    "plausible",
    ("endpoints-token-bytes", "warning", OURS, "bytes of text per reported token", "name the model's tokenizer"),
    ("endpoints-tpot", "warning", OURS, "median TPOT, estimated by the bytes of text", RERUN),
    ("endpoints-tool-calls", "warning", OURS, "responses of text alone that ended with a tool call", RERUN),
    needs=("load", "complete"),
)
def token_counts(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the reported numbers of tokens with the texts, where no tokenizer counts them again."""
    load, summary = case.load, case.run.summary
    assert load is not None  # see `needs`
    events, answered = load.events, load.events.answered
    reasons = [events.reasons[name] for name in ("tool_calls", "function_call") if name in events.reasons]
    calls = int((answered & (events.response_kind == TEXT) & np.isin(events.reason, reasons)).sum())
    yield compared("endpoints-tool-calls", "", not calls, f"{calls}", "0", events.path)
    total = None if summary is None else summary.output_sequence_lengths.total
    if summary is None or not total or (events.response_kind[answered] > TEXT).any():
        return
    files = case.run.path(SUMMARY), events.path
    per_token = float(events.response_bytes[answered].sum()) / total
    limit = f"at most {MAX_TOKEN_BYTES:g}"
    yield compared("endpoints-token-bytes", "", per_token <= MAX_TOKEN_BYTES, f"{per_token:.2f}", limit, *files)
    streamed = answered & (events.first_ns != NO_TIME) & (events.rest_bytes > per_token)
    if streamed.any() and (reported := summary.tpot.median or 0) > 0:
        spans_ns, rest = (events.complete_ns - events.first_ns)[streamed], events.rest_bytes[streamed]
        estimate = float(np.median(spans_ns / rest)) * per_token
        right = reported / TPOT_APART <= estimate <= reported * TPOT_APART
        limit = f"{reported / 1e6:.3f} ms as reported, within a factor of {TPOT_APART:g}"
        yield compared("endpoints-tpot", "", right, f"{estimate / 1e6:.3f} ms", limit, *files)


@decides(
    "plausible",
    ("endpoints-uniform-ttft", "warning", "[endpoints] §9.2", "spread of TTFT, from p10 to p90", RERUN),
    ("endpoints-repeats", "warning", OURS, "median time of later pieces of a repeated prompt", RERUN),
    needs=("load",),
)
def times(case: EndpointsEvidence) -> Iterator[Finding]:
    """Look for first tokens that all take one time, and for responses that were kept."""
    load = case.load
    assert load is not None  # see `needs`
    events = load.events
    first_ns = events.first_ns[load.rows]
    streamed = load.answered & (first_ns != NO_TIME) & (events.rest_bytes[load.rows] > 0)
    if streamed.sum() < TIMES_AT_LEAST:
        return
    p10, p50, p90 = np.percentile((first_ns - load.issued_ns)[streamed], [10, 50, 90]) / 1e6
    if len(np.unique(events.prompt_size[load.rows])) > 1:  # of prompts of one length they may be alike
        found, limit = f"{p10:.3f} to {p90:.3f} ms", f"more than {UNIFORM_TTFT:.0%} of the median of {p50:.3f} ms"
        yield compared("endpoints-uniform-ttft", "", p90 - p10 > UNIFORM_TTFT * p50, found, limit, events.path)
    spans_ns, prompts = (load.complete_ns - first_ns)[streamed], events.prompt_hash[load.rows][streamed]
    _, place, inverse = np.unique(prompts, return_index=True, return_inverse=True)
    again = np.arange(len(prompts)) != place[inverse]
    if again.sum() >= TIMES_AT_LEAST and len(place) > 1:
        share = float(np.median((spans_ns / np.maximum(1, spans_ns[place][inverse]))[again]))
        found, limit = f"{share:.2f} of the first time", f"at least {REPEAT_SHARE:g} of it"
        yield compared("endpoints-repeats", "", share >= REPEAT_SHARE, found, limit, events.path)
