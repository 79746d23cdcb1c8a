"""Llama-3.1-8B on CNN-DailyMail: every number of this benchmark, with its source.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1); [conf] also at the tag v5.1.1:
  [conf]     loadgen/mlperf.conf, compiled into the LoadGen wheel
  [checker]  tools/submission/submission_checker/constants.py, MODEL_CONFIG of v5.1, v6.0 and v6.1, which are equal here
  [ref]      language/llama3.1-8b (reference implementation and README)
  [rules]    mlcommons/inference_policies, inference_rules.adoc
  [model]    meta-llama/Llama-3.1-8B-Instruct, config.json and generation_config.json
"""

from dataclasses import replace

from runs.benchmark import Benchmark, LatencyLimits, OfficialModel, SamplingPolicy, Submission, Target

_ROUNDS = ("v5.1", "v6.0", "v6.1")  # llama3.1-8b came with v5.1 [checker]
_DATACENTER_SAMPLES = 13_368  # [ref], [conf] performance_sample_count_override
_EDGE_SAMPLES = 5_000

_MODEL = OfficialModel(
    name="Llama-3.1-8B",
    shape={  # [model]
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    },
    bos_ids=frozenset({128000}),  # [model]
    stop_ids=frozenset({128001, 128008, 128009}),  # [model] eos_token_id
    special_ids=frozenset(range(128000, 128256)),  # [model] tokenizer.json
    speculative_decoding=False,  # [rules]
)

# [ref] SUT gen_kwargs, [rules] table of generation settings
_SAMPLING = SamplingPolicy(temperature=0.0, top_p=1.0, top_k=1, seed=42, min_tokens=1, max_tokens=128)


def _targets(rouge: tuple[float, float, float, float], characters: int, samples: int) -> dict[str, Target]:
    """[checker] accuracy-target and accuracy-upper-limit; gen_num, which the checker does not read, is ours."""
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    return {
        **{name: Target(score, low_share=0.99, high_share=None) for name, score in zip(names, rouge, strict=True)},
        "gen_len": Target(characters, 0.9, 1.1),
        "gen_num": Target(samples),
    }


_DATACENTER = Benchmark(
    loadgen_key="llama3_1-8b",
    submission=Submission(
        name="llama3.1-8b",
        aliases=("llama3_1-8b",),  # [checker] model mapping
        suite="datacenter",
        all_of=("Offline",),  # [checker] required-scenarios-datacenter
        one_of=("Server", "Interactive"),  # [checker] optional-scenarios-datacenter, one of which must be there
        audits=("TEST06",),  # [checker] models_TEST06
        rounds=_ROUNDS,
    ),
    scenarios=("Offline", "Server"),
    model=_MODEL,
    data_set="CNN-DailyMail",
    performance_samples=_DATACENTER_SAMPLES,
    accuracy_samples=_DATACENTER_SAMPLES,
    min_duration_ms=600_000,  # [checker] TEST_DURATION_MS
    offline_min_samples=_DATACENTER_SAMPLES,  # [conf] Offline.min_query_count
    limits=LatencyLimits(ttft_ms=2000, tpot_ms=100),  # [conf]
    sampling={"performance": _SAMPLING, "accuracy": _SAMPLING},
    metric="rouge",
    targets=_targets((38.7792, 15.9075, 24.4957, 35.793), 8_167_644, _DATACENTER_SAMPLES),  # [ref] [checker]
)

BENCHMARKS = (
    _DATACENTER,
    replace(
        _DATACENTER,
        loadgen_key="llama3_1-8b-interactive",
        scenarios=("Interactive",),
        offline_min_samples=None,  # [conf] has no line for this key
        limits=LatencyLimits(ttft_ms=500, tpot_ms=30),  # [conf]
    ),
    replace(
        _DATACENTER,
        loadgen_key="llama3_1-8b-edge",
        submission=Submission(
            name="llama3.1-8b-edge",
            aliases=("llama3_1-8b-edge",),
            suite="edge",
            all_of=("SingleStream", "Offline"),  # [checker] required-scenarios-edge
            one_of=(),
            audits=(),  # [checker] not in models_TEST06
            rounds=_ROUNDS,
        ),
        scenarios=("SingleStream", "Offline"),
        performance_samples=_EDGE_SAMPLES,
        accuracy_samples=_EDGE_SAMPLES,
        offline_min_samples=_EDGE_SAMPLES,
        limits=None,
        targets=_targets((39.06, 16.1147, 24.6375, 36.124), 3_051_113, _EDGE_SAMPLES),  # [ref] [checker]
    ),
)
