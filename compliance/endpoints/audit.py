"""The client's output-caching audit, judged again from its two runs: unique samples, then as many of one of them.

The client compares two rates and nothing else: a repeated sample that is shorter than the mean, or a reference that ran
before the server was warm, make a cheat of an honest server; and after a run of the same samples a server that keeps
responses has them for the reference as well. So the limits are raised by the lengths and by what a cold start took, as
in our own audit, and the reference is compared with the run before it.
[mlcommons/endpoints ea332753: compliance/audit_test/output_caching_test.py]
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from pydantic import BaseModel, Field

from compliance.audits.pace import LATENCY, LENGTH_SHARE, RATE, SLOWEST_SHARE, Pace, compare_paces, deciding_rate
from compliance.endpoints.load import Load, judge_load, read_load
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared, fail, note
from compliance.judge.rule import AUDIT_AGAIN, OURS, RERUN
from runs.endpoints.events import NO_TIME
from runs.endpoints.folder import EndpointsRun
from runs.endpoints.layout import AUDIT, CACHED, REFERENCE, VERDICT
from runs.fields import Amount, Count, strictly
from runs.reading import read_as, read_record

TEXT = "verify_OUTPUT_CACHING_TEST.txt"
_FIX = "take the unchanged file of the client's audit"
# A run twice as fast as the one before it shows that responses were kept; a machine does not change so much.
SECOND_TIME_THRESHOLD = 1.0
# Faster runs are not compared, because chance decides how much faster another run of the one pair is: a whole run with
# everything sent at once, a response, a first token.
MIN_RUN_S, MIN_LATENCY_NS, MIN_TTFT_NS = 0.05, 5_000_000, 5_000_000
# Responses that are computed come piece by piece; from a cache they come at once. What keeps prompts leaves that pace.
DECODE_FASTER = 1.5
_SAME = ("model_params", "endpoint_config", "datasets")  # of config.yaml


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
        """The verdict of the client's own rule on these numbers."""
        least = 1.0 - self.threshold
        answered = self.ref_completed >= self.ref_requested * least
        answered = answered and self.audit_completed >= self.audit_requested * least
        return answered and self.audit_qps < self.ref_qps * (1.0 + self.threshold)


@decides(
    "contradiction",
    ("endpoints-audit", "error", OURS, "the audit's two runs and its verdict are there", RERUN),
    ("endpoints-audit-same", "error", OURS, "the audit is of the same system, and after the run", RERUN),
    ("endpoints-audit-numbers", "error", OURS, "the client's verdict follows from its two runs", RERUN),
)  # fmt: skip
def judge_audit(run: EndpointsRun, main: Load | None) -> Iterator[Finding]:
    """Every rule on a folder's audit; the loads of its two runs are judged as well.

    Args:
        main: the run before the audit, where there was one.
    """
    root = run.root / AUDIT
    reference, cached = (read_load(EndpointsRun(root / name)) for name in (REFERENCE, CACHED))
    client = read_as(root / VERDICT, ClientVerdict, _FIX, within=root) if (root / VERDICT).exists() else None
    asked = client if run.config is None else run.config.audit  # an audit that ran alone has no other record of it
    if asked is None or reference is None or cached is None or client is None:
        there = {
            "audit in config.yaml": asked, f"{AUDIT}/{REFERENCE}": reference, f"{AUDIT}/{CACHED}": cached,
            f"{AUDIT}/{VERDICT}": client,
        }  # fmt: skip
        missing = ", ".join(name for name, found in there.items() if found is None)
        yield fail("endpoints-audit", f"the audit is not whole: no {missing}", root)
        return
    for load in (reference, cached):
        yield from judge_load(load)
    loads = [load for load in (main, reference, cached) if load is not None]
    raw = [load.run.raw_config for load in loads]
    others = [name for name in _SAME if any(one.get(name) != raw[0].get(name) for one in raw)]
    others += ["settings"] * (reference.config.settings != cached.config.settings)
    differ = ", ".join(others) or "nothing"
    yield compared("endpoints-audit-same", "what its configurations differ in", not others, differ, "nothing")
    overlap = sum(one.events.last_ns > other.events.started_ns for one, other in pairwise(loads))
    text = "runs that began before the one before them had ended"
    yield compared("endpoints-audit-same", text, not overlap, f"{overlap}", "0", root)
    yield from _client_numbers(client, asked.threshold, reference, cached)
    yield from _judged(client, asked.threshold, main, reference, cached)


def _client_numbers(client: ClientVerdict, threshold: float, reference: Load, cached: Load) -> Iterator[Finding]:
    root = reference.run.root.parent
    for name, load, qps, completed, requested in (
        (REFERENCE, reference, client.ref_qps, client.ref_completed, client.ref_requested),
        (CACHED, cached, client.audit_qps, client.audit_completed, client.audit_requested),
    ):
        summary = load.run.summary
        same = summary is not None and (summary.qps, summary.n_samples_completed) == (qps, completed)
        found = f"{qps:g} queries/s, {completed} of {requested}"
        yield compared(
            "endpoints-audit-numbers", f"{name} in the verdict", same and load.audit_samples == requested, found,
            "as its summary and config.yaml", root / VERDICT,
        )  # fmt: skip
    right = client.passed == client.follows and client.threshold == threshold
    found = f"{_word(client.passed)} at {client.threshold}"
    rule = f"{_word(client.follows)} by its rule, at {threshold}"
    yield compared("endpoints-audit-numbers", "the verdict", right, found, rule, root / VERDICT)
    if (text := root / TEXT).exists():
        content = read_record(text, _FIX).decode(errors="replace").strip()
        wanted = f"Performance check pass: {client.passed}"
        yield compared("endpoints-audit-numbers", TEXT, content == wanted, content[:100], wanted, text)


def _word(passed: bool) -> str:
    return "PASS" if passed else "FAIL"


@decides(
    "audit",
    ("endpoints-audit-answered", "error", OURS, "the samples asked for were answered", AUDIT_AGAIN),
    ("endpoints-audit-too-fast", "warning", OURS, "duration of the audit's reference run",
     "run the client's audit with more samples"),
    ("endpoints-audit-kept-prompts", "warning", "[endpoints] §2.9.5",
     "repeated prompts were answered sooner, and not from kept responses",
     "ask with a salt, or with prefix caching off, to see the responses' own pace"),
    ("endpoints-audit-second-time", "error", OURS, "the reference's samples were not answered faster than before it",
     "find out what is kept between queries; run the audit alone, on a server just started"),
    ("endpoints-audit-lengths", "warning", OURS, "the reference's responses are as long as they were before it",
     "take the unchanged folder; run again"),
    ("endpoints-audit-verdict", "note", OURS, "the client's verdict and ours", "see the numbers of both"),
)  # fmt: skip
def _judged(
    client: ClientVerdict, threshold: float, main: Load | None, reference: Load, cached: Load
) -> Iterator[Finding]:
    root = reference.run.root.parent
    for label, load in ((REFERENCE, reference), (CACHED, cached)):
        least, answered = len(load.rows) * (1 - threshold), int(load.answered.sum())
        text = f"{label}: samples answered"
        yield compared("endpoints-audit-answered", text, answered >= least, f"{answered}", f"at least {least:g}", root)
        if not answered:
            return
    # Lengths of responses are bytes; where all ended at the limit, they are of one length, whatever a random model
    # wrote.
    runs = (reference, cached)
    ends = [np.unique(load.events.reason[load.rows][load.answered]).tolist() for load in runs]
    by_limit = ends == [[load.events.reasons.get("length")] for load in runs]
    # How much longer the first response took where the server had answered nothing before.
    first_ns = [int((load.complete_ns - load.issued_ns)[load.answered][0]) for load in runs]
    cold = main is None and not reference.config.settings.warmup.enabled
    cold_ns = max(0, first_ns[0] - first_ns[1]) if cold else 0
    paces = _pace(reference, REFERENCE, by_limit, cold_ns), _pace(cached, CACHED, by_limit)
    against = list(_against(main, reference, by_limit)) if main is not None and main.answered.any() else []
    if too_fast := _too_fast(paces[0]):
        yield from against
        yield compared("endpoints-audit-too-fast", f"{REFERENCE}: {too_fast[0]}", False, *too_fast[1:], root)
        broken = next((one for one in against if one.severity == "error"), None)
        ours = f"FAIL, {broken.text}" if broken else "no verdict, the reference run is too short"
        text = f"{_client_verdict(client)}; here: {ours}"
        yield note("endpoints-audit-verdict", text, root, client=client.passed, ours=False if broken else None)
        return
    paced = findings = compare_paces(*paces, threshold, least_ttft_ns=MIN_TTFT_NS)
    if not all(one.passed for one in paced) and _decodes_alike(reference, cached):
        findings = [
            finding if finding.passed or finding.rule != "caching-pace"
            else replace(finding, rule="endpoints-audit-kept-prompts", severity="warning")
            for finding in paced
        ]  # fmt: skip
    findings = [*findings, *against]
    yield from findings
    broken = next((one for one in findings if one.severity == "error"), None)
    rate, issued = deciding_rate(paced).numbers, [[pace.lengths[one] for one in pace.issued] for pace in paces]
    prompts, responses = np.mean(issued[1], axis=0) / np.mean(issued[0], axis=0)
    text = f"{_client_verdict(client)}; here: "
    text += (
        f"FAIL, {broken.text}"
        if broken
        else (
            f"PASS, {rate['name']} {rate['test']:.6g} with a limit of {rate['limit']:.6g}: prompts {prompts:.0%} and "
            f"responses {responses:.0%} as long as the reference's"
        )
        + (f", which began {cold_ns / 1e9:.2f} s cold" if cold_ns else "")
    )
    yield note("endpoints-audit-verdict", text, root, client=client.passed, ours=broken is None)


def _client_verdict(client: ClientVerdict) -> str:
    return (
        f"client: {_word(client.passed)}, {client.audit_qps:.6g} queries/s against {client.ref_qps:.6g} × "
        f"{1 + client.threshold:g}"
    )


def _pace(load: Load, label: str, by_limit: bool, cold_ns: int = 0) -> Pace:
    """A run in the numbers that are compared; with `by_limit` all responses are of one length.

    A cold start never takes more than half away: a run of one batch is all start.
    """
    events, answered = load.events, load.answered
    rows, issued_ns = load.rows[answered], load.issued_ns[answered]
    latency = (load.complete_ns[answered] - issued_ns).astype(float)
    wave = int(load.config.settings.load_pattern.target_concurrency or 1) if cold_ns else 0  # those sent first
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
    return Pace(
        label=label,
        scenario="Offline" if offline else "SingleStream",
        samples_per_second=len(rows) / max(run_ns - cold_ns, run_ns / 2, 1.0) * 1e9,
        mean_latency_ns=steady if offline else mean,
        steady_latency_ns=steady,
        median_ttft_ns=float(np.median(ttft)) if len(ttft) and not offline else None,
        lengths={
            one: (prompt or 1, output or 1.0) for one, (prompt, output) in zip(index.tolist(), lengths, strict=True)
        },
        issued=load.index[answered].tolist(),
    )


def _too_fast(reference: Pace) -> tuple[str, str, str] | None:
    """What is too short to be compared, what was found and what is required."""
    if reference.scenario == "Offline":
        if reference.seconds >= MIN_RUN_S:
            return None
        return "duration", f"{reference.seconds * 1e3:.3g} ms", f"at least {MIN_RUN_S * 1e3:g} ms"
    if reference.mean_latency_ns >= MIN_LATENCY_NS:
        return None
    return "mean latency", f"{reference.mean_latency_ns / 1e6:.3g} ms", f"at least {MIN_LATENCY_NS / 1e6:g} ms"


def _decodes_alike(reference: Load, cached: Load) -> bool:
    """Whether the pieces after the first came no faster; only with streaming can that be seen."""
    pace = []
    for load in (reference, cached):
        first_ns, rest = load.events.first_ns[load.rows], load.events.rest_bytes[load.rows]
        streamed = load.answered & (first_ns != NO_TIME) & (rest > 0)
        if not streamed.any():
            return False
        pace.append(float((load.complete_ns - first_ns)[streamed].sum()) / float(rest[streamed].sum()))
    return pace[0] <= pace[1] * DECODE_FASTER


def _against(main: Load, reference: Load, by_limit: bool) -> Iterator[Finding]:
    """The reference against the run before it, which had its samples already."""
    before, after = _pace(main, "the run before", by_limit), _pace(reference, REFERENCE, by_limit)
    same_load = main.config.settings.load_pattern == reference.config.settings.load_pattern
    if same_load and _too_fast(before) is None:
        # A server that keeps responses has those of the reference.
        name = RATE if after.scenario == "Offline" else LATENCY  # in Offline more samples wait longer
        rates = compare_paces(before, after, SECOND_TIME_THRESHOLD, least_ttft_ns=MIN_TTFT_NS)
        found = next(one for one in rates if one.numbers.get("name") == name)
        text = f"{REFERENCE}: {name}, of samples that the run before had"
        yield replace(found, rule="endpoints-audit-second-time", text=text)
    lengths, again = (_pace(load, "", by_limit=False).lengths for load in (main, reference))
    both, params = lengths.keys() & again.keys(), main.run.raw_config.get("model_params")
    # Without sampling a prompt has one response, up to what changes with the others in its batch.
    if both and isinstance(params, dict) and params.get("temperature") == 0:
        expected, found_bytes = (float(np.mean([one[index][1] for index in both])) for one in (lengths, again))
        text, right = (
            f"{REFERENCE}: mean bytes of {len(both)} responses",
            abs(found_bytes / expected - 1) <= LENGTH_SHARE,
        )
        limit = f"{expected:.1f} ± {LENGTH_SHARE:.0%}, as in the run before"
        files = main.events.path, reference.events.path
        yield compared("endpoints-audit-lengths", text, right, f"{found_bytes:.1f}", limit, *files)
