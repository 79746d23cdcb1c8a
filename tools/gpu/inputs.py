"""The model, the dataset and the engine settings of the stages, generated on the machine, which has no network.

The model has the shape of Llama-3.1-8B and no weights: vLLM generates random weights (`load_format=dummy`), which
compute as fast as real weights. A rehearsal has the dummy engine and a small dataset.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from runs.files.writing import write_atomic, write_json
from tools.gpu.stage import GpuStage
from tools.peers.support.models import LONGEST_TOKENS, VOCAB_SIZE, write_rows

ROWS, REHEARSAL_ROWS = 4096, 96
OUTPUT_TOKENS = 128
LONGEST = LONGEST_TOKENS + OUTPUT_TOKENS  # tokens of the longest prompt with its response
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 128_256,
    "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": False, "initializer_range": 0.02, "use_cache": True, "bos_token_id": 128_000,
    "eos_token_id": [128_001, 128_008, 128_009],
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
FIRST_SPECIAL_ID = 128_000  # IDs below are text
# Settings of the dummy engine, slow enough for observation and for the caching audit, which needs 2 s per dataset.
DUMMY: dict[str, Any] = {"engine": "dummy", "dummy_ttft_ms": 50, "dummy_slots": 8}
DUMMY_OF_AN_AUDIT: dict[str, Any] = {**DUMMY, "dummy_ttft_ms": 250}
Inputs = dict[str, Any]  # options of a run: engine, model, dataset


@dataclass(frozen=True)
class Setting:
    """Engine arguments with a name."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


_RANDOM = {"load_format": "dummy"}
BF16 = Setting("bf16", _RANDOM)
FP8 = Setting("fp8", {**_RANDOM, "quantization": "fp8"})
# Expected to be faster (expected.yaml): half of the cache's bytes, so that twice as many queries fit. Few sizes of CUDA
# graphs up to the batch that fits; each size takes time at the start.
FP8_KV = Setting(
    "fp8kv",
    {
        **FP8.arguments,
        "kv_cache_dtype": "fp8",
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, *range(64, 1025, 64)],
    },
)


def rows_of(stage: GpuStage) -> int:
    """Return the rows of the dataset."""
    return REHEARSAL_ROWS if stage.options.dummy else ROWS


def large_model(stage: GpuStage) -> Inputs:
    """Make the folder of the model and its dataset; return the options of a run."""
    model, data = stage.work / "model", stage.work / "rows.json"
    if stage.options.dummy:
        if not data.exists():
            write_rows(data, REHEARSAL_ROWS, VOCAB_SIZE)
        return {**DUMMY, "dataset_path": str(data)}
    if not data.exists():
        _write_tokenizer(model)
        write_json(model / "config.json", LLAMA_8B)
        write_rows(data, ROWS, FIRST_SPECIAL_ID)
    return {"vllm": True, "model_path": str(model), "dataset_path": str(data)}


def model_and_dataset(stage: GpuStage) -> Inputs:
    """Return the options of a command that measures a server: the model of its tokenizer, and the prompts."""
    inputs = large_model(stage)
    return {name: inputs[name] for name in ("model_path", "dataset_path")}


def engine_options(stage: GpuStage, setting: Setting, **arguments: Any) -> Inputs:
    """Return the options of a run with engine arguments; the dummy engine has none."""
    inputs = large_model(stage)
    return inputs if stage.options.dummy else {**inputs, "engine_arg": {**setting.arguments, **arguments}}


def user_conf(stage: GpuStage, name: str, scenario: str, **values: object) -> Path:
    """Write a user.conf with values of LoadGen's keys for a scenario."""
    path = stage.folder / f"{name}.conf"
    write_atomic(path, "".join(f"*.{scenario}.{key} = {value}\n" for key, value in values.items()))
    return path


def text_prompts(stage: GpuStage, count: int) -> Path:
    """Write the first prompts of the dataset as texts, one JSON object per line."""
    rows = orjson.loads(Path(large_model(stage)["dataset_path"]).read_bytes())[:count]
    texts = (" ".join(f"w{number}" for number in row["tok_input"]) for row in rows)
    path = stage.folder / "prompts.jsonl"
    write_atomic(path, b"".join(orjson.dumps({"prompt": text}) + b"\n" for text in texts))
    return path


def _write_tokenizer(folder: Path) -> None:
    """Write a tokenizer with a word for each ID."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(LLAMA_8B["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="w128000", eos_token="w128009", clean_up_tokenization_spaces=False
    ).save_pretrained(folder)
