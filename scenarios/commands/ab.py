"""The `ab` command."""

from dataclasses import asdict
from typing import Any

import click

from runs.ab.ab_record import AB_FILE
from runs.errors import ExitCode
from scenarios.ab.ab_options import OF_BENCH, AbOptions
from scenarios.bench.options import NOT_FOR_BENCHES, BenchOptions
from scenarios.command_line import command_output
from scenarios.command_line.command import Command, all_mistakes
from scenarios.command_line.schema_options import dry_run_option, given_values, options_of, words_without_secrets
from scenarios.launch.run_config import RunConfig
from scenarios.spellings import bench_spellings

EXAMPLES = (
    "compare two running servers: ab http://localhost:8000 http://localhost:8001 --model-path MODEL",
    'compare two commands: ab --serve "vllm serve MODEL" --serve "vllm serve MODEL --max-num-seqs 64"',
    "compare two configurations of an engine: ab a.yaml b.yaml",
    "fail a CI job if B is slower: ab URL_A URL_B --rates 8 --fail-if-slower 3%",
)

_WORDS = "words"  # key in click's context for the words of the command line
_NOT_OF_BENCH = [name for name in BenchOptions.model_fields if name not in OF_BENCH]
_NOT_OF_RUNS = NOT_FOR_BENCHES | {"serve", "api_server"}


class _AbCommand(Command):
    """A command that keeps the words of its command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = ["ab", *words_without_secrets(args)]
        return super().parse_args(ctx, args)


@click.command(
    cls=_AbCommand,
    collects_mistakes=True,
    examples=EXAMPLES,
    shown=(*("--rates", "--concurrency", "--precision", "--max-time", "--fail-if-slower", "--serve", "--dry-run"),),
    params=[
        click.Argument(["targets"], nargs=-1, metavar="[A B...]"),
        *options_of(AbOptions),
        *options_of(BenchOptions, _NOT_OF_BENCH, spellings=bench_spellings()),
        dry_run_option(),
        click.Option(
            ["--restart-changed"],
            is_flag=True,
            help="If DIR contains a comparison with another command, move its runs to discarded/ and start again.",
        ),
        *options_of(RunConfig, _NOT_OF_RUNS, spellings=bench_spellings()),
    ],
)
@click.pass_context
def ab(
    ctx: click.Context, /, targets: tuple[str, ...], dry_run: bool, restart_changed: bool, **parsed: Any
) -> ExitCode:
    """Measure which of two systems is faster, and by how much, with intervals.

    A and B are URLs of running servers, YAML files with options of `run`, or models. With --serve, the command starts
    and stops the servers. The first system is the base; each further system is compared with it.

    Running servers are measured at the same time: each query of LoadGen goes to one of them, and its twin with the same
    prompt goes to the other one. Other systems take turns, in the order A B B A. Each line states a change, its 95%
    interval and a verdict: faster, slower, equal within the precision, or undecided. The measurement stops at
    --precision or at --max-time. The intervals hold although the measurement may stop at any block.

    The command writes ab.json and ab.html. After an interruption, the same command continues. The runs are not eligible
    for submission.

    Exit codes: 0 no quantity is worse than --fail-if-slower allows; 1 a quantity is worse; 2 bad input; 3 refused to
    start, not comparable, or undecided with --fail-if-slower; 4 a run failed; 130 interrupted.
    """
    from scenarios.ab.load_ab import load_ab
    from scenarios.ab.run_ab import run_ab
    from scenarios.terminal import Terminal

    with all_mistakes(ctx):
        ab_values = given_values({name: parsed.pop(name) for name in AbOptions.model_fields})
        bench_values = given_values({name: parsed.pop(name) for name in OF_BENCH})
        plan = load_ab(ctx.meta[_WORDS], targets, ab_values, bench_values, given_values(parsed))
    code = run_ab(plan, Terminal(), restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=plan.folder)
    if dry_run:
        command_output.put(plan=[asdict(step) for step in plan.steps])
    else:
        command_output.put_file("ab", plan.folder / AB_FILE)
    return code
