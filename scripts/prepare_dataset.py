"""Write the dataset of a benchmark in the MLCommons format, from the Hugging Face Hub or a local file."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.dataset_kind import DatasetKind, DatasetRequest, dataset_kinds
from qsl.source_columns import HUB
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.files.writing import sha256_of
from scripts.dataset_output import INTERRUPTED, add_output_options, check_output, progress, write
from scripts.program import exit_code_of

DATASETS = dataset_kinds()
# LoadGen key of the first benchmark of each dataset → the dataset.
PREPARED = {
    benchmark.loadgen_key: DATASETS[data_set]
    for data_set, benchmark in reversed(
        {benchmark.data_set: benchmark for benchmark in reversed(BENCHMARKS.values())}.items()
    )
}


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _prepare(options), INTERRUPTED)


def _prepare(options: argparse.Namespace) -> None:
    check_output(options)
    dataset = PREPARED[options.lg_model_name]
    if options.ids is not None and dataset.calibration_list_sha256 is None:
        raise InputError(f"--ids {options.ids}: not supported for {options.lg_model_name}", "remove --ids")
    request = DatasetRequest(options.source, options.count, options.ids, options.model_path)
    rows = dataset.read(request)
    with progress(rows.count, "tokenizing") as (tokenized,):
        prepared = write(options, rows.encode(tokenized))
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens")
    print(f"sha256: {prepared.sha256}")
    print(_completeness(dataset, request, prepared.rows, BENCHMARKS[options.lg_model_name].accuracy_samples))


def _completeness(dataset: DatasetKind, request: DatasetRequest, rows: int, official_rows: int) -> str:
    if request.ids is not None:
        is_selected = sha256_of(request.ids) == dataset.calibration_list_sha256
        return f"calibration data, {'selected' if is_selected else 'not selected'} by the list of mlcommons/inference"
    if rows != official_rows:
        return f"not the full datacenter dataset, which has {official_rows:,} rows"
    if dataset.is_official(request.source):
        return f"{official_rows:,} rows: the full datacenter dataset"
    return f"{official_rows:,} rows: the full datacenter dataset if the source is {dataset.official_source}"


def _parser() -> argparse.ArgumentParser:
    columns = "; ".join(f"{dataset.columns} ({key})" for key, dataset in PREPARED.items())
    parser = argparse.ArgumentParser(
        description="Write a dataset in the MLCommons format: a JSON array of rows with the columns input (article "
        "or prompt), tok_input (token IDs of the official prompt) and output (reference response).",
        epilog="--count takes the first N rows. The official edge dataset is another selection of 5,000 articles: "
        "fetch it from MLCommons. Exit codes: 0 done, 2 bad input, 3 the Hugging Face Hub cannot be reached, "
        "130 interrupted; without success, the output is not written.",
    )
    parser.add_argument(
        "--source",
        required=True,
        metavar="hub|FILE",
        help=f"'{HUB}' fetches the dataset from the Hugging Face Hub; FILE is Parquet, CSV, TSV, JSON or JSON lines "
        f"with the columns {columns}; llama2-70b: also the pickle that MLCommons distributes, which is read only if it "
        "has the published SHA-256",
    )
    parser.add_argument(
        "--model-path", metavar="MODEL", help="model folder or ID with the tokenizer; not needed for a pickle"
    )
    parser.add_argument(
        "--lg-model-name",
        choices=tuple(PREPARED),
        default=next(iter(PREPARED)),
        help="benchmark (default %(default)s)",
    )
    add_output_options(parser, "file to write")
    parser.add_argument(
        "--ids", type=Path, metavar="LIST", help="select the articles in this file, one ID per line, for calibration"
    )
    parser.add_argument("--count", type=int, metavar="N", help="select the first N rows (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
