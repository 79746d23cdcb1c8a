"""Write a synthetic dataset to rehearse a submission with, in the MLCommons format and with the official row count."""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.dataset import SYNTHETIC_MARK
from qsl.datasets.cnn_dailymail import encode_rows
from qsl.rehearsal_articles import make_rows
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from scripts.dataset_output import INTERRUPTED, add_output_options, check_output, progress, write
from scripts.program import exit_code_of

DATACENTER_ROWS = BENCHMARKS["llama3_1-8b"].accuracy_samples
EDGE_ROWS = BENCHMARKS["llama3_1-8b-edge"].accuracy_samples
NAME_MARK = "rehearsal"  # Required in the file name to distinguish the file from the official dataset.


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _make(options), INTERRUPTED)


def _make(options: argparse.Namespace) -> None:
    _check(options)
    tokenizer = load_tokenizer(options.model_path)
    with progress(options.count, "inventing", "tokenizing") as (invented, tokenized):
        rows = make_rows(options.count, tokenizer, options.seed, invented)
        prepared = write(options, encode_rows(rows.articles, rows.highlights, tokenizer, tokenized))
    mean_characters = statistics.fmean(len(article) for article in rows.articles)
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}, synthetic")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens, {mean_characters:,.0f} characters of article")
    print(f"sha256: {prepared.sha256}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Write a synthetic dataset in the MLCommons format (input, tok_input, output) for the rehearsal of "
        "a submission. The prompts are about as long as the official prompts. The reference summaries overlap with the "
        "articles' leads, so that the dummy engine with --dummy-shortest-tokens 120 meets the official accuracy "
        f"targets. The last line of every reference summary is {SYNTHETIC_MARK + ' N .'!r}.",
        epilog="The rows depend only on tokenizer, count and seed. Exit codes: 0 done, 2 bad input, "
        "130 interrupted; without success, the output is not written.",
    )
    parser.add_argument("--model-path", required=True, metavar="MODEL", help="model folder or ID with the tokenizer")
    add_output_options(parser, f"output file, named with {NAME_MARK!r}")
    parser.add_argument(
        "--count",
        type=int,
        default=DATACENTER_ROWS,
        metavar="N",
        help=f"number of rows: {DATACENTER_ROWS} for datacenter (default), {EDGE_ROWS} for edge",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the rows (default 0)")
    return parser


def _check(options: argparse.Namespace) -> None:
    output: Path = options.output
    if options.count < 1:
        raise InputError(f"--count {options.count}: must be at least 1", f"give {DATACENTER_ROWS} or {EDGE_ROWS}")
    if NAME_MARK not in output.name.lower():
        raise InputError(
            f"--output {output}: the name must contain {NAME_MARK!r}",
            f"give, for example, {output.stem}-{NAME_MARK}{output.suffix or '.json'}",
        )
    check_output(options)


if __name__ == "__main__":
    sys.exit(main())
