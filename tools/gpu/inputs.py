"""Models and datasets of the stages, generated on the machine, which has no network; copying weights takes too long.

The small model is a random Llama of 16 million parameters with its weights. The large one has the shape of
Llama-3.1-8B and no weights: vLLM generates random weights (`load_format=dummy`), which compute as fast as real weights.
"""

from pathlib import Path
from typing import Any

from runs.files.writing import write_json
from tools.gpu.stage import GpuStage, Precision
from tools.peers.support.models import TINY, VOCAB_SIZE, Shape, make_llama, write_rows

SMALL_SHAPE = Shape("G", hidden=512, intermediate=1536, layers=4, heads=8, key_value_heads=2, head_dim=64)
SMALL_ROWS, ROWS, REHEARSAL_ROWS = 512, 4096, 96
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
Inputs = dict[str, Any]  # options of a run: engine, model, dataset, engine arguments


def rows_of(stage: GpuStage) -> int:
    """Return the rows of the large model's dataset."""
    return REHEARSAL_ROWS if stage.options.small else ROWS


def small_model(stage: GpuStage) -> Inputs:
    """Make the small model and its dataset."""
    shape, rows = (TINY, REHEARSAL_ROWS) if stage.options.small else (SMALL_SHAPE, SMALL_ROWS)
    folder = stage.work / f"small-{shape.name}"
    engine = DUMMY if stage.options.dummy else {"vllm": True}
    model, data = make_llama(folder / "model", shape), folder / "rows.json"
    if not data.exists():
        write_rows(data, rows, VOCAB_SIZE)
    return {**engine, "model_path": str(model), "dataset_path": str(data), "engine_arg": {}}


def large_model(stage: GpuStage, precision: Precision) -> Inputs:
    """Make the folder of the large model and its dataset; in a rehearsal, the small model and dataset."""
    if stage.options.small:
        return small_model(stage)
    folder = stage.work / "large"
    model, data = folder / "model", folder / "rows.json"
    if not data.exists():
        _write_tokenizer(model)
        write_json(model / "config.json", LLAMA_8B)
        write_rows(data, ROWS, FIRST_SPECIAL_ID)
    arguments: dict[str, Any] = {"load_format": "dummy"}
    if precision != "bf16":
        arguments["quantization"] = "fp8"
    if precision == "fp8kv":
        arguments["kv_cache_dtype"] = "fp8"
    return {"vllm": True, "model_path": str(model), "dataset_path": str(data), "engine_arg": arguments}


def with_arguments(inputs: Inputs, **arguments: Any) -> Inputs:
    """Return the inputs with further engine arguments, except for the dummy engine."""
    return inputs if "engine" in inputs else {**inputs, "engine_arg": inputs["engine_arg"] | arguments}


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
