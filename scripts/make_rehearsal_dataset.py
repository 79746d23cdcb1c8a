"""Write a synthetic data set to rehearse a submission with, in the MLCommons format and with the official row count."""

import argparse
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.prepare import Prepared, write_dataset
from qsl.rehearsal import MARK, make_rows
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from runs.errors import ExitCode, HarnessError, InputError

DATACENTER_ROWS = BENCHMARKS["llama3_1-8b"].sample_count
EDGE_ROWS = BENCHMARKS["llama3_1-8b-edge"].sample_count
NAME_MARK = "rehearsal"  # in the file's name, so that nobody takes it for the real data set


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _check(options)
        tokenizer = load_tokenizer(options.model_path)
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            inventing = bar.add_task("inventing", total=options.count)
            tokenising = bar.add_task("tokenising", total=options.count)
            rows = make_rows(options.count, tokenizer, options.seed, lambda done: bar.update(inventing, completed=done))
            prepared = write_dataset(
                options.output,
                rows.articles,
                rows.summaries,
                tokenizer,
                lambda done: bar.update(tokenising, completed=done),
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
    _report(prepared, statistics.fmean(len(article) for article in rows.articles))
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Write a synthetic data set in the MLCommons format (input, tok_input, output) to rehearse a whole "
        "submission with: prompts about as long as the official ones, reference summaries that overlap with the "
        "articles' leads, so that the dummy engine with --dummy-shortest-tokens 120 meets the official accuracy "
        f"targets. The last line of every reference summary is {MARK + ' N .'!r}.",
        epilog="The same rows for the same tokenizer, count and seed. Exit codes: 0 done, 2 bad input, "
        "130 interrupted; the output is written whole or not at all.",
    )
    parser.add_argument("--model-path", required=True, metavar="MODEL", help="model folder or id with the tokenizer")
    parser.add_argument(
        "--output", required=True, type=Path, metavar="OUT.json", help=f"file to write; its name holds {NAME_MARK!r}"
    )
    parser.add_argument(
        "--count",
        type=int,
        default=DATACENTER_ROWS,
        metavar="N",
        help=f"rows: {DATACENTER_ROWS} for datacenter (default), {EDGE_ROWS} for edge",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another seed gives other rows (default 0)")
    return parser


def _check(options: argparse.Namespace) -> None:
    """Find out before minutes of work, not after them."""
    output: Path = options.output
    if options.count < 1:
        raise InputError(f"--count {options.count} is below 1", f"give {DATACENTER_ROWS} or {EDGE_ROWS}")
    if NAME_MARK not in output.name.lower():
        raise InputError(
            f"--output {output}: the name does not say that the data set is a rehearsal's",
            f"name it {output.stem}-{NAME_MARK}{output.suffix or '.json'}, say",
        )
    if output.is_dir():
        raise InputError(f"--output {output} is a directory", "give the name of the file to write")
    if not output.absolute().parent.is_dir():
        raise InputError(f"the directory of --output {output} does not exist", f"mkdir -p {output.absolute().parent}")


def _report(prepared: Prepared, mean_characters: float) -> None:
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}, synthetic")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens, {mean_characters:,.0f} characters of article")
    print(f"sha256: {prepared.sha256}")


if __name__ == "__main__":
    sys.exit(main())
