"""TEST06: whether the answers of a performance leg are honest token lists. Official legs and text, own verdict."""

from typing import TYPE_CHECKING

from compliance.audits.base import PERFORMANCE, PERFORMANCE_MODE, AuditResult, AuditTest, LegSpec
from compliance.audits.options import AuditOptions, AuditRequest
from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError

if TYPE_CHECKING:
    from compliance.audits.leg_artifacts import LegArtifacts

# [mlcommons/inference compliance/TEST06/audit.config]
LOGGED_SAMPLES = 100
SETTINGS = {
    "mode": PERFORMANCE_MODE,
    "accuracy_log_rng_seed": 720381539243781796,
    "accuracy_log_sampling_target": LOGGED_SAMPLES,
    "min_query_count": LOGGED_SAMPLES,
    "min_duration": 0,
    "sample_concatenate_permutation": 0,
}


class OfficialTest06(AuditTest[AuditOptions]):
    name = "TEST06"
    summary = "100 logged answers of a performance leg: lengths, counts, first tokens, special ids."
    official = True
    text_name = "verify_accuracy.txt"

    def validate(self, request: AuditRequest[AuditOptions]) -> None:
        if not request.stop_ids:
            raise InputError(
                "TEST06 needs the model's end-of-sequence ids, and its generation_config.json has none",
                "give --model-path a folder with generation_config.json",
            )

    def legs(self, request: AuditRequest[AuditOptions]) -> list[LegSpec]:
        return [LegSpec(PERFORMANCE, settings=SETTINGS, scenario=request.scenario, requested=LOGGED_SAMPLES)]

    def verify(self, request: AuditRequest[AuditOptions], legs: list["LegArtifacts"]) -> AuditResult:
        from compliance.audits import logged_tokens

        self.need(legs, 1)
        leg = legs[0]
        scenario, listed = leg.detail.scenario, logged_tokens.listed
        max_tokens = BENCHMARKS[request.loadgen_key].sampling["performance"].max_tokens
        checks = logged_tokens.judge_entries(
            leg.entries,
            scenario=scenario,
            stop_ids=request.stop_ids,
            bos_ids=request.bos_ids,
            special_ids=request.special_ids,
            expected_count=LOGGED_SAMPLES,
            max_tokens=max_tokens,
        )
        text = logged_tokens.official_text(leg.entries, scenario=scenario)
        return self.result(
            checks,
            [leg],
            kept=f"{len(leg.entries)} logged answers kept every rule",
            rule=f"exactly {LOGGED_SAMPLES} logged answers, each of {MIN_TOKENS_LOADGEN_ACCEPTS} to {max_tokens} ids "
            "and as many as were counted; outside Offline a first-token record equal to the answer's start; no "
            f"begin-of-sequence id {listed(request.bos_ids)} as the first token, and one in at most "
            f"{logged_tokens.MOST_WITH_BEGIN:.0%} of the answers; an end-of-sequence id {listed(request.stop_ids)} at "
            "most once and only last; no other special id of the tokenizer",
            text=text,
            details={
                "official_text": text,
                "official_passed": text.endswith(f"{logged_tokens.COMPLETE}\n"),
                "dtype": logged_tokens.dtype_of(leg.entries).name,
                "stop_ids": sorted(request.stop_ids),
                "bos_ids": sorted(request.bos_ids),
                "special_ids": sorted(request.special_ids),
            },
            copies={f"accuracy/{leg.run.accuracy_log.name}": leg.run.accuracy_log},
        )
