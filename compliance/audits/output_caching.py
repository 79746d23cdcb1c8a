"""output_caching: does the system answer a repeated query faster than a new one?

Three kinds of legs, each in a process of its own: a reference of unique samples; the same number of queries that all
repeat one sample; and a few samples in changing order, for a cache that recomputes what comes twice in a row. Samples
differ in length, so each comparison allows for the lengths of what was issued, and a leg that looks too fast is run
again together with its reference before it counts: machines drift.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from compliance.audits.audit_record import performance_text
from compliance.audits.base import (
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    AuditTest,
    LegArtifacts,
    LegPlanner,
    LegSpec,
    asked_count,
    count_of,
    in_force,
    threshold_of,
)
from compliance.audits.pace import Comparison, Pace, compare_paces, pace_of
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.errors import ExecutionError, InputError, SetupError
from runs.loadgen.detail_log import DetailLog

DEFAULT_SAMPLES = {"Offline": 64, "SingleStream": 32}
DEFAULT_THRESHOLD = {"Offline": 0.10, "SingleStream": 0.20}
FEW_SAMPLES = 4
FEW_FROM_SAMPLES = 16  # fewer queries than this cannot repeat the few often enough
REFERENCE, FEW = "reference", "few"
# Suffixes of the rounds: a leg over its limit is run again, and a third time if it is no further over it than CLOSE.
ROUNDS = AGAIN, THIRD = "-again", "-third"
CLOSE = 1.10
_REPEAT = re.compile(r"repeat-(\d{1,6})")
# A second reference leg twice as fast as the first is no drift of the machine: the answers were kept somewhere.
SECOND_TIME_THRESHOLD = 1.0


class OutputCaching(AuditTest):
    name = "output_caching"
    summary = "Repeated samples must not be answered faster than unique ones. Offline, SingleStream."
    knobs = frozenset({"samples", "audit_samples", "sample_index", "threshold"})

    def validate(self, request: AuditRequest) -> None:
        super().validate(request)
        if request.scenario not in DEFAULT_SAMPLES:
            raise SetupError(
                f"--test {self.name} --scenario {request.scenario}: in LoadGen's Server scenario the arrival rate "
                "fixes the samples/s, so a system that caches everything looks like one that does not",
                "audit the same system with --scenario Offline or SingleStream",
            )
        threshold_of(request, DEFAULT_THRESHOLD[request.scenario])
        samples = count_of(request, DEFAULT_SAMPLES[request.scenario])
        if request.audit_samples is not None and request.audit_samples < 1:
            raise InputError(f"--audit-samples {request.audit_samples} is below 1", "give a count of at least 1")
        if len(set(request.sample_index)) != len(request.sample_index):
            said = ",".join(map(str, request.sample_index))
            raise InputError(f"--sample-index {said} names a place twice", "name each once")
        for index in request.sample_index:
            if not 0 <= index < samples:
                raise InputError(
                    f"--sample-index {index} is outside the {samples} samples that the legs load; LoadGen would crash",
                    f"give 0 to {samples - 1}, or auto",
                )

    def asked(self, request: AuditRequest, logs: Mapping[str, DetailLog], told: Mapping[str, Any]) -> AuditRequest:
        if REFERENCE not in logs:
            raise InputError(f"{', '.join(logs) or 'no leg'}: none is the reference", "run the audit again")
        indices = [found[1] for label in logs if (found := _REPEAT.fullmatch(label))]
        repeats = [log for label, log in logs.items() if not label.startswith(REFERENCE)]
        default, threshold = DEFAULT_THRESHOLD.get(request.scenario), told.get("threshold")
        chosen = {
            "samples": logs[REFERENCE].integer("effective_performance_sample_count"),
            "audit_samples": min(map(asked_count, repeats), default=None),
            "sample_index": tuple(map(int, indices)),
            "threshold": threshold if isinstance(threshold, float) and default and 0 < threshold < default else None,
        }
        return request.model_copy(update=chosen)

    def legs(self, request: AuditRequest) -> LegPlanner:
        scenario = request.scenario
        samples = count_of(request, DEFAULT_SAMPLES[scenario])
        audit_samples = request.audit_samples or samples
        reference = yield from _taken(_spec(scenario, REFERENCE, samples, samples, unique=True))
        indices = request.sample_index or (nearest_mean(reference),)
        repeats = [_spec(scenario, f"repeat-{index}", samples, audit_samples, same_index=index) for index in indices]
        if samples >= FEW_FROM_SAMPLES:
            repeats.append(_spec(scenario, FEW, FEW_SAMPLES, audit_samples))
        threshold = threshold_of(request, DEFAULT_THRESHOLD[scenario])
        suspects = []
        for spec in repeats:
            leg = yield from _taken(spec)
            if not compare_paces(pace_of(reference), pace_of(leg), threshold).passed:
                suspects.append(spec)
        if not suspects:
            return
        # The other way round: a machine that grows faster or slower does not favour the same legs again.
        taken = []
        for spec in suspects:
            leg = yield from _taken(_named(spec, AGAIN))
            taken.append((spec, leg))
        unique = _spec(scenario, REFERENCE, samples, samples, unique=True)
        reference = yield from _taken(_named(unique, AGAIN))
        compared = [(spec, compare_paces(pace_of(reference), pace_of(leg), threshold)) for spec, leg in taken]
        close = [spec for spec, found in compared if not found.passed and found.excess < CLOSE]
        if close:
            yield _named(unique, THIRD)
            for spec in close:
                yield _named(spec, THIRD)

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        threshold = threshold_of(request, DEFAULT_THRESHOLD[request.scenario])
        pairs = _pairs(self, legs)
        comparisons = [_mildest(rounds, threshold) for rounds in pairs]
        checks = [check for leg in legs for check in _completeness(leg, threshold)]
        checks += [check for comparison in comparisons for check in comparison.checks]
        checks += _second_reference(legs)
        checks += [check for leg in legs for check in _direct_evidence(leg)]
        worst = max(comparisons, key=lambda comparison: (not comparison.passed, comparison.excess))
        failed = [check for check in checks if not check.passed]
        scores = f"{worst.label}: {worst.test_score:.6g} against {worst.reference_score:.6g} {worst.unit} of reference"
        broken = f"{failed[0].text}: {failed[0].found}" if failed else ""
        rule = _rule(request, threshold)
        return self.result(
            checks,
            legs,
            reason=f"{broken} ({scores})" if failed else f"{scores}, limit {worst.limit:.6g}",
            rule=rule,
            text_name="verify_performance.txt",
            text=performance_text(
                worst.reference_score,
                worst.test_score,
                not failed,
                f"{broken}, required {failed[0].required}" if failed else "",
                rule,
                legs,
                checks,
            ),
            details=_details(legs, worst, threshold, comparisons),
        )


def nearest_mean(reference: LegArtifacts) -> int:
    """The place, in LoadGen's loaded set, of the sample whose lengths are nearest the leg's means.

    Distance: the larger of the two relative ones, of prompt and of output tokens.
    """
    table = reference.requests
    if len(table) == 0:
        raise ExecutionError("the reference leg answered no sample", f"see {reference.run.engine_log}")
    prompt = np.abs(table.prompt_tokens / table.prompt_tokens.mean() - 1)
    output = np.abs(table.output_tokens / table.output_tokens.mean() - 1)
    chosen = int(table.sample_index[np.argmin(np.maximum(prompt, output))])
    loaded = reference.detail.loaded_qsl_set
    if chosen not in loaded:
        raise ExecutionError(f"sample {chosen} was answered but never loaded", f"see {reference.run.detail}")
    return loaded.index(chosen)


def _spec(
    scenario: Scenario, label: str, loaded: int, count: int, *, unique: bool = False, same_index: int | None = None
) -> LegSpec:
    """A leg that loads the first `loaded` samples and issues `count` queries of them.

    Without a minimum duration the counts are exact: Offline's 1.1 × target_qps × min_duration is 0, and SingleStream
    ends at min_query_count.
    """
    settings = {
        "mode": PERFORMANCE_MODE,
        "performance_issue_unique": int(unique),
        "performance_issue_same": int(same_index is not None),
        "performance_issue_same_index": same_index or 0,
        "performance_sample_count_override": loaded,
        "sample_concatenate_permutation": 0,
        "min_query_count": count,
        "min_duration": 0,
        "max_duration": 0,
        "max_query_count": 0,
    }
    return LegSpec(label, settings=settings, in_force=in_force(settings, scenario), requested=count)


def _named(spec: LegSpec, suffix: str) -> LegSpec:
    return replace(spec, label=spec.label + suffix)


def _taken(spec: LegSpec) -> Generator[LegSpec, LegArtifacts, LegArtifacts]:
    leg = yield spec
    _check_issued(leg)
    return leg


def _check_issued(leg: LegArtifacts) -> None:
    """LoadGen issued what this kind of leg is made of, by the record of every request."""
    table, effective = leg.requests, leg.spec.in_force
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
            f"see {leg.run.detail}; nothing is judged",
        )


def _pairs(test: OutputCaching, legs: list[LegArtifacts]) -> list[list[tuple[LegArtifacts, LegArtifacts]]]:
    """For each repeating leg its (reference, leg) of the first round, and of those that followed."""
    test.need(legs, 2)
    by_label = {leg.spec.label: leg for leg in legs}
    for leg in legs:
        _check_issued(leg)
    first = legs[0]
    if first.spec.label != REFERENCE or len(by_label) != len(legs):
        raise ExecutionError(f"{test.name}: the legs {list(by_label)} do not start with one reference", "run it again")
    pairs = []
    for leg in legs[1:]:
        if leg.spec.label.endswith(ROUNDS):
            continue
        rounds = [(first, leg)]
        for suffix in ROUNDS:
            again = by_label.get(leg.spec.label + suffix)
            if again is None:
                continue
            if REFERENCE + suffix not in by_label:
                raise ExecutionError(f"{test.name}: {again.spec.label} has no reference", "run the audit again")
            rounds.append((by_label[REFERENCE + suffix], again))
        pairs.append(rounds)
    test.need((pairs and legs) or [], 2)
    return pairs


def _mildest(rounds: list[tuple[LegArtifacts, LegArtifacts]], threshold: float) -> Comparison:
    """The round that speaks most for the system: a cache is fast every time, a disturbed machine is not."""
    compared = [compare_paces(pace_of(reference), pace_of(leg), threshold) for reference, leg in rounds]
    return min(compared, key=lambda comparison: (not comparison.passed, comparison.excess))


@decides(
    "audit",
    ("caching-second-reference", "error", OURS, "unique samples are not answered faster later on",
     "find out what is kept between queries; run the audit again on an idle machine"),
)  # fmt: skip
def _second_reference(legs: list[LegArtifacts]) -> Iterator[Finding]:
    """The same unique samples in another process. A system that keeps answers across processes has them by then, and
    would pass the pairs of legs that follow."""
    for leg in legs:
        if leg.spec.label in (REFERENCE + AGAIN, REFERENCE + THIRD):
            latency = compare_paces(pace_of(legs[0]), pace_of(leg), SECOND_TIME_THRESHOLD).checks[0]
            yield replace(
                latency, rule="caching-second-reference", text=f"{latency.text}, of the same samples as before"
            )


@decides(
    "audit",
    ("caching-answered", "error", OURS, "the samples asked for were answered", AUDIT_AGAIN),
)  # fmt: skip
def _completeness(leg: LegArtifacts, threshold: float) -> Iterator[Finding]:
    needed = leg.requested * (1 - threshold)
    yield applied(
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
    """What the engine itself says. It can only speak against a run: a cheat would deny everything."""
    if leg.manifest is None:
        return
    label, path = leg.spec.label, leg.run.manifest
    caching = leg.manifest.engine.get("prefix_caching")
    said = "on" if caching else "off"
    yield applied("caching-engine", f"{label}: prefix caching in the engine", not caching, said, "off", path)
    cached = int(leg.manifest.observed.get("cached_prompt_tokens") or 0)
    yield applied("caching-tokens", f"{label}: prompt tokens from a cache", cached == 0, f"{cached:,}", "0", path)


def _rule(request: AuditRequest, threshold: float) -> str:
    first = (
        "1 / mean latency, and samples/s"
        if LOADGEN_SCENARIO[request.scenario] == "Offline"
        else "1 / mean end-to-end latency, and 1 / median TTFT"
    )
    return (
        f"{first}, of a leg of repeated samples must stay below (1 + threshold) × that of unique samples, threshold "
        f"{threshold:g} (TTFT 0.5); the limit is raised where the repeated samples are shorter than the mean, and by "
        "what a busy machine may add to the reference; repeated answers as long as the reference's; a leg over its "
        "limit counts when a second pair of legs says the same, and where it is close a third; a later reference less "
        "than twice as fast as the first; no prompt token from a cache"
    )


def _details(
    legs: list[LegArtifacts], worst: Comparison, threshold: float, comparisons: list[Comparison]
) -> dict[str, Any]:
    paces: list[Pace] = [pace_of(leg) for leg in legs]
    audit = next(leg for leg in legs if leg.spec.label == worst.label)
    return {
        "threshold": threshold,
        "ref_qps": worst.reference_score,
        "audit_qps": worst.test_score,
        "unit": worst.unit,
        "ref_completed": legs[0].completed,
        "ref_requested": legs[0].requested,
        "audit_completed": audit.completed,
        "audit_requested": audit.requested,
        "decided_by": worst.label,
        "paces": [pace.as_json() for pace in paces],
        "comparisons": [comparison.as_json() for comparison in comparisons],
    }
