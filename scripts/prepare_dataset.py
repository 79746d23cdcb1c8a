"""Write a dataset in the MLCommons format: CNN-DailyMail or OpenOrca, from the Hugging Face Hub or a local file."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl import open_orca
from qsl.cnn_dailymail.prepare import CALIBRATION_LIST_SHA256, HUB, HUB_DATASET, read_articles, read_calibration
from qsl.cnn_dailymail.rows import Prepared, encode_rows
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.files.writing import sha256_of
from scripts.dataset_output import INTERRUPTED, add_output_options, check_output, progress, write
from scripts.program import exit_code_of

CNN_DAILYMAIL, OPEN_ORCA = BENCHMARKS["llama3_1-8b"], BENCHMARKS["llama2-70b"]


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _prepare(options), INTERRUPTED)


def _prepare(options: argparse.Namespace) -> None:
    check_output(options)
    benchmark = BENCHMARKS[options.lg_model_name]
    prepared = _write_open_orca(options) if benchmark is OPEN_ORCA else _write_articles(options)
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens")
    print(f"sha256: {prepared.sha256}")
    needed = benchmark.accuracy_samples
    if options.ids is not None:
        official = sha256_of(options.ids) == CALIBRATION_LIST_SHA256
        print(f"calibration data, {'selected' if official else 'not selected'} by the list of mlcommons/inference")
    elif prepared.rows != needed:
        print(f"not the full datacenter dataset, which has {needed:,} rows")
    elif options.source == HUB or open_orca.is_pickle(options.source):
        print(f"{needed:,} rows: the full datacenter dataset")
    else:
        print(f"{needed:,} rows: the full datacenter dataset if the source is {_OFFICIAL[benchmark.loadgen_key]}")


_OFFICIAL = {
    CNN_DAILYMAIL.loadgen_key: "CNN-DailyMail's validation split",
    OPEN_ORCA.loadgen_key: "MLCommons' selection of OpenOrca",
}


def _write_articles(options: argparse.Namespace) -> Prepared:
    tokenizer = load_tokenizer(_model_path(options))
    if options.ids is not None and options.count is not None:
        raise InputError("--ids and --count exclude each other", "give only one of these options")
    ids = options.ids
    source = read_articles(options.source, options.count) if ids is None else read_calibration(options.source, ids)
    with progress(len(source), "tokenizing") as (tokenized,):
        return write(options, encode_rows(source.articles, source.highlights, tokenizer, tokenized))


def _write_open_orca(options: argparse.Namespace) -> Prepared:
    if options.ids is not None:
        raise InputError(f"--ids {options.ids}: not supported for llama2-70b", "remove --ids")
    if options.source == HUB:
        raise InputError(
            f"--source {HUB}: MLCommons selects the {OPEN_ORCA.accuracy_samples:,} official rows of OpenOrca",
            f"fetch {open_orca.OFFICIAL_NAME}.gz from MLCommons and give its path with --source",
        )
    if open_orca.is_pickle(options.source):
        return write(options, open_orca.official_rows(Path(options.source), options.count))
    tokenizer = load_tokenizer(_model_path(options))
    rows = open_orca.own_rows(Path(options.source), options.count)
    with progress(len(rows), "tokenizing") as (tokenized,):
        return write(options, open_orca.encode_questions(rows, tokenizer, tokenized))


def _model_path(options: argparse.Namespace) -> str:
    if options.model_path is None:
        raise InputError("--model-path: missing", "give the model folder or Hugging Face Hub ID with the tokenizer")
    return str(options.model_path)


def _parser() -> argparse.ArgumentParser:
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
        help=f"'{HUB}' fetches {HUB_DATASET}'s validation split; FILE is Parquet, CSV, TSV, JSON or JSON lines with "
        "the columns article and highlights (llama2-70b: system_prompt, question and response, or the pickle that "
        "MLCommons distributes, which is read only if it has the published SHA-256)",
    )
    parser.add_argument(
        "--model-path", metavar="MODEL", help="model folder or ID with the tokenizer; not needed for a pickle"
    )
    parser.add_argument(
        "--lg-model-name",
        choices=(CNN_DAILYMAIL.loadgen_key, OPEN_ORCA.loadgen_key),
        default=CNN_DAILYMAIL.loadgen_key,
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
