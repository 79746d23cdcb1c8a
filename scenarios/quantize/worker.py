"""The program that quantizes, for the interpreter of a separate environment: `python worker.py JOB.json`.

It imports nothing from this harness, whose environment has other versions of the same packages. The job is a JSON
object: `model` and `output` (folders), `recipe` (llm-compressor's YAML) and `prompts` (lists of token IDs).
"""

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    """Quantize a model, and write the weights and their configuration."""
    from datasets import Dataset
    from llmcompressor import oneshot
    from transformers import AutoModelForCausalLM

    job = json.loads(Path(path).read_bytes())
    prompts = job["prompts"]
    data = Dataset.from_dict({"input_ids": prompts, "attention_mask": [[1] * len(ids) for ids in prompts]})
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype="auto", local_files_only=True)
    oneshot(
        model=model,
        dataset=data,
        recipe=job["recipe"],
        max_seq_length=max(map(len, prompts)),
        num_calibration_samples=len(prompts),
        shuffle_calibration_samples=False,
    )
    model.save_pretrained(job["output"], save_compressed=True)


if __name__ == "__main__":
    main(sys.argv[1])
