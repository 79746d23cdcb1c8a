"""Rules on the client's output-caching audit: a reference run of unique samples, and a run that repeats one sample.

The client compares two rates only. An honest server fails if the repeated sample is short or the reference run started
cold, and a caching server passes if it already has the responses of the reference run. Therefore the limits here allow
for lengths and a cold start, and the reference run is compared with the run before it.
[mlcommons/endpoints ea332753: compliance/audit_test/output_caching_test.py]
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from pydantic import BaseModel, Field

from compliance.audits.pace import LATENCY, LENGTH_SHARE
from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared, stated
from compliance.mlperf_endpoints.client_paces import (
    RATE,
    SLOWEST_SHARE,
    ClientPace,
    compare_client_paces,
    deciding_rate,
)
from compliance.mlperf_endpoints.load import RERUN, MeasuredPhase, judge_load, read_load
from runs.files.fields import Amount, Count, strictly
from runs.files.reading import read_as, read_record
from runs.mlperf_endpoints.events import NO_TIME
from runs.mlperf_endpoints.folder import EndpointsRun
from runs.mlperf_endpoints.layout import AUDIT, CACHED, REFERENCE, VERDICT

TEXT = "verify_OUTPUT_CACHING_TEST.txt"
_FIX = "restore the file that the client wrote"
# Increase of the rate over the previous run that shows a cache; the speed of a system varies less.
SECOND_TIME_THRESHOLD = 1.0
# Minimum duration of an Offline run, latency, and TTFT; shorter times vary too much to be compared.
MIN_RUN_S, MIN_LATENCY_NS, MIN_TTFT_NS = 0.05, 5_000_000, 5_000_000
# Decoding speed-up that shows cached responses; a prefix cache does not change the speed of decoding.
DECODE_FASTER = 1.5
_SAME = ("model_params", "endpoint_config", "datasets")  # sections of config.yaml that all runs share


class ClientVerdict(BaseModel):
    """audit_output_caching_test.json."""

    model_config = strictly() | {"extra": "ignore"}

    passed: bool
    ref_qps: Amount
    audit_qps: Amount
    threshold: float = Field(gt=0, lt=1)
    ref_completed: Count
    ref_requested: Count
    audit_completed: Count
    audit_requested: Count

    @property
    def follows(self) -> bool:
        """The verdict that the client's rule gives for these numbers."""
        least = 1.0 - self.threshold
        answered = self.ref_completed >= self.ref_requested * least
        answered = answered and self.audit_completed >= self.audit_requested * least
        return answered and self.audit_qps < self.ref_qps * (1.0 + self.threshold)


@decides(
    "contradiction",
    ("endpoints-audit", "error", OURS, "missing parts of the audit", RERUN),
    ("endpoints-audit-same", "error", OURS, "differences between the configurations of the audit's runs", RERUN),
    ("endpoints-audit-numbers", "error", OURS, "the client's verdict, compared with the audit's runs", RERUN),
)  # fmt: skip
@decides(
    "official",
    ("endpoints-rule-audit", "error", OURS, "the client's verdict on the audit, which counts for a submission",
     "repeat the client's audit until its verdict is PASS; endpoints-audit-verdict shows the cause"),
)  # fmt: skip
def judge_audit(run: EndpointsRun, main: MeasuredPhase | None) -> Iterator[Finding]:
    """Check the audit of a run directory, and the loads of its two runs.

    Args:
        main: the run before the audit; None if the audit ran alone.
    """
    root = run.root / AUDIT
    reference, cached = (read_load(EndpointsRun(root / name)) for name in (REFERENCE, CACHED))
    client = read_as(root / VERDICT, ClientVerdict, _FIX, within=root) if (root / VERDICT).exists() else None
    requested = client if run.config is None else run.config.audit  # An audit that ran alone has no config.yaml.
    if requested is None or reference is None or cached is None or client is None:
        parts = {
            "audit in config.yaml": requested, f"{AUDIT}/{REFERENCE}": reference, f"{AUDIT}/{CACHED}": cached,
            f"{AUDIT}/{VERDICT}": client,
        }  # fmt: skip
        missing = ", ".join(name for name, part in parts.items() if part is None)
        yield compared("endpoints-audit", False, missing, "none", root)
        return
    for load in (reference, cached):
        yield from judge_load(load)
    loads = [load for load in (main, reference, cached) if load is not None]
    raw = [load.run.raw_config for load in loads]
    unequal = [name for name in _SAME if any(config.get(name) != raw[0].get(name) for config in raw)]
    unequal += ["settings"] * (reference.config.settings != cached.config.settings)
    yield compared("endpoints-audit-same", not unequal, ", ".join(unequal) or "none", "none")
    overlap = sum(load.events.last_ns > next_load.events.started_ns for load, next_load in pairwise(loads))
    text = "runs that began before the previous run ended"
    yield compared("endpoints-audit-same", not overlap, f"{overlap}", "0", root, text=text)
    yield from _client_numbers(client, requested.threshold, reference, cached)
    yield compared("endpoints-rule-audit", client.passed, _word(client.passed), _word(True), root / VERDICT)
    yield from _judged(client, requested.threshold, main, reference, cached)


def _client_numbers(
    client: ClientVerdict, threshold: float, reference: MeasuredPhase, cached: MeasuredPhase
) -> Iterator[Finding]:
    root = reference.run.root.parent
    for name, load, qps, completed, requested in (
        (REFERENCE, reference, client.ref_qps, client.ref_completed, client.ref_requested),
        (CACHED, cached, client.audit_qps, client.audit_completed, client.audit_requested),
    ):
        summary = load.run.summary
        same = summary is not None and (summary.qps, summary.n_samples_completed) == (qps, completed)
        value = f"{qps:g} queries/s, {completed} of {requested}"
        yield compared(
            "endpoints-audit-numbers", same and load.audit_samples == requested, value,
            "the values in its summary and config.yaml", root / VERDICT, text=f"{name} in the verdict",
        )  # fmt: skip
    right = client.passed == client.follows and client.threshold == threshold
    value = f"{_word(client.passed)} at threshold {client.threshold}"
    rule = f"{_word(client.follows)} at threshold {threshold}"
    yield compared("endpoints-audit-numbers", right, value, rule, root / VERDICT, text="the client's verdict")
    if (text := root / TEXT).exists():
        content = read_record(text, _FIX).decode(errors="replace").strip()
        wanted = f"Performance check pass: {client.passed}"
        yield compared("endpoints-audit-numbers", content == wanted, content[:100], wanted, text, text=TEXT)


def _word(passed: bool) -> str:
    return "PASS" if passed else "FAIL"


@decides(
    "audit",
    ("endpoints-audit-answered", "error", OURS, "samples with a response", AUDIT_AGAIN),
    ("endpoints-audit-too-fast", "warning", OURS, "duration of the audit's reference run",
     "run the client's audit with more samples"),
    ("endpoints-audit-kept-prompts", "warning", "[endpoints] §2.9.5",
     "speed of repeated prompts (prefix cache)",
     "turn prefix caching off in the server, and run the audit again"),
    ("endpoints-audit-second-time", "error", OURS, "speed of the reference run, compared with the run before it",
     "turn response caches off, and run the audit alone on a server that was just started"),
    ("endpoints-audit-lengths", "warning", OURS, "length of the responses, compared with the run before the audit",
     "restore the directory that the client wrote, or run again"),
    ("endpoints-audit-verdict", "note", OURS, "verdict of the client and of this program",
     "compare the numbers of both verdicts"),
)  # fmt: skip
def _judged(
    client: ClientVerdict, threshold: float, main: MeasuredPhase | None, reference: MeasuredPhase, cached: MeasuredPhase
) -> Iterator[Finding]:
    root = reference.run.root.parent
    for label, load in ((REFERENCE, reference), (CACHED, cached)):
        least, answered = len(load.rows) * (1 - threshold), int(load.answered.sum())
        text = f"{label}: samples with a response"
        yield compared(
            "endpoints-audit-answered", answered >= least, f"{answered}", f"at least {least:g}", root, text=text
        )
        if not answered:
            return
    # Response lengths are bytes. Responses that all ended at the token limit count as equally long.
    runs = (reference, cached)
    ends = [np.unique(load.events.reason[load.rows][load.answered]).tolist() for load in runs]
    by_limit = ends == [[load.events.reasons.get("length")] for load in runs]
    # The cold start is the extra time of the first response of a server without earlier requests.
    first_ns = [int((load.complete_ns - load.issued_ns)[load.answered][0]) for load in runs]
    cold = main is None and not reference.config.settings.warmup.enabled
    cold_ns = max(0, first_ns[0] - first_ns[1]) if cold else 0
    paces = _pace(reference, REFERENCE, by_limit, cold_ns), _pace(cached, CACHED, by_limit)
    against = list(_against(main, reference, by_limit)) if main is not None and main.answered.any() else []
    if too_fast := _too_fast(paces[0]):
        yield from against
        yield compared("endpoints-audit-too-fast", False, *too_fast[1:], root, text=f"{REFERENCE}: {too_fast[0]}")
        violated = next((finding for finding in against if finding.severity == "error"), None)
        verdict = f"FAIL, {violated.text}" if violated else "no verdict, because the reference run is too short"
        text = f"{_client_verdict(client)}; this program: {verdict}"
        yield stated("endpoints-audit-verdict", text, root, client=client.passed, ours=False if violated else None)
        return
    paced = findings = compare_client_paces(*paces, threshold, least_ttft_ns=MIN_TTFT_NS)
    if not all(finding.passed for finding in paced) and _decodes_alike(reference, cached):
        findings = [
            finding if finding.passed or finding.rule != "caching-pace"
            else replace(finding, rule="endpoints-audit-kept-prompts", severity="warning")
            for finding in paced
        ]  # fmt: skip
    findings = [*findings, *against]
    yield from findings
    violated = next((finding for finding in findings if finding.severity == "error"), None)
    rate, issued = deciding_rate(paced).numbers, [[pace.lengths[sample] for sample in pace.issued] for pace in paces]
    prompts, responses = np.mean(issued[1], axis=0) / np.mean(issued[0], axis=0)
    # A prefix cache explains a rate above the limit; endpoints-audit-kept-prompts then warns of it.
    over = " (a prefix cache explains the excess)" if any(finding.severity == "warning" for finding in findings) else ""
    verdict = f"PASS, {rate['name']} {rate['test']:.6g}, limit {rate['limit']:.6g}{over}; "
    verdict += f"lengths relative to the reference run: prompts {prompts:.0%}, responses {responses:.0%}"
    verdict += f"; cold start of the reference run: {cold_ns / 1e9:.2f} s" if cold_ns else ""
    text = f"{_client_verdict(client)}; this program: {f'FAIL, {violated.text}' if violated else verdict}"
    yield stated("endpoints-audit-verdict", text, root, client=client.passed, ours=violated is None)


def _client_verdict(client: ClientVerdict) -> str:
    return (
        f"client: {_word(client.passed)}, {client.audit_qps:.6g} queries/s, limit {client.ref_qps:.6g} × "
        f"{1 + client.threshold:g}"
    )


def _pace(load: MeasuredPhase, label: str, by_limit: bool, cold_ns: int = 0) -> ClientPace:
    """Return the numbers of a run that are compared; with `by_limit` all responses count as equally long.

    The cold start reduces a time by at most half, because it can be all of a run with one batch.
    """
    events, answered = load.events, load.answered
    rows, issued_ns = load.rows[answered], load.issued_ns[answered]
    latency = (load.complete_ns[answered] - issued_ns).astype(float)
    # Number of samples that are issued first, before the server is warm.
    wave = int(load.config.settings.load_pattern.target_concurrency or 1) if cold_ns else 0
    streamed = events.first_ns[rows] != NO_TIME
    ttft = (events.first_ns[rows] - issued_ns)[streamed]
    ttft = ttft[wave:] if len(ttft) > wave else ttft
    offline = load.config.settings.load_pattern.type == "max_throughput"
    run_ns, mean = float(load.complete_ns[answered].max() - load.start_ns), float(latency.mean())
    steady = max(mean - cold_ns, mean / 2)
    if not offline:
        mean_without_slowest = np.sort(latency)[: len(latency) - int(len(latency) * SLOWEST_SHARE)].mean()
        later = latency[wave:] if len(latency) > wave else latency
        steady = max(1.0, min(float(mean_without_slowest), float(later.mean())))
    index, place, inverse, count = np.unique(
        load.index[answered], return_index=True, return_inverse=True, return_counts=True
    )
    outputs = np.ones(len(rows)) if by_limit else events.response_bytes[rows]
    lengths = zip(
        events.prompt_size[rows][place].tolist(), (np.bincount(inverse, outputs) / count).tolist(), strict=True
    )
    return ClientPace(
        label=label,
        scenario="Offline" if offline else "SingleStream",
        samples_per_second=len(rows) / max(run_ns - cold_ns, run_ns / 2, 1.0) * 1e9,
        mean_latency_ns=steady if offline else mean,
        steady_latency_ns=steady,
        mean_ttft_ns=None,
        median_ttft_ns=float(np.median(ttft)) if len(ttft) and not offline else None,
        lengths={
            sample: (prompt or 1, output or 1.0)
            for sample, (prompt, output) in zip(index.tolist(), lengths, strict=True)
        },
        issued=load.index[answered].tolist(),
    )


def _too_fast(reference: ClientPace) -> tuple[str, str, str] | None:
    """Return which time is too short to be compared, its value and its limit; None if none is."""
    if reference.scenario == "Offline":
        if reference.seconds >= MIN_RUN_S:
            return None
        return "duration", f"{reference.seconds * 1e3:.3g} ms", f"at least {MIN_RUN_S * 1e3:g} ms"
    if reference.mean_latency_ns >= MIN_LATENCY_NS:
        return None
    return "mean latency", f"{reference.mean_latency_ns / 1e6:.3g} ms", f"at least {MIN_LATENCY_NS / 1e6:g} ms"


def _decodes_alike(reference: MeasuredPhase, cached: MeasuredPhase) -> bool:
    """Return whether decoding was no faster in the audit run; without streaming this is unknown (False)."""
    pace = []
    for load in (reference, cached):
        first_ns, rest = load.events.first_ns[load.rows], load.events.rest_bytes[load.rows]
        streamed = load.answered & (first_ns != NO_TIME) & (rest > 0)
        if not streamed.any():
            return False
        pace.append(float((load.complete_ns - first_ns)[streamed].sum()) / float(rest[streamed].sum()))
    return pace[0] <= pace[1] * DECODE_FASTER


def _against(main: MeasuredPhase, reference: MeasuredPhase, by_limit: bool) -> Iterator[Finding]:
    """Compare the reference run with the run before it, which had the same samples."""
    before, after = _pace(main, "the run before", by_limit), _pace(reference, REFERENCE, by_limit)
    same_load = main.config.settings.load_pattern == reference.config.settings.load_pattern
    if same_load and _too_fast(before) is None:
        # A server with a response cache already has the responses of the reference run.
        name = RATE if after.scenario == "Offline" else LATENCY  # In Offline, latency grows with the number of samples.
        rates = compare_client_paces(before, after, SECOND_TIME_THRESHOLD, least_ttft_ns=MIN_TTFT_NS)
        rate = next(finding for finding in rates if finding.numbers.get("name") == name)
        text = f"{REFERENCE}: {name} of samples that the run before also had"
        yield replace(rate, rule="endpoints-audit-second-time", text=text)
    lengths, again = (_pace(load, "", by_limit=False).lengths for load in (main, reference))
    both, params = lengths.keys() & again.keys(), main.run.raw_config.get("model_params")
    # At temperature 0 a prompt has one response, except for small changes that the batch causes.
    if both and isinstance(params, dict) and params.get("temperature") == 0:
        expected, found_bytes = (
            float(np.mean([lengths_of[index][1] for index in both])) for lengths_of in (lengths, again)
        )
        text = f"{REFERENCE}: mean bytes of {len(both)} responses"
        right = abs(found_bytes / expected - 1) <= LENGTH_SHARE
        limit = f"{expected:.1f} ± {LENGTH_SHARE:.0%}, as in the run before"
        files = main.events.path, reference.events.path
        yield compared("endpoints-audit-lengths", right, f"{found_bytes:.1f}", limit, *files, text=text)
