"""The official TEST06 with a stricter verdict. It checks the logged token IDs of a performance run."""

from typing import TYPE_CHECKING

from compliance.audits.base import PERFORMANCE, PERFORMANCE_MODE, AuditResult, AuditTest, RunSpec
from compliance.audits.options import AuditOptions, AuditRequest
from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError

if TYPE_CHECKING:
    from compliance.audits.run_artifacts import RunArtifacts

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
    summary = "Check 100 logged responses of a performance run: lengths, token counts, first tokens, special tokens."
    official = True
    text_name = "verify_accuracy.txt"
    needs_generated_ids = True

    def validate(self, request: AuditRequest[AuditOptions]) -> None:
        if not request.stop_ids:
            raise InputError(
                "--test TEST06: the end-of-sequence IDs of the model are missing in its generation_config.json",
                "give a model folder with generation_config.json: --model-path DIR",
            )

    def runs(self, request: AuditRequest[AuditOptions]) -> list[RunSpec]:
        return [RunSpec(PERFORMANCE, settings=SETTINGS, scenario=request.scenario, requested=LOGGED_SAMPLES)]

    def verify(self, request: AuditRequest[AuditOptions], runs: list["RunArtifacts"]) -> AuditResult:
        from compliance.audits import logged_tokens

        self.need(runs, 1)
        self.need_ids(runs)
        run = runs[0]
        scenario, listed = run.detail.scenario, logged_tokens.listed
        max_tokens = BENCHMARKS[request.loadgen_key].sampling["performance"].max_tokens
        checks = logged_tokens.judge_entries(
            run.entries,
            scenario=scenario,
            stop_ids=request.stop_ids,
            bos_ids=request.bos_ids,
            special_ids=request.special_ids,
            expected_count=LOGGED_SAMPLES,
            max_tokens=max_tokens,
        )
        text = logged_tokens.official_text(run.entries, scenario=scenario)
        return self.result(
            checks,
            [run],
            met=f"{len(run.entries)} logged responses met every rule",
            rule=f"logged responses: exactly {LOGGED_SAMPLES}; token IDs per response: {MIN_TOKENS_LOADGEN_ACCEPTS} to "
            f"{max_tokens}, equal to token_count; reported first token (except in Offline): the first one of the "
            f"response; begin-of-sequence IDs {listed(request.bos_ids)}: never the first token, and in at most "
            f"{logged_tokens.MAX_WITH_BEGIN:.0%} of the responses; end-of-sequence IDs {listed(request.stop_ids)}: at "
            "most one, and only at the end; other special IDs of the tokenizer: none",
            text=text,
            details={
                "official_text": text,
                "official_passed": text.endswith(f"{logged_tokens.COMPLETE}\n"),
                "dtype": logged_tokens.dtype_of(run.entries).name,
                "stop_ids": sorted(request.stop_ids),
                "bos_ids": sorted(request.bos_ids),
                "special_ids": sorted(request.special_ids),
            },
            copies={f"accuracy/{run.dir.accuracy_log.name}": run.dir.accuracy_log},
        )
