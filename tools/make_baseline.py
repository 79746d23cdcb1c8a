"""Make qsl/embedded/data/baseline.json: the embedded model's scores over the bundled articles, by transformers alone.

It decodes one prompt at a time, greedily and in float32, without vLLM and the harness, as an independent reference for
runs of the harness.
"""

import argparse
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from compliance.accuracy.scores import score_texts
from qsl.dataset import Dataset, load_dataset
from qsl.embedded.articles import BASELINE_FILE, Baseline, bundled_dataset, bundled_sha256
from qsl.embedded.default_model import DEFAULT_MODEL_NAME, MODEL_SHA256, ensure_default_model
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.files.writing import write_json
from scripts.program import exit_code_of

LIBRARIES = ("torch", "transformers", "rouge-score", "nltk")


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _make(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Run the embedded model over the bundled articles with transformers (float32, greedy, one prompt "
        "at a time) and write its scores. Takes a quarter of an hour on two cores."
    )
    parser.add_argument("--output", type=Path, default=BASELINE_FILE, help="file to write (default: the bundled file)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    return parser


def _make(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    model_path = ensure_default_model(_say)
    dataset = load_dataset(bundled_dataset(str(model_path)))
    predictions = load_tokenizer(str(model_path)).batch_decode(generate(model_path, dataset))
    scores = score_texts(predictions, dataset.targets, workers=1)
    baseline = Baseline(
        model=DEFAULT_MODEL_NAME,
        model_sha256=MODEL_SHA256["model.safetensors"],
        articles_sha256=bundled_sha256(),
        **scores,  # type: ignore[arg-type]  # names and kinds are the same
        command=f"python -m tools.make_baseline --threads {options.threads}",
        versions={"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
    )
    write_json(options.output, asdict(baseline))
    print(f"{scores}\nwrote {options.output}")


def generate(model_path: Path, dataset: Dataset) -> list[list[int]]:
    """Return the IDs of each prompt's continuation, including a final end-of-text ID."""
    from transformers import AutoModelForCausalLM

    sampling = BENCHMARKS["llama3_1-8b"].sampling["accuracy"]
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    outputs = []
    for number, prompt in enumerate(dataset.prompts, start=1):
        input_ids = torch.tensor([prompt])
        with torch.inference_mode():
            ids = model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=sampling.max_tokens,
                min_new_tokens=sampling.min_tokens,
                do_sample=False,
            )
        outputs.append(ids[0, len(prompt) :].tolist())
        _say(f"{number} of {len(dataset)}: {len(prompt)} tokens in, {len(outputs[-1])} out")
    return outputs


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
