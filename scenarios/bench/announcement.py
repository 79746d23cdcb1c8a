"""The console output of a bench before its start."""

from rich.console import Console

from runs.wording import counted, duration
from scenarios.bench.bench_plan import Bench
from scenarios.bench.ladder import LadderPlan
from scenarios.console import say
from scenarios.launch.plan import PreparedRun

OVERHEAD_S = 12.0  # time of a run's start, checks and page, for the forecast
UNOFFICIAL = "not eligible for submission: short runs with their own settings; one engine serves all runs"


def announce_bench(bench: Bench, prepared: PreparedRun, console: Console) -> None:
    """Print what the bench measures, its limits and notes."""
    data = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in bench.prompts.facts().items())
    is_closed = bench.steps[0].kind == "concurrency"
    load = "closed loop (latencies start when the harness sends a query)" if is_closed else bench.options.scenario
    say(console, f"bench {bench.label}: {load}, {bench.target} ({prepared.plan.engine}); {data}")
    say(console, f"  {UNOFFICIAL}")
    say(console, f"  limits: {bench.limits or 'none'}; directory {bench.folder}")
    for note in [*bench.notes, *prepared.hints]:
        say(console, f"  note: {note}")


def show_ladder(plan: LadderPlan, console: Console) -> None:
    """Print the planned loads and the duration of a bench (`--dry-run`)."""
    most = plan.repeats * plan.max_runs
    fewest = most if plan.is_adaptive else plan.repeats * len(plan.steps)
    if plan.queries:
        minimum = f"at least {plan.queries:,} queries in each run, and more if the duration requires it"
        say(console, f"  {minimum} (`vllm bench serve` sends exactly this number)")
    least_s = fewest * (plan.duration_s + OVERHEAD_S)
    most_s = most * (plan.duration_s + OVERHEAD_S) + plan.repeats * 2 * (plan.longest_s - plan.duration_s)
    if plan.warm_up_qps is not None:
        say(console, f"  warm-up     {plan.warm_up_qps:g} queries/s, at most {duration(plan.duration_s)}")
    for step in plan.steps:
        at = f"{step.concurrency} open queries" if step.concurrency else "all queries at once"
        if step.share is not None:
            at = f"{100 * step.share:g}% of the Offline rate"
        elif step.qps is not None:
            at = f"{step.qps:g} queries/s"
        say(console, f"  {step.kind:<12}{at}, {duration(plan.duration_s)}")
    if plan.is_adaptive:
        say(console, "  server      at most two rates at the boundary, and the best rate again")
    say(console, f"at most {counted(most, 'run')}, {duration(least_s)} to {duration(most_s)} after the engine's start")
    say(console, "dry run: nothing was started or written")
