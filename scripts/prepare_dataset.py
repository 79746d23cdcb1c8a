"""Write a data set in the MLCommons format from the hub's CNN-DailyMail or from a local file."""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.prepare import HUB, HUB_DATASET, Prepared, read_source, write_dataset
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import ExitCode, HarnessError, InputError

DATACENTER_ROWS = BENCHMARKS["llama3_1-8b"].sample_count


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _check_output(options.output)
        tokenizer = load_tokenizer(options.model_path)
        source = read_source(options.source, options.count)
        console = Console(stderr=True)
        columns = (TextColumn("tokenising"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("", total=len(source))
            prepared = write_dataset(
                options.output,
                source.articles,
                source.highlights,
                tokenizer,
                lambda done: bar.update(task, completed=done),
            )
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {options.output} cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return ExitCode.INTERRUPTED
    _report(prepared, from_hub=options.source == HUB)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Write a data set in the MLCommons format: a JSON array of rows with the columns input (article), "
        "tok_input (token ids of the official prompt) and output (reference summary).",
        epilog="--count takes the first N rows. The official edge data set is another selection of 5,000 articles, "
        "which is not reproduced here: fetch it from MLCommons. Exit codes: 0 done, 2 bad input, 3 the hub cannot be "
        "reached, 130 interrupted; the output is written whole or not at all.",
    )
    parser.add_argument(
        "--source",
        required=True,
        metavar="hub|FILE",
        help=f"'{HUB}' fetches {HUB_DATASET}'s validation split; FILE is Parquet, CSV, TSV, JSON or JSON lines with "
        "the columns article and highlights",
    )
    parser.add_argument("--model-path", required=True, metavar="MODEL", help="model folder or id with the tokenizer")
    parser.add_argument("--output", required=True, type=Path, metavar="OUT.json", help="file to write")
    parser.add_argument("--count", type=int, metavar="N", help="take the first N rows (default: all)")
    return parser


def _check_output(output: Path) -> None:
    """Find out before minutes of work, not after them."""
    if output.is_dir():
        raise InputError(f"--output {output} is a directory", "give the name of the file to write")
    if not output.absolute().parent.is_dir():
        raise InputError(f"the directory of --output {output} does not exist", f"mkdir -p {output.absolute().parent}")


def _report(prepared: Prepared, *, from_hub: bool) -> None:
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens")
    print(f"sha256: {prepared.sha256}")
    if prepared.rows == DATACENTER_ROWS:
        whose = "" if from_hub else " if the source is CNN-DailyMail's validation split"
        print(f"{DATACENTER_ROWS:,} rows: the full datacenter data set{whose}")
    else:
        print(f"not the full datacenter data set, which has {DATACENTER_ROWS:,} rows")


if __name__ == "__main__":
    sys.exit(main())
