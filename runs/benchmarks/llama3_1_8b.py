"""Llama-3.1-8B on CNN-DailyMail: the numbers that the table of the round does not have, with their sources.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1):
  [checker]  tools/submission/submission_checker/constants.py, MODEL_CONFIG of v5.1, v6.0 and v6.1, which are equal here
  [ref]      language/llama3.1-8b (reference implementation and README)
  [rules]    mlcommons/inference_policies, inference_rules.adoc
  [model]    meta-llama/Llama-3.1-8B-Instruct, config.json and generation_config.json
  [hash]     the Hugging Face Hub's SHA-256 of the files at 0e9e39f249a16976918f6564b8830bc894c89659, the revision of
             NVIDIA's v5.1 submission; all revisions have the same weights
  [data]     Intel's verification test suite: SHA-256 of the files of MLCommons' downloader, which publishes only
             MD5. Its hash of OpenOrca equals that in mlcommons/endpoints.
"""

from dataclasses import replace

from runs.benchmark import Benchmark, OfficialModel, SamplingPolicy, Target
from runs.rounds import CURRENT_ROUND

_NAME, _EDGE_NAME = "llama3.1-8b", "llama3.1-8b-edge"
_ENTRY, _EDGE_ENTRY = (CURRENT_ROUND.table.benchmarks[name] for name in (_NAME, _EDGE_NAME))

MODEL = OfficialModel(
    name="Llama-3.1-8B",
    shape={  # [model]
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    },
    parameters=8_030_261_248,  # parameters of this shape
    weights_sha256={  # [hash]
        "model-00001-of-00004.safetensors": "2b1879f356aed350030bb40eb45ad362c89d9891096f79a3ab323d3ba5607668",
        "model-00002-of-00004.safetensors": "09d433f650646834a83c580877bd60c6d1f88f7755305c12576b5c7058f9af15",
        "model-00003-of-00004.safetensors": "fc1cdddd6bfa91128d6e94ee73d0ce62bfcdb7af29e978ddcab30c66ae9ea7fa",
        "model-00004-of-00004.safetensors": "92ecfe1a2414458b4821ac8c13cf8cb70aed66b5eea8dc5ad9eeb4ff309d6d7b",
    },
    bos_ids=frozenset({128000}),  # [model]
    stop_ids=frozenset({128001, 128008, 128009}),  # [model] eos_token_id
    special_ids=frozenset(range(128000, 128256)),  # [model] tokenizer.json
    speculative_decoding=False,  # [rules]
)

# [ref] SUT gen_kwargs, [rules] table of generation settings
_SAMPLING = SamplingPolicy(
    temperature=0.0, top_p=1.0, top_k=1, seed=42, min_tokens=1, max_tokens=_ENTRY.max_tokens["performance"]
)


def _targets(rouge: tuple[float, float, float, float], characters: int, samples: int) -> dict[str, Target]:
    """[checker] accuracy-target and accuracy-upper-limit; gen_num is a target of this harness; no checker reads it."""
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    return {
        **{name: Target(score, low_share=0.99, high_share=None) for name, score in zip(names, rouge, strict=True)},
        "gen_len": Target(characters, 0.9, 1.1),
        "gen_num": Target(samples),
    }


_DATACENTER = Benchmark(
    loadgen_key="llama3_1-8b",
    submission_name=_NAME,
    entry=_ENTRY,
    scenarios=("Offline", "Server"),
    model=MODEL,
    data_set="CNN-DailyMail",
    data_sha256="6d066a21bd615909466885d53b664b73c5aabc32d60c1cbd03f4293de6430026",  # [data] cnn_eval.json
    # [data] cnn_dailymail_calibration.json
    calibration_sha256="a2ca44ea25bbb149beb9fec01dc54078f93f2228218c6e40049829f8fb3250a0",
    sampling={"performance": _SAMPLING, "accuracy": _SAMPLING},
    metric="rouge",
    targets=_targets((38.7792, 15.9075, 24.4957, 35.793), 8_167_644, _ENTRY.data_set),  # [ref] [checker]
    quality_eval="mlperf_cnndm_rouge",
)

BENCHMARKS = (
    _DATACENTER,
    replace(_DATACENTER, loadgen_key="llama3_1-8b-interactive", scenarios=("Interactive",)),
    replace(
        _DATACENTER,
        loadgen_key="llama3_1-8b-edge",
        submission_name=_EDGE_NAME,
        entry=_EDGE_ENTRY,
        scenarios=("SingleStream", "Offline"),
        data_sha256="2d1a21eadd8ef7547d2f5fba939a9e1886a22ee926fe3781cb8934d3a01445db",  # [data] sample_cnn_eval_5000
        targets=_targets((39.06, 16.1147, 24.6375, 36.124), 3_051_113, _EDGE_ENTRY.data_set),  # [ref] [checker]
    ),
)
