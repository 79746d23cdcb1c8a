"""output_caching: does the system answer a repeated query faster than a new one?

Three kinds of legs, each in a process of its own: a reference of unique samples; the same number of queries that all
repeat one sample; and a few samples in changing order, for a cache that recomputes immediate repetitions. Samples
differ in length, so each comparison allows for the lengths of the issued samples. A leg that seems too fast is run
again together with its reference before it counts, since the speed of a machine changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compliance.audits.base import (
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    AuditTest,
    LegArtifacts,
    LegSpec,
    requested_count,
    text_of,
)
from compliance.audits.pace import compare_paces, decisive, excess, pace_of
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.benchmark import Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.loadgen.detail_log import DetailLog

DEFAULT_SAMPLES = {"Offline": 64, "SingleStream": 32}
DEFAULT_THRESHOLD = {"Offline": 0.10, "SingleStream": 0.20}
FEW_SAMPLES = 4
FEW_FROM_SAMPLES = 16  # fewer queries than this cannot repeat the few often enough
REFERENCE, FEW = "reference", "few"
# Suffixes of the rounds: a leg over its limit is run again, and a third time if it is no further over it than CLOSE.
AGAIN, THIRD = "-again", "-third"
ROUNDS = "", AGAIN, THIRD
CLOSE = 1.10
_REPEAT = re.compile(r"repeat-(\d{1,6})")
# A second reference leg twice as fast as the first shows that answers were kept; a machine does not change so much.
SECOND_TIME_THRESHOLD = 1.0


class OutputCaching(AuditTest):
    name = "output_caching"
    knobs = frozenset({"samples", "audit_samples", "sample_index", "threshold"})

    def validate(self, request: AuditRequest) -> None:
        super().validate(request)
        if request.scenario not in DEFAULT_SAMPLES:
            raise SetupError(
                f"--test {self.name} --scenario {request.scenario}: in LoadGen's Server scenario the arrival rate "
                "fixes the samples/s, so a system that caches everything looks like one that does not",
                "audit the same system with --scenario Offline or SingleStream",
            )
        request.threshold_or(DEFAULT_THRESHOLD[request.scenario])
        samples = request.samples_or(DEFAULT_SAMPLES[request.scenario])
        if request.audit_samples is not None and request.audit_samples < 1:
            raise InputError(f"--audit-samples {request.audit_samples} is below 1", "give a count of at least 1")
        if len(set(request.sample_index)) != len(request.sample_index):
            given = ",".join(map(str, request.sample_index))
            raise InputError(f"--sample-index {given} names a sample twice", "name each once")
        for index in request.sample_index:
            if not 0 <= index < samples:
                raise InputError(
                    f"--sample-index {index} is outside the {samples} samples that the legs load; LoadGen would crash",
                    f"give 0 to {samples - 1}, or auto",
                )

    def recover(self, scenario: Scenario, logs: Mapping[str, DetailLog], details: Mapping[str, Any]) -> dict[str, Any]:
        if REFERENCE not in logs:
            raise InputError(f"{', '.join(logs) or 'no leg'}: none is the reference", "run the audit again")
        indices = [found[1] for label in logs if (found := _REPEAT.fullmatch(label))]
        repeats = [log for label, log in logs.items() if not label.startswith(REFERENCE)]
        default, threshold = DEFAULT_THRESHOLD.get(scenario), details.get("threshold")
        return {
            "samples": logs[REFERENCE].integer("effective_performance_sample_count"),
            "audit_samples": min(map(requested_count, repeats), default=None),
            "sample_index": tuple(map(int, indices)),
            "threshold": threshold if isinstance(threshold, float) and default and 0 < threshold < default else None,
        }

    def legs(self, request: AuditRequest) -> list[LegSpec]:
        samples = request.samples_or(DEFAULT_SAMPLES[request.scenario])
        return [_spec(request.scenario, REFERENCE, samples, samples, performance_issue_unique=1)]

    def more_legs(self, request: AuditRequest, finished: Sequence[LegArtifacts]) -> list[LegSpec]:
        scenario = request.scenario
        for leg in finished:
            _check_issued(leg)
        if len(finished) == 1:
            samples = request.samples_or(DEFAULT_SAMPLES[scenario])
            count = request.audit_samples or samples
            repeats = [
                _spec(
                    scenario, f"repeat-{index}", samples, count,
                    performance_issue_same=1, performance_issue_same_index=index,
                )
                for index in request.sample_index or (nearest_mean(finished[0]),)
            ]  # fmt: skip
            return repeats + [_spec(scenario, FEW, FEW_SAMPLES, count)] * (samples >= FEW_FROM_SAMPLES)
        specs = {leg.spec.label: leg.spec for leg in finished}
        rounds = _rounds(finished, request.threshold_or(DEFAULT_THRESHOLD[scenario]))
        over = {label: found[-1] for label, found in rounds.items() if _broken(found[-1])}
        if REFERENCE + AGAIN not in specs:
            # In reverse order, so that a machine that becomes faster or slower does not favour the same legs again.
            suffix, labels = AGAIN, [*over, REFERENCE]
        else:
            suffix, labels = THIRD, [REFERENCE, *(label for label, found in over.items() if excess(found) < CLOSE)]
        if not over or len(labels) == 1 or REFERENCE + THIRD in specs:
            return []
        return [replace(specs[label], label=label + suffix) for label in labels]

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        self.need(legs, 2)
        for leg in legs:
            _check_issued(leg)
        threshold = request.threshold_or(DEFAULT_THRESHOLD[request.scenario])
        # The mildest round counts: a cache is fast every time, a disturbed machine is not.
        mildest = {
            label: min(rounds, key=lambda found: (_broken(found), excess(found)))
            for label, rounds in _rounds(legs, threshold).items()
        }
        checks = [_completeness(leg, threshold) for leg in legs]
        checks += [check for found in mildest.values() for check in found]
        checks += _second_reference(legs)
        checks += [check for leg in legs for check in _direct_evidence(leg)]
        rate = decisive(max(mildest.values(), key=lambda found: (_broken(found), excess(found))))
        label, limit = rate.text.partition(":")[0], rate.numbers["limit"]
        audit = next(leg for leg in legs if leg.spec.label == label)
        reference, test, unit = (rate.numbers[name] for name in ("reference", "test", "name"))
        scores = f"{label}: {test:.6g} against {reference:.6g} of reference ({unit})"
        failed = [check for check in checks if not check.passed]
        if failed:
            broken = f"{failed[0].text}: {failed[0].found}"
            text, reason = f"TEST FAIL: {broken}, required {failed[0].required}", f"{broken} ({scores})"
        else:
            text, reason = "TEST PASS", f"{scores}, limit {limit:.6g}"
        head = f"Verifying performance.\nreference score = {reference}\ntest score = {test}\n{text}\n"
        rule = _rule(request.scenario, threshold)
        return self.result(
            checks,
            legs,
            reason=reason,
            rule=rule,
            text=text_of(head, rule, legs, checks),
            details={
                "threshold": threshold,
                "ref_qps": reference,
                "audit_qps": test,
                "unit": unit,
                "ref_completed": legs[0].completed,
                "ref_requested": legs[0].requested,
                "audit_completed": audit.completed,
                "audit_requested": audit.requested,
                "decided_by": label,
            },
        )


def nearest_mean(reference: LegArtifacts) -> int:
    """The place, in LoadGen's loaded set, of the sample whose lengths are nearest the leg's means.

    Distance: the larger of the two relative ones, of prompt and of output tokens.
    """
    table = reference.request_table
    if len(table) == 0:
        raise ExecutionError("the reference leg answered no sample", f"see {reference.run.engine_log}")
    prompt = np.abs(table.prompt_tokens / table.prompt_tokens.mean() - 1)
    output = np.abs(table.output_tokens / table.output_tokens.mean() - 1)
    chosen = int(table.sample_index[np.argmin(np.maximum(prompt, output))])
    loaded = reference.detail.loaded_qsl_set
    if chosen not in loaded:
        raise ExecutionError(f"sample {chosen} was answered but never loaded", f"see {reference.run.detail}")
    return loaded.index(chosen)


def _spec(scenario: Scenario, label: str, loaded: int, count: int, **others: int) -> LegSpec:
    """A leg that loads the first `loaded` samples and issues `count` queries of them.

    Without a minimum duration the counts are exact: Offline's 1.1 × target_qps × min_duration is 0, and SingleStream
    ends at min_query_count.
    """
    settings = {
        "mode": PERFORMANCE_MODE,
        "performance_issue_unique": 0,
        "performance_issue_same": 0,
        "performance_issue_same_index": 0,
        "performance_sample_count_override": loaded,
        "sample_concatenate_permutation": 0,
        "min_query_count": count,
        "min_duration": 0,
        "max_duration": 0,
        "max_query_count": 0,
    }
    return LegSpec(label, settings=settings | others, scenario=scenario, requested=count)


def _check_issued(leg: LegArtifacts) -> None:
    """Check by the record of requests that LoadGen issued the samples of this kind of leg."""
    table, effective = leg.request_table, leg.spec.in_force
    found = len(np.unique(table.sample_index))
    if effective["performance_issue_same"]:
        expected = [leg.detail.loaded_qsl_set[effective["performance_issue_same_index"]]]
        right = np.unique(table.sample_index).tolist() == expected
    elif effective["performance_issue_unique"]:
        right = found == len(table)
    else:
        right = found <= effective["performance_sample_count"]
    if not right or len(table) == 0:
        raise ExecutionError(
            f"audit leg {leg.spec.label}: {len(table)} queries of {found} samples do not fit its audit.config",
            f"see {leg.run.detail}; no verdict",
        )


def _rounds(legs: Sequence[LegArtifacts], threshold: float) -> dict[str, list[list[Finding]]]:
    """For each repeating leg: its comparisons with the reference, one for each round that it is in."""
    by_label = {leg.spec.label: leg for leg in legs}
    first, *others = by_label
    if first != REFERENCE or len(by_label) != len(legs):
        text = f"{OutputCaching.name}: the legs {list(by_label)} do not start with one reference"
        raise ExecutionError(text, "run the audit again")
    paces = {label: pace_of(leg) for label, leg in by_label.items()}
    return {
        label: [
            compare_paces(paces[REFERENCE + suffix], paces[label + suffix], threshold)
            for suffix in ROUNDS
            if label + suffix in by_label
        ]
        for label in others
        if not label.endswith((AGAIN, THIRD))
    }


def _broken(found: Sequence[Finding]) -> bool:
    return any(not one.passed for one in found)


@decides(
    "audit",
    ("caching-second-reference", "error", OURS, "unique samples are not answered faster later on",
     "find out what is kept between queries; run the audit again on an idle machine"),
)  # fmt: skip
def _second_reference(legs: list[LegArtifacts]) -> Iterator[Finding]:
    """Compare later reference legs, which have the same samples, with the first: a system that keeps answers across
    processes would pass all other comparisons."""
    for leg in legs:
        if leg.spec.label in (REFERENCE + AGAIN, REFERENCE + THIRD):
            latency = compare_paces(pace_of(legs[0]), pace_of(leg), SECOND_TIME_THRESHOLD)[0]
            yield replace(
                latency, rule="caching-second-reference", text=f"{latency.text}, of the same samples as before"
            )


@decides(
    "audit",
    ("caching-answered", "error", OURS, "the requested samples were answered", AUDIT_AGAIN),
)  # fmt: skip
def _completeness(leg: LegArtifacts, threshold: float) -> Finding:
    needed = leg.requested * (1 - threshold)
    return applied(
        "caching-answered",
        f"{leg.spec.label}: samples answered",
        leg.completed >= needed,
        str(leg.completed),
        f"at least {needed:g} of {leg.requested}",
        leg.run.detail,
    )


@decides(
    "audit",
    ("caching-engine", "error", "[rules] no caching of queries", "the engine caches no prompts",
     "run with prefix caching off"),
    ("caching-tokens", "error", "[rules] no caching of queries", "no prompt token came from a cache",
     "run with prefix caching off"),
)  # fmt: skip
def _direct_evidence(leg: LegArtifacts) -> Iterator[Finding]:
    """What the engine itself reports; a cheating engine would report nothing."""
    if leg.manifest is None:
        return
    label, path = leg.spec.label, leg.run.manifest
    caching = leg.manifest.engine.prefix_caching
    found = "on" if caching else "off"
    yield applied("caching-engine", f"{label}: prefix caching in the engine", not caching, found, "off", path)
    cached = int(leg.manifest.observed.cached_prompt_tokens or 0)
    yield applied("caching-tokens", f"{label}: prompt tokens from a cache", cached == 0, f"{cached:,}", "0", path)


def _rule(scenario: Scenario, threshold: float) -> str:
    offline = "1 / mean latency, and samples/s"
    first = offline if scenario == "Offline" else "1 / mean end-to-end latency, and 1 / median TTFT"
    return (
        f"{first}, of a leg of repeated samples must stay below (1 + threshold) × that of unique samples, threshold "
        f"{threshold:g} (TTFT 0.5); the limit is raised where the repeated samples are shorter than the mean, and by "
        "what a busy machine may add to the reference; repeated answers as long as the reference's; a leg over its "
        "limit counts when a second pair of legs says the same, and where it is close a third; a later reference less "
        "than twice as fast as the first; no prompt token from a cache"
    )
