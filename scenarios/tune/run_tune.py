"""The search for target_qps: an estimate, probes, a full run that confirms the rate, and a user.conf with the rate.

With --search, the search for the scheduling options comes first (option_search.py); the probes use the best options.

Every step is a run of the official LoadGen with the settings of the full run and LoadGen's verdict. The journal alone
decides the next rate (scenarios/tune/rates.py), so that an interrupted tuning continues.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from rich.console import Console

from runs.benchmark import LOADGEN_SCENARIO
from runs.errors import ExitCode, InputError, SetupError
from runs.files.writing import remove_temporary, write_atomic, write_json
from runs.harness import PROGRAM
from runs.numbers.result import read_result
from runs.record.layout import RunDir
from runs.record.planned_fingerprint import machine_now, planned_fingerprint
from runs.wording import four_digits
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.parent import engine_keeper
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from scenarios.live.waiting import waiting
from scenarios.resumed import CHANGED_FIX, model_hashes, resumable
from scenarios.tune.journal import Configuration, Estimate, Journal, SchedulingOptions, TuneRun, TuneStep, tried_of
from scenarios.tune.option_space import applied
from scenarios.tune.rates import BACK_OFF, Bracket, cheaper, next_rate, rounded
from scenarios.tune.tune_config import Tune
from scenarios.tune.tune_runs import TuneRuns, outcome

OFFLINE_RUNS = 3  # maximum number of confirmation runs, each with more samples than the previous run
# Offline: LoadGen issues a tenth more samples than the rate needs. Increase of the rate after a run that was too short:
OFFLINE_MORE = 1.05


def run_tune(tune: Tune, console: Console, *, restart_changed: bool, dry_run: bool = False) -> ExitCode:
    """Find the highest valid rate, confirm it with a full run, and write it to the files of the tuning.

    Args:
        restart_changed: Set the steps of another configuration aside and start again.
        dry_run: Check everything and show the plan; start and write nothing.

    Returns:
        OK if a rate was confirmed, or else NEGATIVE.

    Raises:
        InputError: If the journal's steps have another configuration.
        SetupError: If no run can be VALID with these settings, or another tuning holds the directory.
        HarnessError: If a run failed.
        Interrupted: If a signal ends the tuning; the same command continues it.
    """
    with waiting(console, "checking"):
        # Check before the directory is created, so that a refused tuning leaves no files.
        run = prepare(
            make_config({**tune.values, "output_log_dir": tune.place.run("probe", 1)}),
            partial(say, console),
            rate_follows=True,
        )
        identity = planned_fingerprint(run.plan, run.user_conf, run.run_dir, model_hashes(run), machine_now())
        if run.plan.replicas is not None:
            tune = tune.with_replicas(len(run.plan.replicas.places))
    runs = TuneRuns(tune, run, Journal(tune.place.journal), console)
    if runs.setting("performance_issue_unique"):
        raise InputError(
            "user.conf: performance_issue_unique: not supported, because it fixes the number of queries",
            "remove this line from user.conf",
        )
    if dry_run:
        return _show_plan(runs)
    identity.pop("user.conf target_qps", None)  # the result of the tuning
    if LOADGEN_SCENARIO[tune.config.scenario] == "Server":
        identity["tune resolution"] = f"{tune.options.resolution:g}"
    if tune.options.offline_qps is not None:
        identity["tune offline_qps"] = f"{tune.options.offline_qps:g}"
    configuration = Configuration(scenario=tune.config.scenario, identity=identity | tune.search_identity)

    def work() -> ExitCode:
        remove_temporary(tune.place.root)
        opened = _opened(runs, configuration, restart_changed)
        with engine_keeper(tune.config, tune.place.root) as keeper:
            return _Run(dataclasses.replace(opened, keeper=keeper)).go()

    return resumable(tune.place.lock, "tuning", runs.say, work)


def _show_plan(runs: TuneRuns) -> ExitCode:
    tune, run, options = runs.tune, runs.prepared, runs.tune.options
    runs.say(f"tuning of {tune.config.scenario}, engine {run.plan.engine}, directory {tune.place.root}")
    offline_qps = options.offline_qps
    estimate = (
        f"at {offline_qps:g} samples/s, as given"
        if offline_qps
        else f"from an Offline run of at most {options.estimate_s:g} s"
    )
    runs.say(f"  first estimate {estimate}")
    if options.search:
        runs.say(f"  search: at most {options.search_trials} trials and {options.search_budget_s:g} s")
    duration_s = runs.min_duration_ms / 1e3
    runs.say(f"  at most {options.max_probes} probes and a confirmation run, at least {duration_s:g} s each")
    for hint in run.hints:
        runs.say(f"  note: {hint}")
    if run.unofficial_reasons:
        runs.say("  not eligible for submission: " + "; ".join(run.unofficial_reasons))
    runs.say("dry run: nothing was started or written")
    return ExitCode.OK


def _opened(runs: TuneRuns, configuration: Configuration, restart_changed: bool) -> TuneRuns:
    """Return the runs with the existing or a new journal of this configuration.

    Raises:
        InputError: If the journal has another configuration; the message names each old and new value.
        SetupError: If files of the same names do not belong to a tuning.
    """
    place, journal = runs.tune.place, Journal(runs.tune.place.journal)
    if changed := journal.changed(configuration):
        lines = "\n".join(f"  {difference}" for difference in changed)
        changes = f"steps in {place.journal} ran with another configuration or on another machine:\n{lines}"
        if not restart_changed:
            raise InputError(changes, CHANGED_FIX)
        aside = set_aside(place.contents(), place.discarded)
        runs.say(f"{changes}\nthe earlier files are now in {aside}")
        journal = Journal(place.journal)
    if journal.configuration is None:
        if contents := place.contents():
            raise SetupError(
                f"{contents[0]} already exists and does not belong to a tuning that can continue",
                "give a new --output-log-dir",
            )
        journal.add(configuration)
    return dataclasses.replace(runs, journal=journal)


class _Run:
    """One execution of the command."""

    def __init__(self, runs: TuneRuns) -> None:
        self._runs = runs
        self._tune, self._place, self._journal = runs.tune, runs.tune.place, runs.journal
        self._options: SchedulingOptions = {}  # best options of the search
        self._search_summary: dict[str, Any] | None = None

    def go(self) -> ExitCode:
        """Execute the remaining steps."""
        estimate = self._estimate()
        self._runs.say(f"Offline rate: {four_digits(estimate.samples_per_second)} samples/s ({estimate.source})")
        confirmed: TuneRun | None = None
        if self._tune.config.scenario == "Offline":
            confirmed = self._confirm_offline(estimate)
        elif self._tune.space is None:
            self._search(estimate, None)
            confirmed = self._confirm()
        else:
            from scenarios.tune.option_search import OptionSearch  # Importing optuna takes a second.

            search = OptionSearch(self._runs, estimate)
            best = search.go()
            self._search_summary = search.summary()
            if best is not None:
                self._options = best.options
                self._search(estimate, best.target_qps)
                confirmed = self._confirm()
        self._write(confirmed)
        return self._close(confirmed)

    # Steps -------------------------------------------------------------------------------------------------------

    def _estimate(self) -> Estimate:
        if self._journal.estimate is not None:
            return self._journal.estimate
        offline_qps = self._tune.options.offline_qps
        estimate = (
            self._runs.estimate_offline()
            if offline_qps is None
            else Estimate(samples_per_second=offline_qps, source="given")
        )
        self._journal.add(estimate)
        return estimate

    def _search(self, estimate: Estimate, start: float | None) -> None:
        """Probe until the bracket is narrow enough or the maximum of probes is reached.

        Args:
            start: First rate, near the best rate.
        """
        options, scenario = self._tune.options, self._tune.config.scenario
        while True:
            tried = tried_of(self._done("probe"))
            rate = next_rate(
                scenario,
                estimate.samples_per_second,
                tried,
                resolution=options.resolution,
                most_probes=options.max_probes,
                start=start,
            )
            if rate is None:
                return
            rate = cheaper(rate, Bracket.of(tried).valid, lambda qps: self._runs.count(qps).expected_s)
            self._runs.run("probe", rate, self._options, f" of at most {options.max_probes}")

    def _confirm(self) -> TuneRun | None:
        """Confirm the highest valid rate, or a lower rate, with a full run; return None without a VALID run."""
        best = self._bracket.valid
        if best is None:
            return None
        rates = [rounded(best * (1 - share)) for share in BACK_OFF]
        return self._full_run(lambda tried: rates[len(tried)] if len(tried) < len(rates) else None)

    def _confirm_offline(self, estimate: Estimate) -> TuneRun | None:
        """Confirm the rate with a full Offline run. In Offline, target_qps only decides the number of samples."""

        def rate(tried: list[TuneRun]) -> float | None:
            if not tried:
                return rounded(estimate.samples_per_second)
            last = tried[-1]
            more = rounded(OFFLINE_MORE * max(last.samples_per_second or 0.0, last.target_qps))
            return more if len(tried) < OFFLINE_RUNS else None

        return self._full_run(rate)

    def _full_run(self, rate_after: Callable[[list[TuneRun]], float | None]) -> TuneRun | None:
        """Start full runs at the rates of `rate_after`, until a run is VALID or the rate is None."""
        while True:
            tried = self._done("confirm")
            if tried and tried[-1].valid:
                return tried[-1]
            rate = rate_after(tried)
            if rate is None:
                return None
            self._runs.run("confirm", rate, self._options)

    def _done(self, step: TuneStep) -> list[TuneRun]:
        """Return the finished runs with the chosen options."""
        return self._journal.runs(step, self._options)

    @property
    def _bracket(self) -> Bracket:
        return Bracket.of(tried_of(self._done("probe")))

    # The outcome -------------------------------------------------------------------------------------------------

    def _write(self, confirmed: TuneRun | None) -> None:
        """Write tune.json, the plot, and the user.conf with the rate."""
        run, place = self._runs.prepared, self._place
        bracket = self._bracket
        rate = None if confirmed is None else confirmed.target_qps
        tried = self._journal.summary()
        if run.plan.loadgen_scenario == "Server":
            from compliance.report.chart_svg import svg_file  # Importing matplotlib takes a moment.
            from compliance.report.tune_charts import tune_charts

            title = f"{run.plan.scenario}, {run.plan.loadgen_key}"
            write_atomic(place.plot, svg_file(title, [], tune_charts({**tried, "target_qps": rate})))
        if confirmed is None:
            place.user_conf.unlink(missing_ok=True)
            place.best.unlink(missing_ok=True)
        else:
            # The user.conf of the confirmation run:
            write_atomic(place.user_conf, RunDir(place.root / confirmed.directory).user_conf.read_bytes())
            write_atomic(place.best, _best_yaml(self._tune, self._options, rate))
        write_json(
            place.record,
            {
                "schema_version": 1,
                "scenario": run.plan.scenario,
                "loadgen_key": run.plan.loadgen_key,
                "official": not run.unofficial_reasons,
                "unofficial_reasons": run.unofficial_reasons,
                "target_qps": rate,
                "confirmed_by": None if confirmed is None else confirmed.directory,
                "highest_valid_probe": bracket.valid,
                "lowest_invalid_probe_above": bracket.invalid,
                **({} if self._search_summary is None else {"search": self._search_summary}),
                **tried,
            },
        )

    def _close(self, confirmed: TuneRun | None) -> ExitCode:
        place, tell = self._place, self._runs.say
        tell("")
        for run in [*self._done("probe"), *self._done("confirm")]:
            tell(f"{run.step:<8}{run.number}  {run.target_qps:>9g} samples/s  {outcome(run)}")
        if confirmed is None:
            tell(f"no rate was confirmed; {place.record} and the run directories in {place.root} show why")
            for text in _never_met(self._done("probe")):
                tell(f"  {text}")
            return ExitCode.NEGATIVE
        directory = place.root / confirmed.directory
        verdict = read_result(RunDir(directory).result).verdict
        tell(f"{self._tune.config.scenario} target_qps {confirmed.target_qps:g}: {verdict} in {directory}")
        bracket = self._bracket
        if bracket.valid is not None:
            above = (
                f"lowest invalid rate above it {bracket.invalid:g}"
                if bracket.invalid is not None
                else "no higher rate was tried, because the maximum number of probes was reached"
            )
            tell(f"  highest valid probe {bracket.valid:g}; {above}")
        plot = f", {place.plot.name}" if place.plot.exists() else ""
        tell(f"  written to {place.root}: {place.user_conf.name}, {place.record.name}{plot}")
        tell(f"  {PROGRAM} run --config {quote(str(place.best))}")
        tell(f"  in the file of a campaign: `rates_from: [{place.root}]`")
        return ExitCode.OK


def _never_met(probes: list[TuneRun]) -> Iterator[str]:
    """Yield the limits that every response at the lowest rate exceeded."""
    for probe in sorted(probes, key=lambda tried_probe: tried_probe.target_qps)[:1]:
        for name in ("ttft", "tpot"):
            if probe.queries_answered and getattr(probe, f"late_{name}") == probe.queries_answered:
                limit = f"{name.upper()} limit of {getattr(probe, f'{name}_limit_ms'):g} ms"
                yield f"every response at {probe.target_qps:g} queries/s exceeded the {limit}; use a faster system"


def _best_yaml(tune: Tune, options: SchedulingOptions, rate: float | None) -> str:
    """Return the options of `run` for the rate, with paths that do not depend on the working directory."""
    values = applied(tune.values, options) | {"user_conf": tune.place.user_conf}
    content = make_config(values).model_dump(mode="json", include=set(values))
    for name in ("user_conf", "dataset_path", "model_path", "signing_key"):
        if content.get(name) and Path(content[name]).exists():
            content[name] = str(Path(content[name]).resolve())
    head = f"# {tune.config.scenario} at {rate:g} queries/s, confirmed by `{PROGRAM} tune`. Use:\n"
    return f"{head}#   {PROGRAM} run --config {tune.place.best.name}\n" + yaml.safe_dump(content, sort_keys=False)
