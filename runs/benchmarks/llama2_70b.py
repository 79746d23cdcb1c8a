"""Llama-2-70B (chat) on OpenOrca, the 99.9 % variant: the numbers that the table of the round does not have.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1):
  [checker]  tools/submission/submission_checker/constants.py, MODEL_CONFIG of v5.1, v6.0 and v6.1, which are equal here
  [ref]      language/llama2-70b (reference implementation and README)
  [rules]    mlcommons/inference_policies, inference_rules.adoc
  [model]    meta-llama/Llama-2-70b-chat-hf, config.json and generation_config.json
"""

from dataclasses import replace

from runs.benchmark import Benchmark, OfficialModel, SamplingPolicy, Target
from runs.rounds import CURRENT_ROUND

_NAME = "llama2-70b-99.9"
_ENTRY = CURRENT_ROUND.table.benchmarks[_NAME]

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
    parameters=68_976_648_192,  # parameters of this shape
    weights_sha256={},
    bos_ids=frozenset({1}),  # [model]
    stop_ids=frozenset({2}),  # [model] eos_token_id
    special_ids=frozenset({0, 1, 2}),  # [model] tokenizer.json
    speculative_decoding=False,  # [rules]
)

# [ref] SUT gen_kwargs; decoding is greedy, so the other values have no effect and are vLLM's defaults
_SAMPLING = SamplingPolicy(
    temperature=0.0, top_p=1.0, top_k=1, seed=42, min_tokens=1, max_tokens=_ENTRY.max_tokens["performance"]
)

_STANDARD = Benchmark(
    loadgen_key="llama2-70b",
    submission_name=_NAME,
    entry=_ENTRY,
    scenarios=("Offline", "Server"),
    model=_MODEL,
    data_set="OpenOrca",
    data_sha256=None,  # only the hash of the pickle file is published (qsl/datasets/open_orca.py)
    calibration_sha256=None,
    sampling={"performance": _SAMPLING, "accuracy": _SAMPLING},
    metric="rouge-tokens",
    # [ref] README, [checker] accuracy-target and accuracy-upper-limit; gen_num is this harness's, the checker does not
    # read it
    targets={
        "rouge1": Target(44.4312, low_share=0.999, high_share=None),
        "rouge2": Target(22.0352, low_share=0.999, high_share=None),
        "rougeL": Target(28.6162, low_share=0.999, high_share=None),
        "tokens_per_sample": Target(294.45, 0.9, 1.1),
        "gen_num": Target(_ENTRY.data_set),
    },
    quality_eval="mlperf_orca_rouge",
)

BENCHMARKS = (_STANDARD, replace(_STANDARD, loadgen_key="llama2-70b-interactive", scenarios=("Interactive",)))
