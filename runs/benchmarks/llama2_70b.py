"""Llama-2-70B (chat) on OpenOrca, the 99.9 % variant: every number of this benchmark, with its source.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1); [conf] also at the tag v5.1.1:
  [conf]     loadgen/mlperf.conf, compiled into the LoadGen wheel
  [checker]  tools/submission/submission_checker/constants.py, MODEL_CONFIG of v5.1, v6.0 and v6.1, which are equal here
  [ref]      language/llama2-70b (reference implementation and README)
  [rules]    mlcommons/inference_policies, inference_rules.adoc
  [model]    meta-llama/Llama-2-70b-chat-hf, config.json and generation_config.json
"""

from dataclasses import replace

from runs.benchmark import Benchmark, LatencyLimits, OfficialModel, SamplingPolicy, Submission, Target

_SAMPLES = 24_576  # [ref], [conf] performance_sample_count_override

_MODEL = OfficialModel(
    name="Llama-2-70B",
    shape={  # [model]
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        "vocab_size": 32000,
    },
    parameters=68_976_648_192,  # of this shape
    weights_sha256={},
    bos_ids=frozenset({1}),  # [model]
    stop_ids=frozenset({2}),  # [model] eos_token_id
    special_ids=frozenset({0, 1, 2}),  # [model] tokenizer.json
    speculative_decoding=False,  # [rules]
)

# [ref] SUT gen_kwargs; greedy, so the other numbers change nothing: they are those of vLLM's greedy decoding
_SAMPLING = SamplingPolicy(temperature=0.0, top_p=1.0, top_k=1, seed=42, min_tokens=1, max_tokens=1024)

_STANDARD = Benchmark(
    loadgen_key="llama2-70b",
    submission=Submission(
        name="llama2-70b-99.9",
        aliases=(),
        suite="datacenter",
        all_of=("Offline",),  # [checker] required-scenarios-datacenter
        one_of=("Server", "Interactive"),  # [checker] optional-scenarios-datacenter, one of which must be there
        audits=("TEST06",),  # [checker] models_TEST06
    ),
    scenarios=("Offline", "Server"),
    model=_MODEL,
    data_set="OpenOrca",
    data_sha256=None,  # that of the pickle is (qsl/open_orca.py), which no leg runs
    calibration_sha256=None,
    performance_samples=_SAMPLES,
    accuracy_samples=_SAMPLES,
    min_duration_ms=600_000,  # [checker] TEST_DURATION_MS
    offline_min_samples=_SAMPLES,  # [conf] Offline.min_query_count
    limits=LatencyLimits(ttft_ms=2000, tpot_ms=200),  # [conf]
    sampling={"performance": _SAMPLING, "accuracy": _SAMPLING},
    metric="rouge-tokens",
    # [ref] README, [checker] accuracy-target and accuracy-upper-limit; gen_num is ours, the checker does not read it
    targets={
        "rouge1": Target(44.4312, low_share=0.999, high_share=None),
        "rouge2": Target(22.0352, low_share=0.999, high_share=None),
        "rougeL": Target(28.6162, low_share=0.999, high_share=None),
        "tokens_per_sample": Target(294.45, 0.9, 1.1),
        "gen_num": Target(_SAMPLES),
    },
    quality_eval="mlperf_orca_rouge",
)

BENCHMARKS = (
    _STANDARD,
    replace(
        _STANDARD,
        loadgen_key="llama2-70b-interactive",
        scenarios=("Interactive",),
        offline_min_samples=None,  # [conf] has no line for this key
        limits=LatencyLimits(ttft_ms=450, tpot_ms=40),  # [conf]
    ),
)
