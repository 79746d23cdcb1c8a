"""The client's output-caching audit, judged again from its two runs: unique samples, then as many of one of them.

The client compares two rates and nothing else: a repeated sample that is shorter than the mean, or a reference that ran
before the server was warm, make a cheat of an honest server; and after a run of the same samples a server that keeps
answers has them for the reference as well. So the limits are raised by the lengths and by what a cold start took, as in
our own audit, and the reference is compared with the run before it.
[mlcommons/endpoints ea332753: compliance/audit_test/output_caching_test.py]
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from compliance.audits.output_caching import SECOND_TIME_THRESHOLD
from compliance.audits.pace import LATENCY, RATE, SLOWEST_SHARE, Pace, compare_paces, decisive
from compliance.endpoints.load import Load, audit_leg, judge_load, read_load
from compliance.finding import AUDIT_AGAIN, OURS, RERUN, Finding, applied, decides, fail, note
from runs.endpoints.events import NO_TIME
from runs.endpoints.folder import AUDIT, CACHED, REFERENCE, VERDICT, EndpointsRun
from runs.fields import Amount, Count, strictly
from runs.reading import read_as, read_record

TEXT = "verify_OUTPUT_CACHING_TEST.txt"
_FIX = "take the unchanged file of the client's audit"
# Answers that are computed come piece by piece; from a cache they come at once. What keeps prompts leaves that pace.
DECODE_FASTER = 1.5
_SAME = ("model_params", "endpoint_config", "datasets")  # of config.yaml


class ClientVerdict(BaseModel):
    """audit_output_caching_test.json."""

    model_config = strictly() | {"extra": "ignore"}

    test: str
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
        """What the client's own rule says of these numbers."""
        least = 1.0 - self.threshold
        answered = self.ref_completed >= self.ref_requested * least
        answered = answered and self.audit_completed >= self.audit_requested * least
        return answered and self.audit_qps < self.ref_qps * (1.0 + self.threshold)


@dataclass(frozen=True)
class AuditFolder:
    """A run folder with an audit in it."""

    run: EndpointsRun

    @property
    def root(self) -> Path:
        return self.run.root / AUDIT

    @cached_property
    def threshold(self) -> float | None:
        """That was asked for; of an audit that ran alone the verdict tells it."""
        if self.run.config is not None:
            return None if self.run.config.audit is None else self.run.config.audit.threshold
        return None if self.client_verdict is None else self.client_verdict.threshold

    @cached_property
    def legs(self) -> tuple[Load | None, Load | None]:
        reference, cached = (EndpointsRun(self.root / name) for name in (REFERENCE, CACHED))
        return read_load(reference, audit_leg(reference.root)), read_load(cached, audit_leg(cached.root))

    @cached_property
    def client_verdict(self) -> ClientVerdict | None:
        path = self.root / VERDICT
        return read_as(path, ClientVerdict, _FIX, within=self.root) if path.exists() else None

    @cached_property
    def main(self) -> Load | None:
        """The run before the audit, where there was one."""
        return read_load(self.run)

    @property
    def cold(self) -> bool:
        """Whether nothing was asked of the server before the reference."""
        reference = self.legs[0]
        warmed = reference is not None and reference.config.settings.warmup.enabled
        return self.main is None and not warmed


def has_audit(run: EndpointsRun) -> bool:
    """Whether a folder holds an audit, or should."""
    return (run.root / AUDIT).is_dir() or (run.config is not None and run.config.audit is not None)


@decides(
    "contradiction",
    ("endpoints-audit", "error", OURS, "the audit's two runs and its verdict are there", RERUN),
    ("endpoints-audit-same", "error", OURS, "the audit is of the same system, and after the run", RERUN),
)  # fmt: skip
def judge_audit(folder: AuditFolder) -> Iterator[Finding]:
    """Every rule on a folder's audit; the loads of its two runs are judged as well."""
    reference, cached = folder.legs
    if folder.threshold is None or reference is None or cached is None or folder.client_verdict is None:
        there = {
            "audit in config.yaml": folder.threshold, f"{AUDIT}/{REFERENCE}": reference, f"{AUDIT}/{CACHED}": cached,
            f"{AUDIT}/{VERDICT}": folder.client_verdict,
        }  # fmt: skip
        missing = ", ".join(name for name, found in there.items() if found is None)
        yield fail("endpoints-audit", f"the audit is not whole: no {missing}", folder.root)
        return
    for load in (reference, cached):
        yield from judge_load(load)
    runs = [load for load in (folder.main, reference, cached) if load is not None]
    raw = [load.run.raw_config for load in runs]
    others = [name for name in _SAME if any(one.get(name) != raw[0].get(name) for one in raw)]
    others += ["settings"] * (reference.config.settings != cached.config.settings)
    differ = ", ".join(others)
    yield applied(
        "endpoints-audit-same", "what its configurations differ in", not others, differ or "nothing", "nothing"
    )
    overlap = sum(one.events.last_ns > other.events.started_ns for one, other in pairwise(runs))
    text = "runs that began before the one before them had ended"
    yield applied("endpoints-audit-same", text, not overlap, f"{overlap}", "0", folder.root)
    yield from _client_numbers(folder, folder.client_verdict, reference, cached)
    yield from _judged(folder, folder.threshold, reference, cached)


@decides(
    "contradiction",
    ("endpoints-audit-numbers", "error", OURS, "the client's verdict follows from its two runs", RERUN),
)  # fmt: skip
def _client_numbers(folder: AuditFolder, told: ClientVerdict, reference: Load, cached: Load) -> Iterator[Finding]:
    path = folder.root / VERDICT
    for name, load, qps, completed, requested in (
        (REFERENCE, reference, told.ref_qps, told.ref_completed, told.ref_requested),
        (CACHED, cached, told.audit_qps, told.audit_completed, told.audit_requested),
    ):
        summary = load.run.summary
        wanted = None if load.asked is None else load.asked.count
        facts = (None if summary is None else (summary.qps, summary.n_samples_completed), wanted)
        same = facts == ((qps, completed), requested)
        said = f"{qps:g} queries/s, {completed} of {requested}"
        yield applied(
            "endpoints-audit-numbers", f"{name} in the verdict", same, said, "as its summary and config.yaml", path
        )
    asked = folder.threshold
    right = told.passed == told.follows and told.threshold == asked
    said = "PASS" if told.passed else "FAIL"
    rule = f"{'PASS' if told.follows else 'FAIL'} by its rule, at {asked}"
    yield applied("endpoints-audit-numbers", "the verdict", right, f"{said} at {told.threshold}", rule, path)
    text = folder.root / TEXT
    if text.exists():
        content = read_record(text, _FIX).decode(errors="replace").strip()
        wanted_text = f"Performance check pass: {told.passed}"
        yield applied("endpoints-audit-numbers", TEXT, content == wanted_text, content[:100], wanted_text, text)


@decides(
    "audit",
    ("endpoints-audit-answered", "error", OURS, "the samples asked for were answered", AUDIT_AGAIN),
    ("endpoints-audit-kept-prompts", "warning", "[endpoints] §2.9.5",
     "repeated prompts were answered sooner, and not from kept answers",
     "ask with a salt, or with prefix caching off, to see the answers' own pace"),
    ("endpoints-audit-verdict", "note", OURS, "the client's verdict and ours", "see the numbers of both"),
)  # fmt: skip
def _judged(folder: AuditFolder, threshold: float, reference: Load, cached: Load) -> Iterator[Finding]:
    place = folder.root
    for label, load in ((REFERENCE, reference), (CACHED, cached)):
        least = len(load.rows) * (1 - threshold)
        answered = int(_answered(load).sum())
        text = f"{label}: samples answered"
        yield applied("endpoints-audit-answered", text, answered >= least, f"{answered}", f"at least {least:g}", place)
        if not answered:
            return
    unit = _output_unit(reference, cached)
    cold_ns = _cold_ns(reference, cached) if folder.cold else 0
    paces = _pace(reference, REFERENCE, unit, cold_ns), _pace(cached, CACHED, unit)
    findings = found = compare_paces(*paces, threshold)
    if not all(one.passed for one in found) and _decodes_alike(reference, cached):
        findings = [
            finding if finding.passed or finding.rule != "caching-pace"
            else replace(finding, rule="endpoints-audit-kept-prompts", severity="warning")
            for finding in findings
        ]  # fmt: skip
    if folder.main is not None and _answered(folder.main).any():
        findings = findings + _second_time(folder.main, reference, unit)
    yield from findings
    told, broken = folder.client_verdict, next((one for one in findings if one.severity == "error"), None)
    if told is not None:
        client = f"client: {'PASS' if told.passed else 'FAIL'}, {told.audit_qps:.6g} queries/s against "
        client += f"{told.ref_qps:.6g} × {1 + told.threshold:g}"
        ours = f"FAIL, {broken.text}" if broken else f"PASS, {_why(found, paces, cold_ns)}"
        yield note("endpoints-audit-verdict", f"{client}; here: {ours}", place, client=told.passed, ours=broken is None)


def _why(found: list[Finding], paces: tuple[Pace, Pace], cold_ns: int) -> str:
    lengths = [
        np.mean([pace.lengths[index][which] for index in pace.issued]) for which in (0, 1) for pace in paces
    ]  # fmt: skip
    rate = decisive(found).numbers
    text = (
        f"{rate['name']} {rate['test']:.6g} with a limit of {rate['limit']:.6g}: prompts "
        f"{lengths[1] / lengths[0]:.0%} and answers {lengths[3] / lengths[2]:.0%} as long as the reference's"
    )
    return text + (f", which began {cold_ns / 1e9:.2f} s cold" if cold_ns else "")


def _answered(load: Load) -> NDArray[np.bool_]:
    return np.asarray((load.complete_ns != NO_TIME) & ~load.events.failed[load.rows])


def _output_unit(*loads: Load) -> str:
    """Bytes tell how long answers are, but not of a model that talks nonsense; where all ended at the limit, they are
    of one length."""
    ended = {
        load.events.reasons[one] if one >= 0 else ""
        for load in loads
        for one in np.unique(load.events.reason[load.rows][_answered(load)])
    }
    return "limit" if ended == {"length"} else "bytes"


def _cold_ns(reference: Load, cached: Load) -> int:
    """How much later the first sample's answer came where nothing had been asked before."""
    first = [int((load.complete_ns - load.issued_ns)[_answered(load)][0]) for load in (reference, cached)]
    return max(0, first[0] - first[1])


def _pace(load: Load, label: str, unit: str, cold_ns: int = 0) -> Pace:
    answered = _answered(load)
    rows = load.rows[answered]
    latency = (load.complete_ns - load.issued_ns)[answered].astype(float)
    wave = int(load.config.settings.load_pattern.target_concurrency or 1) if cold_ns else 0  # those sent first
    first = (load.events.first_ns[load.rows] - load.issued_ns)[answered & (load.events.first_ns[load.rows] != NO_TIME)]
    first = first[wave:] if len(first) > wave else first
    index = load.index[answered].tolist()
    prompts = load.events.prompt_size[rows].tolist()
    outputs = np.ones(len(rows)) if unit == "limit" else load.events.answer_bytes[rows].astype(float)
    made: dict[int, list[float]] = {}
    for one, length in zip(index, outputs.tolist(), strict=True):
        made.setdefault(one, []).append(length)
    size = dict(zip(index, prompts, strict=True))
    offline = load.config.settings.load_pattern.type == "max_throughput"
    run_ns = float(load.complete_ns[answered].max() - load.start_ns)
    mean = float(latency.mean())
    return Pace(
        label=label,
        scenario="Offline" if offline else "SingleStream",
        samples_per_second=len(rows) / max(_less(run_ns, cold_ns), 1.0) * 1e9,
        mean_latency_ns=_less(mean, cold_ns) if offline else mean,
        steady_latency_ns=_less(mean, cold_ns) if offline else _steady(latency, wave),
        median_ttft_ns=float(np.median(first)) if len(first) and not offline else None,
        lengths={one: (size[one] or 1, float(np.mean(made[one])) or 1.0) for one in size},
        issued=index,
    )


def _less(time_ns: float, cold_ns: int) -> float:
    """A cold start never takes more than half away: a run of one batch is all start."""
    return max(time_ns - cold_ns, time_ns / 2)


def _steady(latency: NDArray[np.float64], wave: int) -> float:
    """Mean latency without the slowest tenth, and after a cold start without those sent first."""
    kept = np.sort(latency)[: len(latency) - int(len(latency) * SLOWEST_SHARE)]
    later = latency[wave:] if len(latency) > wave else latency
    return max(1.0, min(float(kept.mean()), float(later.mean())))


def _decodes_alike(reference: Load, cached: Load) -> bool:
    """Whether the pieces after the first came no faster; only with streaming can that be seen."""
    pace = []
    for load in (reference, cached):
        events, rows = load.events, load.rows
        streamed = _answered(load) & (events.first_ns[rows] != NO_TIME) & (events.rest_bytes[rows] > 0)
        if not streamed.any():
            return False
        taken = (load.complete_ns - events.first_ns[rows])[streamed].sum()
        pace.append(float(taken) / float(events.rest_bytes[rows][streamed].sum()))
    return pace[0] <= pace[1] * DECODE_FASTER


@decides(
    "audit",
    ("endpoints-audit-second-time", "error", OURS, "the reference's samples were not answered faster than before it",
     "find out what is kept between queries; run the audit alone, on a server just started"),
)  # fmt: skip
def _second_time(main: Load, reference: Load, unit: str) -> list[Finding]:
    """A server that keeps answers has those of the reference from the run before it."""
    if main.config.settings.load_pattern != reference.config.settings.load_pattern:
        return []
    before, after = _pace(main, "the run before", unit), _pace(reference, REFERENCE, unit)
    offline = after.scenario == "Offline"
    name = RATE if offline else LATENCY  # in Offline more samples wait longer
    text = f"{REFERENCE}: {name}, of samples that the run before had"
    rates = compare_paces(before, after, SECOND_TIME_THRESHOLD)
    found = next(one for one in rates if one.numbers.get("name") == name)
    return [replace(found, rule="endpoints-audit-second-time", text=text)]
