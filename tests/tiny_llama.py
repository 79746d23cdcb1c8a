"""A tiny random Llama with a tokenizer of its own, made in a second: the real engine's smallest real model."""

from pathlib import Path

VOCAB_SIZE = 1024
MAX_POSITIONS = 2048


def make_tiny_llama(folder: Path, texts: list[str]) -> Path:
    """Write a Llama of 0.4 M parameters, seeded, and a byte-level BPE tokenizer trained on `texts`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[0], eos_token=special[1], clean_up_tokenization_spaces=False
    ).save_pretrained(folder)

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder, safe_serialization=True)
    return folder
