"""The output of a run: up to three lines before its start, and a closing summary of about ten lines."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from runs.loadgen.early_stopping import PERCENTILE
from runs.numbers.numbers import rates_by_unit, shows, supported
from runs.numbers.result import RunNumbers
from runs.record.engines.server_notes import doubtful_tokens, stated_verdict
from runs.record.manifest import Manifest
from runs.rounds import TokenLimits
from runs.wording import counted, duration, limit_text, milliseconds, precise
from scenarios.console import say
from scenarios.launch.forecast import forecast
from scenarios.launch.next_step import next_steps
from scenarios.launch.plan import PreparedRun
from scenarios.launch.run_config import OWN_DATA_CONF
from scenarios.launch.trial import LONGEST_S, sentence, slower_than_measured
from scenarios.verbosity import is_verbose

if TYPE_CHECKING:
    from compliance.accuracy.accuracy_verdict import AccuracyVerdict

_COLUMNS = ("mean", "p50", "p90", "p99")
_FEW = ("mean", "p50", "p90", "max")  # statistics of a run with too few samples for p99


def announce(run: PreparedRun, console: Console) -> None:
    """Print the run, its directory and its eligibility for submission; with --verbose, the whole plan."""
    plan, expected = run.plan, forecast(run)
    model = run.model.folder.name if run.model else plan.model_path
    size = counted(plan.sample_count, "row")
    if expected:
        issued = counted(expected.count.samples, "sample")
        size = issued + (f" of {size}" if expected.count.samples != plan.sample_count else "")
        if run.conf_path != OWN_DATA_CONF or "target_qps" in run.asked:  # Otherwise, the rate is unknown.
            size += f", about {duration(expected.count.expected_s)} after the engine's start"
    elif plan.trial and run.bundled:
        size = f"a trial of about {LONGEST_S:.0f} s after the warm-up"
    elif plan.trial:
        size += f", a trial of at most about {LONGEST_S:.0f} s after the warm-up"
    what = f"{plan.scenario} {plan.mode} of {model} ({plan.engine}): {size}"
    say(console, f"{what}; run directory {run.run_dir.root}")
    for hint in run.notes if is_verbose() else run.hints:
        say(console, f"  note: {hint}")
    for reason in expected.invalid_because if expected else ():
        say(console, f"  will be INVALID: {reason}")
    if is_verbose():
        if expected is not None:
            say(console, f"  {expected.count.samples:,} samples: {expected.count.why}")
        for reason in run.unofficial_reasons:
            say(console, f"  not eligible for submission: {reason}")
    elif run.is_trial:
        say(console, f"  not eligible for submission: trial ({_limits_of_trial(run)})")
    elif run.unofficial_reasons:
        more = len(run.unofficial_reasons) - 1
        rest = f" (and {counted(more, 'more reason')}: --verbose)" if more else ""
        say(console, f"  not eligible for submission: {run.unofficial_reasons[0]}{rest}")


def _limits_of_trial(run: PreparedRun) -> str:
    """Return the origin of a trial's load, and its limits together with the official limits."""
    limits = run.benchmark.limits
    if run.plan.loadgen_scenario != "Server" or limits is None:
        return "the engine's speed during warm-up decides the number of queries"
    return (
        "the engine's speed during warm-up decides the rate; limits: 1 hour at p50; official limits, not applied: "
        f"TTFT {limits.ttft_ms:,} ms and TPOT {limits.tpot_ms:,} ms at p99"
    )


def closing_summary(
    console: Console,
    run: PreparedRun,
    manifest: Manifest,
    result: RunNumbers,
    accuracy: "AccuracyVerdict | None",
    seal_sha256: str,
    page: str,
) -> None:
    """Print the result of a finished run; the last line names its page or the reason why the page is missing."""

    line = partial(say, console)
    plan = run.plan
    line("")
    if accuracy is None:
        if result.load and result.load.warning:
            line(result.load.warning)
        differs = f" (LoadGen itself: {result.loadgen_verdict})" if result.loadgen_verdict != result.verdict else ""
        doubt = doubtful_tokens(manifest.observed.clients)
        verdict = stated_verdict(result.verdict, manifest.observed) + ("" if doubt else differs)
        issued = result.counts.samples_expected or result.counts.samples
        size = f", {counted(issued, 'sample')}" if issued else ""
        line(f"{plan.scenario} performance: {verdict}{size}")
        if doubt:
            line(f"  why: {doubt}: check that the server has the model of --model-path")
        for text in result_lines(result, run.benchmark.limits):
            line(f"  {text}")
    else:
        from compliance.accuracy.accuracy_files import ACCURACY_OUTCOMES
        from compliance.accuracy.accuracy_verdict import score_line

        line(f"{plan.scenario} accuracy: {ACCURACY_OUTCOMES[accuracy.passed]} ({accuracy.label})")
        for check in accuracy.findings:
            line(f"  {score_line(check)}")
        if not accuracy.findings:
            line(f"  {accuracy.metric.shown(accuracy.scores)}")
    for reason in result.reasons:
        line(f"  {'why' if result.verdict == 'INVALID' else 'note'}: {reason}")
    if plan.audit:
        line("  note: the audit chooses the queries of this run; the verdict of the audit follows from all its runs")
    line(
        "  eligible for submission: "
        f"{'no: ' + run.unofficial_reasons[0] if run.unofficial_reasons else 'no reason against it found'}"
    )
    if len(run.unofficial_reasons) > 1:
        line(f"            and {len(run.unofficial_reasons) - 1} more reasons in manifest.json")
    if run.is_trial:
        line(f"  trial: {sentence(manifest)}")
        if note := slower_than_measured(result.duration_ns, manifest.observed.contention):
            line(f"  note: {note}")
        for text in next_steps(manifest, run.benchmark, result) if result.verdict == "VALID" else ():
            line(f"  {text}")
    files = [run.run_dir.summary.name, run.run_dir.detail.name, run.run_dir.result.name, run.run_dir.requests.name]
    if accuracy is not None:
        files[2:3] = [run.run_dir.accuracy_log.name, run.run_dir.accuracy_text.name, run.run_dir.accuracy_json.name]
    line(f"  {run.run_dir.seal.name} {seal_sha256}")
    line(f"  written to {run.run_dir.root}: {', '.join(files)}")
    line(f"  {page}")


def result_lines(result: RunNumbers, official: TokenLimits | None) -> list[str]:
    """Return LoadGen's numbers of a performance run: rates, then a table of latencies with their limits."""
    reported = result.reported
    if reported is None:
        return []
    rates = [f"{precise(value)} {unit}" for unit, value in rates_by_unit(reported.flat()).items()]
    lines = [str(result.load)] if result.load else []
    lines += ["  ".join(rates)] if rates else []
    columns = _columns(result)
    rows = [
        [label, *(milliseconds(getattr(values, name) / 1e6) for name in columns)]
        for label, values in (("TTFT", reported.ttft_ns), ("TPOT", reported.tpot_ns), ("latency", reported.latency_ns))
        if values is not None
    ]
    if rows:
        table = [["ms", *columns], *rows]
        for header, cells in _limits(result, official):
            width = max(11, len(header) + 3)
            table[0].append(f"{header:>{width}}")
            for row in table[1:]:
                row.append(f"{cells.get(row[0], ''):>{width}}")
        lines += [f"{row[0]:<8}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in table]
    return [line.rstrip() for line in lines]


def _columns(result: RunNumbers) -> tuple[str, ...]:
    """Return the statistics that the number of samples supports."""
    count = result.counts.samples or result.counts.samples_expected or 0
    return supported(count, *(_COLUMNS if shows("p99", count) else _FEW))


def _limits(result: RunNumbers, official: TokenLimits | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the columns of limits by row label: effective limits, and official limits if they differ."""
    in_force = result.in_force
    if not in_force.ttft_limit_ns or not in_force.tpot_limit_ns:
        return
    used = (in_force.ttft_limit_ns / 1e6, in_force.tpot_limit_ns / 1e6)
    share = result.early_stopping.percentile if result.early_stopping else PERCENTILE["Server"]
    yield f"p{100 * share:g} limit", dict(zip(("TTFT", "TPOT"), map(limit_text, used), strict=True))
    if official is not None and (*used, share) != (official.ttft_ms, official.tpot_ms, PERCENTILE["Server"]):
        yield "official p99", {"TTFT": milliseconds(official.ttft_ms), "TPOT": milliseconds(official.tpot_ms)}
