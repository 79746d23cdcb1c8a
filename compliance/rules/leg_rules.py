"""Rules on the legs of a result: what its files must agree on, and what the benchmark asks of them."""

from compliance.rules.rule import RERUN, Rule, catalogue

_WHOLE = "give the leg's own files, all of them as it left them"

_CONTRADICTIONS = catalogue(
    "contradiction",
    (
        ("log-settings", "error", "[loadgen]", "settings that the log has twice are the same", RERUN),
        ("log-order", "error", "[loadgen]", "the samples issued are those that the seeds in force give", RERUN),
        ("log-arithmetic", "error", "[loadgen]", "a log's numbers can stand together", RERUN),
        ("log-clock", "error", "[loadgen]", "LoadGen's time stamps fit the time that its results give", RERUN),
        ("log-summary", "error", "[loadgen]", "summary and detail log tell one story", RERUN),
        ("log-records", "error", "[ours]", "LoadGen's numbers follow from the per-sample records", RERUN),
        ("log-answers", "error", "[loadgen]", "a run that logs no answers has none in its log", RERUN),
        ("record-hash", "error", "[ours]", "the files are those that the leg left", _WHOLE),
        ("record-answers", "error", "[ours]", "the logged answers are those of the record of requests", _WHOLE),
        ("record-manifest", "error", "[ours]", "manifest.json and the logs are of one leg", _WHOLE),
        ("attested", "error", "[ours]", "the files are those of the statement that the leg signed at its end", _WHOLE),
        ("record-progress", "error", "[ours]", "the last heartbeat is of this leg, whole and done", _WHOLE),
        ("record-result", "error", "[ours]", "result.json says what the logs say", "give the leg's own result.json"),
        ("accuracy-text-differs", "error", "[ours]", "accuracy.txt has the scores of these answers",
         "score the answers again"),
    ),
)  # fmt: skip

_RESULT = catalogue(
    "result",
    (
        ("perf-validity", "error", "[rules] results are valid", "LoadGen calls the result VALID",
         "see `main.py verify` for the reason, correct user.conf and run the leg again"),
        ("perf-audit-settings", "error", "[rules] audits are runs of their own", "no audit settings in a normal run",
         "remove audit.config and run the leg again"),
        ("perf-cut-short", "error", "[rules] a run is not cut short", "no max_duration and no max_query_count",
         "remove the setting and run the leg again"),
        ("accuracy-errors", "error", "[checker] accuracy_check.loadgen_errors_check", "no error records", RERUN),
        ("accuracy-answers", "error", "[rules] accuracy mode", "every sample has one honest answer", RERUN),
        ("accuracy-token-counts", "error", "[loadgen]", "each answer has as many ids as were counted", RERUN),
        ("accuracy-target", "error", "[checker] accuracy_check.accuracy_result_check", "scores reach their targets",
         "correct the system; the model must reach 99 % of the reference"),
        ("accuracy-count", "error", "[rules] accuracy mode", "as many answers were scored as the target has", RERUN),
        ("accuracy-no-target", "error", "[ours]", "there are reference scores to compare with",
         "run the whole data set with the benchmark's model"),
        ("accuracy-scored-again", "error", "[ours]", "the answers were scored again, with the data set of the leg",
         "name the data set and the model: --dataset-path, --model-path"),
        ("record-model", "error", "[ours]", "the model's folder, where it is there, holds the model of the record",
         "bring the folder back as it was when the leg ran, or move it away; or run the leg again"),
        ("one-system", "error", "[rules] accuracy of each result", "both legs come from one system, model and data set",
         "run the legs again in one configuration"),
    ),
)  # fmt: skip

_OFFICIAL = catalogue(
    "official",
    (
        ("perf-benchmark-scenario", "error", "[rules] scenarios", "the benchmark has this scenario",
         "run a scenario of the benchmark"),
        ("perf-min-duration", "error", "[checker] performance_check.min_duration_check",
         "min_duration is 600 s or more", "set min_duration = 600000 and run the leg again"),
        ("perf-duration", "error", "[rules] minimum duration", "the run took 600 s or more",
         "raise Offline target_qps or lower SingleStream target_latency, and run again"),
        ("perf-seeds", "error", "[checker] performance_check.seeds_check", "the seeds are the round's",
         "run with the LoadGen of the round, or name the round with --round"),
        ("perf-data-set", "error", "[rules] data set", "the whole data set was in use", RERUN),
        ("perf-sample-count", "error", "[checker] performance_check.performance_sample_count_check",
         "performance_sample_count is the data set's size", "leave performance_sample_count_override alone"),
        ("perf-samples", "error", "[checker] performance_check.min_query_count_check",
         "Offline's query has the whole data set", "do not lower min_query_count"),
        ("perf-percentile", "error", "[loadgen] mlperf.conf", "the percentile is the scenario's",
         "leave target_latency_percentile alone"),
        ("perf-queries", "error", "[rules] early stopping", "there are queries enough for early stopping",
         "run longer"),
        ("perf-equal-issue", "error", "[rules] equal issue", "each sample is issued equally often",
         "leave sample_concatenate_permutation alone"),
        ("perf-token-latencies", "error", "[checker] performance_check.llm_check", "token latencies are in use",
         "leave use_token_latencies alone"),
        ("perf-output-tokens", "error", "[rules] generation settings",
         "no more output tokens a sample than the benchmark generates", "generate at most that many tokens"),
        ("perf-ttft", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
         "p99 TTFT is below the scenario's limit", "lower target_qps"),
        ("perf-tpot", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
         "p99 TPOT is below the scenario's limit", "lower target_qps"),
        ("perf-limits", "error", "[loadgen] mlperf.conf", "LoadGen judged by the scenario's limits",
         "leave ttft_latency and tpot_latency alone"),
        ("accuracy-seeds", "error", "[rules] seeds of the round", "the seeds are the round's",
         "run with the LoadGen of the round"),
        ("accuracy-samples", "error", "[checker] accuracy_check.dataset_check", "the whole data set was answered",
         RERUN),
        ("record-version", "error", "[ours]", "the leg's record is of this version, sealed and whole",
         "run the leg again with this version"),
        ("record-data-set", "error", "runs/benchmarks names the source of its hash", "the data set is the official one",
         "fetch it from MLCommons, and run the leg with that file"),
        ("record-weights", "error", "[rules] model; runs/benchmarks names the source of its hashes",
         "the model is the official one: whole, and in its own precision unchanged",
         "run the benchmark's model: as published, or quantised by `main.py quantize`"),
        ("record-servers", "error", "[rules] model and caching; what a server computes with is its operator's word",
         "it is declared what servers compute with, and the rules allow it",
         "declare it with --api-declaration, and turn off what is not allowed"),
        ("accuracy-longest", "error", "[rules] generation settings", "no answer is longer than the benchmark generates",
         "generate at most that many tokens"),
    ),
)  # fmt: skip

_PLAUSIBLE = catalogue(
    "plausible",
    (
        ("plausible-repeats", "error", "[ours]", "repeated samples cost as much as new ones", RERUN),
        ("plausible-first-token", "error", "[ours]", "the first token takes as long as one step of the model", RERUN),
        ("plausible-first-tokens-held", "error", "[ours]", "first tokens are told when they are there", RERUN),
        ("plausible-shared-answers", "error", "[ours]", "different samples have different outputs", RERUN),
        ("plausible-padding", "error", "[ours]", "outputs have as many ids as their text needs", RERUN),
        ("plausible-reference-texts", "error", "[ours]", "outputs are not the reference texts", RERUN),
        ("plausible-scores", "error", "[ours]", "scores are within the model's reach", RERUN),
    ),
)

LEG_RULES: dict[str, Rule] = {**_CONTRADICTIONS, **_RESULT, **_OFFICIAL, **_PLAUSIBLE}
