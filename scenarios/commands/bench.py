"""The `bench` command."""

import contextlib
from dataclasses import asdict
from typing import Any

import click

from runs.errors import ExitCode
from runs.record.layout import BENCH_FILE
from scenarios.bench.foreign_options import FLAGS, IGNORED, REFUSED
from scenarios.bench.options import NOT_FOR_BENCHES, BenchOptions
from scenarios.command_line import command_output
from scenarios.command_line.command import Command, all_mistakes
from scenarios.command_line.schema_options import dry_run_option, given_values, options_of, words_without_secrets
from scenarios.launch.run_config import RunConfig, make_config
from scenarios.spellings import bench_spellings

EXAMPLES = (
    "measure a server at three rates: bench http://localhost:8000 --rates 5,10,20",
    "measure a model, and name the bench for `compare`: bench MODEL --label bf16",
    'start a server for the bench: bench --serve "vllm serve MODEL --max-num-seqs 16"',
    "use your own prompts and latency limits: bench MODEL --dataset-path prompts.jsonl --limits ttft=2000,tpot=100",
)

_WORDS = "words"  # key in click's context for the words of the command line


class _BenchCommand(Command):
    """A command that keeps the words of its command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = ["bench", *words_without_secrets(args)]
        return super().parse_args(ctx, args)


def _hidden(name: str) -> click.Option:
    words = ["--" + name.replace("_", "-")]
    if name in FLAGS:
        return click.Option(words, hidden=True, is_flag=True, flag_value="", type=str, default=None)
    return click.Option(words, hidden=True)


@click.command(
    cls=_BenchCommand,
    collects_mistakes=True,
    examples=EXAMPLES,
    shown=("--label", "--rates", "--limits", "--duration", "--input-len", "--output-len", "--like", "--dry-run"),
    params=[
        click.Argument(["targets"], nargs=-1, metavar="[MODEL|URL]"),
        *options_of(BenchOptions, spellings=bench_spellings()),
        dry_run_option(),
        click.Option(
            ["--restart-changed"],
            is_flag=True,
            help="If DIR contains a bench with another command, move its runs to discarded/ and start again.",
        ),
        *options_of(RunConfig, NOT_FOR_BENCHES, spellings=bench_spellings()),
        *(_hidden(name) for name in (*REFUSED, *IGNORED)),
    ],
)
@click.pass_context
def bench(
    ctx: click.Context, /, targets: tuple[str, ...], dry_run: bool, restart_changed: bool, **parsed: Any
) -> ExitCode:
    """Measure throughput and latency of a model or a server at multiple loads.

    MODEL is a model folder or a Hugging Face Hub ID. URL is the address of a running server. With --serve, the command
    starts a server and stops it at the end. Default: the embedded model. The bench warms up the engine and measures the
    Offline rate. It then measures increasing shares of the Offline rate, until the engine is saturated. Two runs refine
    the best rate within the latency limits, and one run repeats it. One engine serves all runs.

    Each run is a LoadGen run with new prompts. It is not eligible for submission. The command writes bench.json,
    points.csv and report.html. After an interruption, the same command continues the bench.

    Exit codes: 0 a rate is within the limits, or no limits apply; 1 no rate is within the limits; 2 bad input; 3
    refused to start, or limits not checked; 4 a run failed; 130 interrupted.
    """
    from scenarios.bench.load import load_bench
    from scenarios.bench.run_bench import run_bench
    from scenarios.served_commands import SERVER_LOG, served_values, server_of_runs
    from scenarios.terminal import Terminal

    with all_mistakes(ctx):
        bench_values = given_values({name: parsed.pop(name) for name in BenchOptions.model_fields})
        foreign_options = {name: value for name in (*REFUSED, *IGNORED) if (value := parsed.pop(name)) is not None}
        runs = given_values(parsed)
        serve = runs.get("serve", ())
        if len(serve) == 1 and "api_server" not in runs:
            runs = {**runs, **served_values(serve[0]), **{name: runs[name] for name in ("model_path",) if name in runs}}
        plan = load_bench(ctx.meta[_WORDS], targets, bench_values, runs, foreign_options)
    with contextlib.ExitStack() as at_the_end:
        if len(serve) == 1 and not dry_run:  # one server for all runs, which is then measured like a running server
            bench_values["metadata"] = [*bench_values.get("metadata", ()), f"serve={serve[0]}"]
            bench_values.setdefault("output_log_dir", str(plan.folder))
            timeout_s = make_config({**plan.values, "scenario": "Offline"}).engine_start_timeout_s
            runs = at_the_end.enter_context(server_of_runs(runs, plan.folder / SERVER_LOG, timeout_s))
            plan = load_bench(ctx.meta[_WORDS], targets, bench_values, runs, foreign_options)
        code = run_bench(plan, Terminal(), restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=plan.folder)
    if dry_run:
        command_output.put(plan=[asdict(step) for step in plan.steps])
    else:
        command_output.put_file("bench", plan.folder / BENCH_FILE)
    return code
