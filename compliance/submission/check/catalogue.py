"""Every rule of `check`: its id, what a breach is worth, where the rule comes from, what to do.

Sources:
  [rules]    mlcommons/inference_policies, inference_rules.adoc; [submission] its submission_rules.adoc
  [checker]  mlcommons/inference commit b66003e1, tools/submission/submission_checker, file.function
  [loadgen]  LoadGen 6.0.17: what it writes, so what an unchanged log looks like
  [ours]     follows from what a result claims; the official checker does not look at it
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Rule:
    """One rule. `id` is stable: scripts may rely on it."""

    id: str
    severity: Severity
    source: str
    summary: str
    fix: str


def _rules(*rows: tuple[str, Severity, str, str, str]) -> dict[str, Rule]:
    return {row[0]: Rule(*row) for row in rows}


_RERUN = "run the leg again and submit LoadGen's own logs"

RULES: dict[str, Rule] = _rules(
    # The tree
    ("rehearsal", "error", "[ours]", "nothing is marked as a rehearsal", "build the tree from official runs"),
    ("tree-unreadable", "error", "[ours]", "every file and directory can be read", "correct its permissions"),
    ("tree-symlink", "error", "[submission] no symbolic links", "no symbolic links", "put the file itself there"),
    ("tree-special", "error", "[ours]", "only files and directories", "remove it"),
    ("tree-size", "error", "[submission] files below 50 MB", "no file above 50 MB", "leave the file out"),
    ("tree-case", "error", "[submission] layout", "directories have their official names", "rename it"),
    ("tree-unknown", "warning", "[submission] layout", "nothing lies where nothing is expected", "remove or rename it"),
    ("tree-dot-file", "warning", "[submission] repository checks", "no dot files", "remove it"),
    ("tree-name", "warning", "[submission] repository checks", "plain names without spaces", "rename it"),
    ("tree-benchmark", "error", "[checker] loader.Loader.load", "benchmark directories are known", "rename it"),
    ("tree-scenario", "error", "[checker] performance_check.scenarios_check", "scenarios are known", "rename it"),
    ("tree-no-results", "error", "[checker] loader.Loader.load", "a submitter has results", "add results/"),
    ("tree-source", "error", "[checker] measurements_checks.directory_exist_check", "there is code", "add the code"),
    ("tree-empty-file", "warning", "[ours]", "files that the rules ask for are not empty", "fill the file"),
    ("scenario-set", "error", "[checker] performance_check.scenarios_check", "a closed set of scenarios is complete",
     "add the missing scenario"),
    ("suite-benchmark", "error", "[checker] performance_check.scenarios_check",
     "a closed benchmark fits the system's type", "correct system_type, or move the benchmark"),
    ("model-mapping", "error", "[checker] configuration", "model_mapping.json names known benchmarks",
     'write {"your model": "llama3.1-8b"}'),
    # The system description
    ("system-missing", "error", "[checker] system_check.missing_check", "each system has a description",
     "write systems/<system>.json"),
    ("system-unused", "warning", "[checker] old checker, check of systems", "each description has results",
     "remove it, or add its results"),
    ("system-json", "error", "[checker] loader.Loader.load", "the description is a JSON object", "write valid JSON"),
    ("system-field", "error", "[checker] system_check.required_fields_check", "required fields are there and filled",
     'add the field; where nothing applies write "N/A"'),
    ("system-number", "error", "[checker] system_check.required_fields_check", "counts are whole numbers",
     'write "1"'),
    ("system-status", "error", "[checker] system_check.availability_check", "status is known",
     "choose available, preview or rdi"),
    ("system-type", "error", "[checker] system_check.system_type_check", "system_type is known",
     "choose datacenter, edge or datacenter,edge"),
    ("system-submitter", "error", "[checker] system_check.submitter_check", "submitter is the directory's name",
     "correct the field"),
    ("system-division", "error", "[checker] system_check.division_check", "division is the directory's name",
     "correct the field"),
    ("system-network", "error", "[checker] system_check.network_check", "is_network fits the division",
     "leave is_network out"),
    ("system-placeholder", "error", "[ours]", "no placeholder stands in a description", "write what is true"),
    # measurements, README, user.conf
    ("measurements-missing", "error", "[checker] measurements_checks.missing_check", "there are measurements",
     "write the file"),
    ("measurements-field", "error", "[checker] measurements_checks.required_fields_check",
     "required fields are there and filled", "add the field"),
    ("scenario-file", "error", "[checker] measurements_checks.required_files_check",
     "user.conf and README.md are there and not empty", "add the file"),
    ("user-conf-differs", "error", "[rules] user.conf is what the run was made with",
     "user.conf gives the settings in the log", "submit the user.conf that the run was made with"),
    ("user-conf-absent", "warning", "[rules] user.conf is what the run was made with",
     "user.conf sets the target in the log", "submit the user.conf that the run was made with"),
    # Any log
    ("log-missing", "error", "[checker] performance_check.missing_check, REQUIRED_*_FILES", "LoadGen's logs are there",
     "copy LoadGen's own log"),
    ("log-damaged", "error", "[loadgen]", "logs are whole and LoadGen's", _RERUN),
    ("log-contradiction", "error", "[loadgen]", "the logs of a leg tell one story", _RERUN),
    ("log-implausible", "error", "[ours]", "figures are within reach of an honest run", _RERUN),
    ("log-duplicate", "error", "[ours]", "each log lies in one place", "submit the leg's own logs"),
    ("log-same-answers", "warning", "[ours]", "the same answers come in the same order of issue only",
     "submit the leg's own answers"),
    ("log-config", "error", "[ours]", "the legs of a scenario come from one configuration",
     "run the legs with one LoadGen, SUT and data set"),
    ("log-dates", "warning", "[ours]", "the legs of a scenario are of one time", "run the legs anew"),
    ("log-runs", "error", "[ours]", "logs are those of the run that was named", "submit the run's own logs"),
    ("log-not-in-runs", "warning", "[ours]", "the leg is among the runs that were named", "name its run with --runs"),
    # Performance
    ("perf-mode", "error", "[rules] performance mode", "a performance log comes from a performance run", _RERUN),
    ("perf-scenario", "error", "[checker] performance_check.inferred_check", "the log is of the directory's scenario",
     "put the log where it belongs"),
    ("perf-validity", "error", "[rules] results are valid", "LoadGen calls the result VALID",
     "see `main.py verify` for the reason, correct user.conf and run the leg again"),
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "no error records", _RERUN),
    ("perf-early-stopping", "error", "[checker] performance_check.latency_check", "early stopping is met",
     "lower target_qps (Server) or run longer"),
    ("perf-min-duration", "error", "[checker] performance_check.min_duration_check", "min_duration is 600 s or more",
     "set min_duration = 600000 and run the leg again"),
    ("perf-duration", "error", "[rules] minimum duration", "the run took 600 s or more",
     "raise Offline target_qps or lower SingleStream target_latency, and run again"),
    ("perf-seeds", "error", "[checker] performance_check.seeds_check", "the seeds are the round's",
     "run with the LoadGen of the round, or name the round with --round"),
    ("perf-data-set", "error", "[rules] data set", "the whole data set was in use", _RERUN),
    ("perf-sample-count", "error", "[checker] performance_check.performance_sample_count_check",
     "performance_sample_count is the data set's size", "leave performance_sample_count_override alone"),
    ("perf-samples", "error", "[checker] performance_check.min_query_count_check",
     "Offline's query has the whole data set", "do not lower min_query_count"),
    ("perf-percentile", "error", "[loadgen] mlperf.conf", "the percentile is the scenario's",
     "leave target_latency_percentile alone"),
    ("perf-queries", "error", "[rules] early stopping", "there are queries enough for early stopping", "run longer"),
    ("perf-equal-issue", "error", "[rules] equal issue", "each sample is issued equally often",
     "leave sample_concatenate_permutation alone"),
    ("perf-token-latencies", "error", "[checker] performance_check.llm_check", "token latencies are in use",
     "leave use_token_latencies alone"),
    ("perf-output-tokens", "error", "[rules] generation settings", "no more than 128 output tokens a sample",
     "generate at most 128 tokens"),
    ("perf-ttft", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
     "p99 TTFT is below the scenario's limit", "lower target_qps"),
    ("perf-tpot", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
     "p99 TPOT is below the scenario's limit", "lower target_qps"),
    ("perf-limits", "error", "[loadgen] mlperf.conf", "LoadGen judged by the scenario's limits",
     "leave ttft_latency and tpot_latency alone"),
    ("perf-metric", "error", "[checker] performance_check.get_performance_metric_check", "the metric is there", _RERUN),
    ("perf-network", "error", "[checker] performance_check.network_check", "the SUT's name fits the division",
     "use the division's own SUT"),
    ("perf-audit-settings", "error", "[rules] audits are runs of their own", "no audit settings in a normal run",
     "remove audit.config and run the leg again"),
    ("perf-cut-short", "error", "[rules] a run is not cut short", "no max_duration and no max_query_count",
     "remove the setting and run the leg again"),
    # Accuracy
    ("accuracy-mode", "error", "[rules] accuracy mode", "an accuracy log comes from an accuracy run", _RERUN),
    ("accuracy-scenario", "error", "[rules] accuracy of each scenario", "the log is of the directory's scenario",
     "put the log where it belongs"),
    ("accuracy-errors", "error", "[checker] accuracy_check.loadgen_errors_check", "no error records", _RERUN),
    ("accuracy-samples", "error", "[checker] accuracy_check.dataset_check", "the whole data set was answered", _RERUN),
    ("accuracy-seeds", "error", "[rules] seeds of the round", "the seeds are the round's",
     "run with the LoadGen of the round"),
    ("accuracy-answers", "error", "[rules] accuracy mode", "every sample has one honest answer", _RERUN),
    ("accuracy-audit-settings", "error", "[rules] audits are runs of their own", "no audit settings in a normal run",
     "remove audit.config and run the leg again"),
    ("accuracy-text", "error", "[checker] accuracy_check.accuracy_result_check",
     "accuracy.txt has every score in a form that the checker reads", "write plain numbers, each score once"),
    ("accuracy-target", "error", "[checker] accuracy_check.accuracy_result_check", "scores reach their targets",
     "correct the system; the model must reach 99 % of the reference"),
    ("accuracy-hash", "error", "[checker] accuracy_check.accuracy_result_check", "accuracy.txt has one hash line",
     "truncate the log with the official tool, which appends it"),
    ("accuracy-size", "error", "[checker] accuracy_check.accuracy_json_check", "the accuracy log is truncated",
     "truncate it with the official tool"),
    ("accuracy-shape", "error", "tools/submission/truncate_accuracy_log.py",
     "the log is cut as the official tool cuts it", "truncate LoadGen's own log with the official tool"),
    # Audits
    ("audit-missing", "error", "[checker] compliance_check.dir_exists_check", "TEST06 is there", "run the audit"),
    ("audit-text", "error", "[checker] compliance_check.accuracy_check", "verify_accuracy.txt says that all passed",
     "run the audit again"),
    ("audit-text-differs", "error", "compliance/TEST06/run_verification.py",
     "verify_accuracy.txt is what its log gives", "write it from this log"),
    ("audit-log", "error", "compliance/TEST06/run_verification.py", "the logged answers lie beside the text",
     "add accuracy/mlperf_log_accuracy.json"),
    ("audit-answers", "error", "[rules] TEST06: first token, end of sequence, token counts",
     "the logged answers are honest token lists", "correct the system and run the audit again"),
    ("audit-settings", "error", "compliance/TEST06/audit.config", "the audit's log was made under its settings",
     "run the audit with its own audit.config"),
    ("audit-seeds", "error", "[rules] seeds of the round", "the seeds are the round's",
     "run with the LoadGen of the round"),
    ("audit-errors", "error", "[ours]", "no error records", "run the audit again"),
    ("audit-order", "error", "[loadgen]", "the logged answers are of the samples that the log issued",
     "submit the audit's own logs"),
)  # fmt: skip
