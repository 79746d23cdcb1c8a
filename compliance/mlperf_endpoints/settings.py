"""Rules on settings in config.yaml that the events or another file contradict.

The client resolves its settings before it writes config.yaml, and refuses settings that exclude each other.
[mlcommons/endpoints ea332753: config/schema.py, endpoint_client/config.py, load_generator/session.py]
"""

from collections.abc import Iterator

import numpy as np

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.load import MS, RERUN, SECOND, TURN_NS, MeasuredPhase
from runs.mlperf_endpoints.events import NO_TIME, TEXT
from runs.mlperf_endpoints.layout import CONFIG

# The client tokenizes the text of a response, which changes the number of tokens: up to 1.21 times as many for a model
# of random weights, and nearly as many as the limit for a response of a trained model that ended at the limit.
MAX_OVER_LIMIT, MIN_OF_LIMIT = 1.5, 0.5
AT_LIMIT = 0.9  # share of the responses that ended at the limit; text of repeated characters has fewer tokens
# Bounds of the median of responses that ended at the limit, relative to the limit; and share of responses that may have
# that many tokens but ended otherwise, if there are enough.
MIN_MEDIAN, MAX_MEDIAN, MAX_BEYOND, MIN_STOPPED = 0.75, 1.3, 0.1, 20
# Minimum number of samples per worker; the client hands samples to its workers in turn.
SAMPLES_PER_WORKER = 10
PATTERNS = {"offline": ("max_throughput",), "online": ("poisson", "concurrency", "agentic_inference")}
NO_REASON = -2  # index that no finish reason has

SettingRow = tuple[str, str, bool, object, object]  # rule, text, whether the rule is met, found value, required value


@decides(
    "contradiction",
    ("endpoints-settings", "warning", OURS, "setting that the client checks before a run", RERUN),
    ("endpoints-streaming", "warning", OURS, "events of first tokens and later pieces", RERUN),
    ("endpoints-max-duration", "warning", OURS, "duration of the measured phase", RERUN),
    ("endpoints-drain", "warning", OURS, "time from the last issue to the last response", RERUN),
    ("endpoints-output-limit", "warning", OURS, "tokens of the longest response", RERUN),
    ("endpoints-dataset-size", "warning", OURS, "samples of the dataset in config.yaml", RERUN),
    ("endpoints-phases", "warning", OURS, "phases without a dataset in config.yaml", RERUN),
    ("endpoints-workers", "warning", OURS, "worker_id values of responses", RERUN),
    needs=("load",),
)
def settings_in_force(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the settings in config.yaml with the recorded events."""
    load = case.load
    assert load is not None  # see `needs`
    files = case.run.path(CONFIG), load.events.path
    if load.wanted is None and load.size[0] is not None:
        yield NotApplied("config.yaml has no count, and the client's default is unknown", what="endpoints-count")
    for rules in (_refused, _streaming, _durations, _lengths, _finish_reasons, _dataset):
        for row in rules(case, load):
            if isinstance(row, NotApplied):
                yield row
                continue
            rule, text, right, value, required = row
            yield compared(f"endpoints-{rule}", right, str(value), str(required), *files, text=text)


def _refused(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow]:
    config, times, model = load.config, load.run.time_settings, load.config.model_params
    least_ms = times.min_duration_ms or 0
    pattern, workers = config.settings.load_pattern.type, config.settings.client.num_workers
    urls = len(config.endpoint_config.endpoints)
    allowed = PATTERNS.get(config.mode, (pattern,))
    api, texts = config.endpoint_config.api_type, load.events.prompt_kind[load.rows] == TEXT
    for text, right, value, required in (
        (f"load pattern of an {config.mode} run", pattern in allowed, pattern, " or ".join(allowed)),
        (times.max_duration, not 0 < (times.max_duration_ms or 0) < least_ms, times.max_duration_ms or 0,
         f"0, or at least {least_ms} ({times.max_duration.replace('max', 'min')})"),
        (f"min_new_tokens for api_type {api}", api == "openai_completions" or model.min_new_tokens == 1,
         model.min_new_tokens, 1),
        *([("text prompts for api_type sglang", not texts.any(), int(texts.sum()), 0)] if api == "sglang" else []),
        ("client releases whose settings config.yaml has", len(config.forms) < 2,
         " and ".join(f"since {form.since}" for form in config.forms), "one release"),
        ("workers", workers < 1 or not urls or workers % urls == 0, workers, f"a multiple of {urls} (endpoints)"),
    ):  # fmt: skip
        yield "settings", text, right, value, required


def _streaming(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow]:
    events, is_streaming = load.events, load.config.streaming
    first = events.first_ns[load.rows] != NO_TIME
    later, all_chunks = events.counts["sample.recv_non_first"], load.config.settings.client.stream_all_chunks
    if is_streaming:
        without = int((events.answered[load.rows] & ~first).sum())
        yield "streaming", "responses without a first-token event, streaming on", not without, without, 0
    elif is_streaming is False:
        yield "streaming", "first-token events, streaming off", not first.any(), int(first.sum()), 0
    if all_chunks is False:
        yield "streaming", "events of later pieces, stream_all_chunks off", not later, later, 0
    elif all_chunks and is_streaming and (rest := int((events.rest_bytes[load.rows] > 0).sum())):
        text = f"events of later pieces, stream_all_chunks on, {rest} responses of at least 2 pieces"
        yield "streaming", text, later > 0, later, "at least 1"


def _durations(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow | NotApplied]:
    times = load.run.time_settings
    # n_samples_to_issue overrides the minimum duration.
    end_ns, text = (load.issued_ns[-1], "time to issue all samples") if times.limits_issuing else (load.end_ns, "")
    took_s, most_s = float(end_ns - load.start_ns) / SECOND, float(times.max_duration_ms or 0) * MS / SECOND
    if most_s:
        right = took_s <= most_s + TURN_NS / SECOND
        yield "max-duration", text, right, f"{took_s:.2f} s", f"at most {most_s:.2f} s ({times.max_duration})"
    elif times.max_duration_ms is None:
        yield NotApplied(f"config.yaml has no {times.max_duration}", what="endpoints-max-duration")
    if times.drain_timeout_s is None:
        yield NotApplied(f"config.yaml has no {times.drain_timeout}", what="endpoints-drain")
    elif not load.left.all():
        wait_s = float(load.complete_ns.max() - load.issued_ns[-1]) / SECOND
        right = wait_s <= times.drain_timeout_s + TURN_NS / SECOND
        yield "drain", "", right, f"{wait_s:.2f} s", f"at most {times.drain_timeout_s:.2f} s ({times.drain_timeout})"


def _lengths(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow | NotApplied]:
    summary, events, limit = case.run.summary, load.events, load.config.model_params.max_new_tokens
    most = None if summary is None else summary.output_sequence_lengths.max
    if summary is None or not limit or not most:
        yield NotApplied("config.yaml has no limit, or the client counted no tokens", what="max_new_tokens")
        return
    wanted = f"at most {MAX_OVER_LIMIT:g} × max_new_tokens {limit}"
    yield "output-limit", "", most <= MAX_OVER_LIMIT * limit, f"{most:g}", wanted
    if by_limit := int((events.reason[load.rows] == events.reasons.get("length", NO_REASON)).sum()):
        grid = {float(share): value for share, value in summary.output_sequence_lengths.percentiles.items()}
        least_share = 100 * (1 - AT_LIMIT * by_limit / len(load.rows))
        least = next((grid[share] for share in sorted(grid) if share >= least_share), None) or most
        text = f"tokens of the {by_limit} responses that ended at the limit"
        wanted = f"at least {MIN_OF_LIMIT:g} × max_new_tokens {limit}"
        yield "output-limit", text, least >= MIN_OF_LIMIT * limit, f"{least:g}", wanted


def _finish_reasons(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow]:
    """Compare the tokens of each response, counted with the tokenizer of --model-path, with its finish reason."""
    events, limit = load.events, load.config.model_params.max_new_tokens
    if not limit or case.tokens is None:
        return
    rows = load.rows[load.answered]
    tokens, reasons = case.tokens[0, rows], events.reason[rows]
    by_limit = tokens[reasons == events.reasons.get("length", NO_REASON)]
    if len(by_limit):
        text, median = (
            f"median tokens of the {len(by_limit)} responses that ended at the limit",
            float(np.median(by_limit)),
        )
        wanted = f"{MIN_MEDIAN * limit:g} to {MAX_MEDIAN * limit:g} (max_new_tokens {limit})"
        yield "output-limit", text, MIN_MEDIAN * limit <= median <= MAX_MEDIAN * limit, f"{median:g}", wanted
    by_stop = tokens[reasons == events.reasons.get("stop", NO_REASON)]
    if len(by_stop) >= MIN_STOPPED:
        beyond, most = int((by_stop >= limit).sum()), int(MAX_BEYOND * len(by_stop))
        text = f"responses with at least max_new_tokens {limit} tokens that ended before the limit"
        yield "output-limit", text, beyond <= most, beyond, f"at most {most} of {len(by_stop)}"


def _dataset(case: EndpointsEvidence, load: MeasuredPhase) -> Iterator[SettingRow]:
    size, measured = load.size[0], case.run.datasets(measured=True)
    samples = measured[0].get("samples") if len(measured) == 1 else None
    # The client uses all rows, even if `samples` is lower; a higher value is wrong.
    if isinstance(samples, int) and size is not None and load.repeats is None:
        wanted = f"at most {size} (dataset size, computed from the order of the samples)"
        yield "dataset-size", "", samples <= size, samples, wanted
    names = {str(dataset.get("name")) for dataset in case.run.datasets()}
    extra = sorted(name for name in case.run.indices or () if name != "performance" and name not in names)
    yield "phases", "", not extra, ", ".join(extra) or "none", "none"
    answering, workers = load.events.workers, load.config.settings.client.num_workers
    if answering and workers > 0 and len(load.rows) >= SAMPLES_PER_WORKER * workers:
        right = answering == set(range(workers))
        yield "workers", "", right, sorted(answering), f"0 to {workers - 1} (num_workers {workers})"
