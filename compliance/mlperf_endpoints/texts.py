"""Rules that compare prompts and responses with each other, with the dataset, and with the reported token counts."""

from collections.abc import Iterator

import numpy as np

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.load import RERUN
from compliance.results.plausibility import DIFFERENT_IDS, MIN_SHARED, REPEAT_SHARE, SHARED_SHARE
from qsl.dataset_file import parse_rows, read_dataset_bytes
from runs.mlperf_endpoints.events import NO_TIME, NOTHING, TEXT
from runs.mlperf_endpoints.folder import NO_INDEX
from runs.mlperf_endpoints.layout import SUMMARY

# Limits for responses with fewer than DIFFERENT_IDS distinct words, which can be equal by chance ("I cannot help with
# that."): share of the prompts, and number of prompts, with an identical response.
SHORT_SHARE, SHORT_PROMPTS = 0.5, 8
# Share of the rows whose prompt may repeat; some rows of datasets are equal.
SHARED_PROMPTS = 0.01
# Share of prompts without the text of their row that shows another dataset; least characters of a row that identify it;
# and limit for prompts that are compared with all rows.
MAX_EXCHANGED, MIN_ROW_TEXT, MAX_COMPARED = 0.5, 20, 100
# Mean bytes of text per token. SmolLM2's tokenizer has 4.4 for the bundled articles, 3.3 for code, 1.6 for Chinese, 1.0
# for numbers and at most 7.8 for 128 random tokens; only repeated dashes or spaces have more.
MAX_TOKEN_BYTES = 16.0
# Factor between the median TPOT and its estimate from bytes, because bytes per token differ between responses.
TPOT_APART = 1.6
# Share of the median TTFT; on honest servers TTFT varies by a third of the median or more.
UNIFORM_TTFT = 0.01
TIMES_AT_LEAST = 20


@decides(
    "plausible",
    ("endpoints-shared-responses", "warning", OURS, "prompts with an identical response", RERUN),
    ("endpoints-swapped-responses", "warning", OURS, "responses that were exchanged between two prompts", RERUN),
    needs=("load",),
)
def responses(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the responses to different prompts. Digits are ignored, because a counter could differ in each."""
    load = case.load
    assert load is not None  # see `needs`
    events, answered = load.events, load.events.answered[load.rows] & (load.index != NO_INDEX)
    rows = load.rows[answered]
    # Each response once for each index. Prompts of one index may differ by a salt.
    texts, indices = np.unique(np.stack([events.response_hash[rows], load.index[answered]]), axis=1)
    count = len(np.unique(indices))
    if count < 2:
        return
    distinct, inverse, times = np.unique(texts, return_inverse=True, return_counts=True)
    shared = {text: number for text, number in zip(distinct.tolist(), times.tolist(), strict=True) if number > 1}
    allowed = max(MIN_SHARED - 1, int(count * SHARED_SHARE))
    words: dict[int, int] = {}
    for row, (_, response, _) in events.responses() if max(shared.values(), default=0) > allowed else ():
        if (text := int(events.response_hash[row])) in shared:
            words[text] = len(set(response.split()))
    few = max(SHORT_SHARE * count, SHORT_PROMPTS)
    limits = {text: allowed if number >= DIFFERENT_IDS else int(few) for text, number in words.items()}
    most = max((shared[text] for text in words if shared[text] > limits[text]), default=0)
    limit = f"at most {allowed} (at least {DIFFERENT_IDS} distinct words) or {few:g} (fewer words)"
    yield compared("endpoints-shared-responses", not most, f"{most} of {count}", limit, events.path)
    # Responses that two samples exchanged: both prompts have the response of the other, and one of their own.
    _, pairs, kinds = np.unique(indices, return_inverse=True, return_counts=True)
    swapped = int(((times[inverse] > 1) & (kinds[pairs] > 1)).sum())
    right = swapped <= allowed or most > 0
    yield compared("endpoints-swapped-responses", right, f"{swapped}", f"at most {allowed}", events.path)


@decides(
    "contradiction",
    ("endpoints-shared-prompts", "warning", OURS, "dataset indices with the same prompt as another index", RERUN),
    ("endpoints-prompt-rows", "warning", OURS, "prompts without the text of their row", "correct --dataset-path"),
    ("endpoints-prompts-exchanged", "error", OURS, "prompts with the text of another row", RERUN),
    ("endpoints-dataset-rows", "warning", OURS, "rows of the dataset", "correct --dataset-path"),
    needs=("load",),
)
def prompts(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the prompts of different samples with each other, and with the dataset."""
    load = case.load
    assert load is not None  # see `needs`
    events, place = load.events, load.events.path
    index, first = np.unique(load.index[load.index != NO_INDEX], return_index=True)
    rows = load.rows[load.index != NO_INDEX][first]
    kinds, hashes = events.prompt_kind[rows], events.prompt_hash[rows]
    shared, allowed = len(index) - len(np.unique(hashes)), int(SHARED_PROMPTS * len(index))
    if (kinds != NOTHING).all():
        yield compared("endpoints-shared-prompts", shared <= allowed, f"{shared}", f"at most {allowed}", place)
    measured = case.run.datasets(measured=True)
    if case.dataset_path is None or len(measured) != 1 or not (kinds == TEXT).all():
        yield NotApplied("give --dataset-path to compare text prompts with the rows of the dataset", what="prompts")
        return
    dataset = parse_rows(read_dataset_bytes(case.dataset_path), case.dataset_path, ())
    if (size := load.size[0]) is not None and load.repeats is None:
        text, files = f"{size} (computed from the order of the samples)", (case.dataset_path, place)
        yield compared("endpoints-dataset-rows", len(dataset) == size, f"{len(dataset)}", text, *files)
    parser = measured[0].get("parser")
    named = [*parser.values(), *parser] if isinstance(parser, dict) else []
    columns = (*named, "article", "prompt")
    column = next((name for name in columns if dataset and isinstance(dataset[0].get(str(name)), str)), None)
    if column is None:
        yield NotApplied(f"{case.dataset_path} has none of the columns in config.yaml", what="prompts")
        return
    index_of = dict(zip(load.rows.tolist(), load.index.tolist(), strict=True))
    texts = [str(row.get(column)).strip() for row in dataset]
    count, wrong = 0, list[str]()
    for row, prompt in events.prompts():
        if (number := index_of.get(row, NO_INDEX)) != NO_INDEX:
            count += 1
            wrong += [prompt] * (number >= len(texts) or texts[number] not in prompt)
    yield compared("endpoints-prompt-rows", not wrong, f"{len(wrong)}", "0", place, case.dataset_path)
    # If most prompts have the text of their row, --dataset-path is right.
    if len(wrong) <= MAX_EXCHANGED * count:
        long_texts = [text for text in texts if len(text) >= MIN_ROW_TEXT]
        exchanged = sum(any(text in prompt for text in long_texts) for prompt in wrong[:MAX_COMPARED])
        yield compared("endpoints-prompts-exchanged", not exchanged, f"{exchanged}", "0", place, case.dataset_path)


@decides(
    "plausible",
    ("endpoints-token-bytes", "warning", OURS, "bytes of text per reported token", "use the tokenizer of the model"),
    ("endpoints-tpot", "warning", OURS, "median TPOT, estimated from the bytes of text", RERUN),
    ("endpoints-tool-calls", "warning", OURS, "text responses with a tool call as finish reason", RERUN),
    needs=("load", "complete"),
)
def check_token_counts(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the reported token counts with the texts, without a tokenizer."""
    load, summary = case.load, case.run.summary
    assert load is not None  # see `needs`
    events, answered = load.events, load.events.answered
    reasons = [events.reasons[name] for name in ("tool_calls", "function_call") if name in events.reasons]
    calls = int((answered & (events.response_kind == TEXT) & np.isin(events.reason, reasons)).sum())
    yield compared("endpoints-tool-calls", not calls, f"{calls}", "0", events.path)
    total = None if summary is None else summary.output_sequence_lengths.total
    if summary is None or not total or (events.response_kind[answered] > TEXT).any():
        return
    files = case.run.path(SUMMARY), events.path
    per_token = float(events.response_bytes[answered].sum()) / total
    limit = f"at most {MAX_TOKEN_BYTES:g}"
    yield compared("endpoints-token-bytes", per_token <= MAX_TOKEN_BYTES, f"{per_token:.2f}", limit, *files)
    streamed = answered & (events.first_ns != NO_TIME) & (events.rest_bytes > per_token)
    if streamed.any() and (reported := summary.tpot.median or 0) > 0:
        spans_ns, rest = (events.complete_ns - events.first_ns)[streamed], events.rest_bytes[streamed]
        estimate = float(np.median(spans_ns / rest)) * per_token
        right = reported / TPOT_APART <= estimate <= reported * TPOT_APART
        limit = f"within a factor of {TPOT_APART:g} of the reported {reported / 1e6:.3f} ms"
        yield compared("endpoints-tpot", right, f"{estimate / 1e6:.3f} ms", limit, *files)


@decides(
    "plausible",
    ("endpoints-uniform-ttft", "warning", "[endpoints] §9.2", "difference of TTFT between p10 and p90", RERUN),
    ("endpoints-repeats", "warning", OURS, "decoding time of repeated prompts, relative to the first time", RERUN),
    needs=("load",),
)
def times(case: EndpointsEvidence) -> Iterator[Finding]:
    """Check for first tokens that all take equal time, and for cached responses."""
    load = case.load
    assert load is not None  # see `needs`
    events = load.events
    first_ns = events.first_ns[load.rows]
    streamed = load.answered & (first_ns != NO_TIME) & (events.rest_bytes[load.rows] > 0)
    if streamed.sum() < TIMES_AT_LEAST:
        return
    p10, p50, p90 = np.percentile((first_ns - load.issued_ns)[streamed], [10, 50, 90]) / 1e6
    if len(np.unique(events.prompt_size[load.rows])) > 1:  # Prompts of one length may have equal TTFT.
        spread, limit = f"{p90 - p10:.3f} ms", f"above {UNIFORM_TTFT * p50:.3f} ms ({UNIFORM_TTFT:.0%} of the median)"
        yield compared("endpoints-uniform-ttft", p90 - p10 > UNIFORM_TTFT * p50, spread, limit, events.path)
    spans_ns, index = (load.complete_ns - first_ns)[streamed], load.index[streamed]
    _, place, inverse = np.unique(index, return_index=True, return_inverse=True)
    again = np.arange(len(index)) != place[inverse]
    if again.sum() >= TIMES_AT_LEAST and len(place) > 1:
        share = float(np.median((spans_ns / np.maximum(1, spans_ns[place][inverse]))[again]))
        spread, limit = f"{share:.2f} (median)", f"at least {REPEAT_SHARE:g}"
        yield compared("endpoints-repeats", share >= REPEAT_SHARE, spread, limit, events.path)
