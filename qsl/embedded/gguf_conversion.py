"""Turning the embedded model's GGUF file into a Hugging Face model folder, byte for byte the same on every machine.

Everything is written by hand, since transformers refuses to save a model that it loaded from GGUF, and so that the
bytes depend on the GGUF file alone and not on a library's version.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.files import write_json

# GGUF name of a tensor in block N → name in transformers' LlamaForCausalLM.
_BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# No output.weight: its embeddings are tied, and `tie_word_embeddings` in config.json says so.
_TOP_TENSORS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}

# Name of a special token's id in transformers → in GGUF.
_SPECIAL_IDS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
_CONTROL_TOKEN = 3  # GGUF's token type of special tokens


def convert(gguf_path: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Write config.json, generation_config.json, the tokenizer's files and model.safetensors into `folder`.

    Args:
        gguf_path: a Llama-architecture GGUF file with a byte-level BPE tokenizer and tied embeddings.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    special = {name: fields[f"tokenizer.ggml.{key}_token_id"] for name, key in _SPECIAL_IDS.items()}
    write_json(folder / "config.json", _config(fields, special))
    write_json(folder / "generation_config.json", special)
    write_json(folder / "tokenizer_config.json", _tokenizer_config(fields, special))
    write_json(folder / "tokenizer.json", _tokenizer(fields))
    progress("dequantising the weights to float32")
    _write_weights(reader.tensors, fields, folder / "model.safetensors")


def _config(fields: dict[str, Any], special: dict[str, int]) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **special,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": fields["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        # Held as float32 in the file: 9.999999747378752e-06 stands for 1e-05.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def _tokenizer_config(fields: dict[str, Any], special: dict[str, int]) -> dict[str, Any]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    bos, eos, pad = (tokens[special[name]] for name in _SPECIAL_IDS)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "additional_special_tokens": [bos, eos],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """The `tokenizers` library's description of SmolLM2's tokenizer: digits alone, then GPT-2's byte-level BPE."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, "content": token, **plain, "special": True}
            for token_id, (token, token_type) in enumerate(zip(tokens, types, strict=True))
            if token_type == _CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _write_weights(tensors: Any, fields: dict[str, Any], path: Path) -> None:
    from gguf.quants import dequantize
    from safetensors.numpy import save_file

    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    weights: dict[str, NDArray[np.float32]] = {}
    for tensor in tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if tensor.name in _TOP_TENSORS:
            weights[_TOP_TENSORS[tensor.name]] = values
            continue
        _, block, kind, suffix = tensor.name.split(".")  # blk.N.KIND.weight
        if kind in heads:
            values = _unpermute(values, heads[kind])
        weights[f"model.layers.{block}.{_BLOCK_TENSORS[kind]}.{suffix}"] = values
    save_file({name: np.ascontiguousarray(weights[name]) for name in sorted(weights)}, path, metadata={"format": "pt"})
    # save_file makes it readable by its owner alone, unlike the files beside it.
    path.chmod(path.with_name("config.json").stat().st_mode & 0o777)


def _unpermute(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's interleaving of the two rotary halves of every head.

    Args:
        rows: shape (heads × head_dim, hidden), with rows 2i and 2i+1 of a head being rows i and i + head_dim/2 of the
            original.
    """
    split = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return split.swapaxes(1, 2).reshape(rows.shape)
