"""The search over scheduling options. The search for the rate follows.

An optuna study in the tuning's directory proposes the settings, and rates.py chooses the rates from the probes so far.
The first trial finds the highest valid rate of the given settings (the defaults). Every later trial starts a little
above the best rate so far. It ends with an INVALID first probe, which is stopped early. After a VALID probe, the best
settings are probed at the same rate, until an interval shows which settings are better (decisions.py). Better settings
continue upwards. At the end, the search resets each option of the best settings alone and measures the difference,
which is the option's gain. It removes an option if the best settings are not shown to be better with it. Each remaining
option must pass its sign-off (signed_options.py).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from runs.errors import InputError
from runs.files.reading import MAX_LOG_BYTES, read_whole
from runs.files.writing import write_atomic
from runs.loadgen.conf_lines import encode_conf, with_setting
from runs.processes.interrupts import critical
from runs.wording import counted, duration
from scenarios.tune.decisions import is_better, next_of_pair, recommendable, smallest_gain
from scenarios.tune.journal import (
    Estimate,
    SchedulingOptions,
    TunePhase,
    TuneRun,
    best_probe,
    records,
    tried_of,
    with_options,
)
from scenarios.tune.option_space import Space, shown
from scenarios.tune.rates import MAX_PROBES, Bracket, Tried, next_rate, rounded
from scenarios.tune.signed_options import SignedOptions
from scenarios.tune.tune_runs import TuneRuns

RESOLUTION = 0.03  # smallest searched difference, as a share of a trial's rate
WORTH_PROBES = 4  # maximum number of probes for the gain of one option
WORTH_SHARE = 0.3  # share of the time reserved for the gains of the options
DRAWS = 32  # attempts of the sampler to draw new settings; afterwards, the first untried settings are used
# LoadGen issues whole sets of samples, and small sets let a run end on time. A set has enough queries for early
# stopping to allow a few late queries, so that one delay does not decide the verdict.
SHORT_SET_SIZE = 256
SHORT_MIN_QUERIES = 1_024
SAFE_SHARE = 0.95  # share of the Offline rate; steps with prompts and responses together are slower
_TITLES = {"defaults": "given settings", "worth": "gain of an option", "base": "best settings, for a decision"}


class NextProbe(NamedTuple):
    """A probe to run."""

    trial: int  # number in optuna's study; 0: the given settings
    phase: TunePhase
    options: SchedulingOptions
    target_qps: float


def open_study(file: Path | None) -> optuna.Study:
    """Open or create the study, in a file or in memory. The caller must have the lock of the tuning.

    Raises:
        InputError: If the file is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    try:
        if file is not None:
            if file.exists():
                content = read_whole(file, "make the file readable", max_bytes=MAX_LOG_BYTES)
                # Otherwise, optuna would append to an incomplete line.
                write_atomic(file, content[: content.rfind(b"\n") + 1])
            file.with_name(f"{file.name}.lock").unlink(missing_ok=True)  # optuna's lock of a killed process
            storage = JournalStorage(JournalFileBackend(str(file), JournalFileOpenLock(str(file))))
        study = optuna.create_study(storage=storage, study_name="search", direction="maximize", load_if_exists=True)
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=0)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(
            f"{file}: not an optuna study ({error})", "restore the file, or give another --output-log-dir"
        ) from error
    return study


class OptionTrials:
    """The choice of the next settings and their rate.

    Args:
        offline_qps: Offline rate in samples/s.
        most_trials: Maximum number of settings besides the defaults.
        budget_s: Time for all probes.
    """

    def __init__(
        self, space: Space, study: optuna.Study, scenario: str, offline_qps: float, most_trials: int, budget_s: float
    ) -> None:
        self._space, self._study, self._scenario, self._offline_qps = space, study, scenario, offline_qps
        self._most_trials, self._budget_s = most_trials, budget_s

    @property
    def count(self) -> int:
        """Number of tried settings, without the defaults and without the trials for the gain of an option."""
        return sum(_phase(trial) == "trial" for trial in self._trials())

    def next_probe(self, probes: Sequence[TuneRun], spent_s: float) -> NextProbe | None:
        """Return the next probe; None if the search is over.

        Args:
            probes: All complete probes so far, in their order.
            spent_s: Time of these probes.
        """
        while spent_s < self._budget_s:
            running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            trial = running[0] if running else self._begin(probes, spent_s)
            if trial is None:
                return None
            probe = self._next_of_trial(trial, self._options(trial), probes)
            if probe is not None:
                return probe
            self._study.tell(trial.number, _score([probe for probe in probes if probe.options == self._options(trial)]))
        return None

    def _begin(self, probes: Sequence[TuneRun], spent_s: float) -> Trial | None:
        """Start a trial of the defaults, of new settings, or of the best settings without one option."""
        tried = [self._options(trial) for trial in self._trials()]
        best = best_probe(recommendable(probes))
        if not tried:
            return self._ask({}, "defaults")
        if best is None:
            return None
        time_s = self._budget_s * (1 - WORTH_SHARE if best.options else 1)
        if self.count < self._most_trials and spent_s < time_s and (new := self._new(tried, best.options)):
            return new
        put_back = [self._options(trial) for trial in self._trials() if _phase(trial) == "worth"]
        for name in best.options:
            if (without := self._space.without(name, best.options)) not in put_back:
                return self._ask(without, "worth")
        return None

    def _new(self, tried: Sequence[SchedulingOptions], best: SchedulingOptions) -> Trial | None:
        """Start a trial of new settings; return None if all settings were tried.

        The first trials change each option of the best settings alone, which shows the effective options. Then the
        sampler chooses.
        """
        untried = next((combination for combination in self._space.combinations() if combination not in tried), None)
        if untried is None:
            return None
        for name in self._space.values:
            if not any(name in options for options in tried):
                options = self._space.alone(name, best)
                if options not in tried:
                    return self._ask(options, "trial")
        for _ in range(DRAWS):
            trial = self._ask()
            if self._options(trial) not in tried:
                return trial
            self._study.tell(trial.number, state=TrialState.FAIL)  # The sampler ignores failed trials.
        return self._ask(untried, "trial")

    def _ask(self, options: SchedulingOptions | None = None, phase: TunePhase = "trial") -> Trial:
        """Start a trial of these settings, or of settings that the sampler chooses."""
        if options is not None:
            relevant = {name: options.get(name) for name in self._space.values if self._space.matters(name, options)}
            self._study.enqueue_trial(relevant, user_attrs={"phase": phase})
        trial = self._study.ask()
        chosen: SchedulingOptions = {}
        for name, values in self._space.values.items():
            if self._space.matters(name, chosen):
                chosen[name] = trial.suggest_categorical(name, (None, *values))
        return trial

    def _next_of_trial(
        self, trial: Trial | FrozenTrial, options: SchedulingOptions, probes: Sequence[TuneRun]
    ) -> NextProbe | None:
        """Return the next probe of a trial; None if the trial is over."""
        phase, number = _phase(trial), trial.number
        own = [probe for probe in probes if probe.trial == number and probe.options == options]
        if any(probe.verdict is None for probe in own):  # The engine refuses these settings.
            return None
        best = best_probe(recommendable([probe for probe in probes if probe.trial != number]))
        if phase == "defaults" or best is None:
            rate = self._next_rate(own, MAX_PROBES, None)
            return None if rate is None else NextProbe(number, phase, options, rate)
        best = best_probe(with_options(probes, best.options)) or best
        side, rate = options, None
        if phase == "trial" and is_better(probes, options, best.options):
            rate = self._next_rate(own, MAX_PROBES, own[0].target_qps)
        elif phase == "trial":
            rate = rounded(best.target_qps * (1 + RESOLUTION))
            at_rate = [probe.valid for probe in own if probe.target_qps == rate]
            if at_rate:
                pair = next_of_pair(probes, options, best.options, rate) if any(at_rate) else None
                side, rate = (options, None) if pair is None else (pair, rate)
        elif not any(probe.valid and probe.target_qps >= best.target_qps for probe in own):
            # If the settings without the option are VALID at the best rate, the option is unnecessary.
            pair = next_of_pair(probes, options, best.options, best.target_qps) if own else options
            if pair is not None:
                side, rate = pair, best.target_qps
            else:
                tried = with_options(probes, options)
                most = len(_rates(tried)) + WORTH_PROBES - len(_rates(own))
                rate = self._next_rate(tried, most, best.target_qps)
        if rate is None:
            return None
        return NextProbe(number, phase if side == options else "base", side, rate)

    def _next_rate(self, tried: Sequence[TuneRun], most_probes: int, start: float | None) -> float | None:
        """Return the next rate of settings; None if their highest VALID rate is known to within the resolution."""
        rates = _rates(tried)
        rate = next_rate(
            self._scenario, self._offline_qps, rates, resolution=RESOLUTION, most_probes=most_probes, start=start
        )
        return None if rate in [tried_rate.target_qps for tried_rate in rates] else rate

    def _trials(self) -> list[FrozenTrial]:
        """Return all trials; settings that were drawn repeatedly count once."""
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.COMPLETE))

    def _options(self, trial: Trial | FrozenTrial) -> SchedulingOptions:
        return self._space.reduced(trial.params)


def worth_of(space: Space, name: str, probes: Sequence[TuneRun], best: TuneRun) -> dict[str, Any]:
    """Return the gain of one option of the best settings, for tune.json: the rates without the option, and the best
    rate relative to them."""
    without = space.without(name, best.options)
    tried = with_options(probes, without)
    bracket = Bracket.of(tried_of(tried))
    at_least, at_most = (
        None if rate is None else max(0.0, best.target_qps / rate - 1) for rate in (bracket.invalid, bracket.valid)
    )
    return {
        "option": name,
        "value": best.options[name],
        "best_target_qps": best.target_qps,
        "without": {"options": without, "valid": bracket.valid, "invalid": bracket.invalid},
        "probes": len(tried),
        "worth_at_least": at_least,
        "worth_at_most": at_most,
    }


def _score(probes: Sequence[TuneRun]) -> float:
    """Return the score of settings: the highest VALID rate, or the INVALID rate minus the share of unfinished queries,
    so that a later failure at the same rate scores higher."""
    valid = [probe.target_qps for probe in probes if probe.valid]
    answered = [probe.queries_answered / probe.queries_planned if probe.verdict else 0.0 for probe in probes]
    return max(valid or [probe.target_qps * min(1.0, share) for probe, share in zip(probes, answered, strict=True)])


def _rates(probes: Sequence[TuneRun]) -> list[Tried]:
    """Return each probed rate. A rate is VALID if one of its probes is."""
    verdicts: dict[float, bool] = {}
    for probe in probes:
        verdicts[probe.target_qps] = verdicts.get(probe.target_qps, False) or probe.valid
    return [Tried(rate, valid) for rate, valid in verdicts.items()]


def _phase(trial: Trial | FrozenTrial) -> TunePhase:
    phase: TunePhase = trial.user_attrs.get("phase", "trial")
    return phase


def visible_gain(probes: Sequence[TuneRun]) -> str:
    """Return which gain of an option the search could not see."""
    gain = smallest_gain(probes)
    if gain is None:
        return f"a gain below {RESOLUTION:.0%} was not visible; more if equal runs differ, but no run was repeated"
    return f"a gain below {max(gain, RESOLUTION):.1%} was not visible, because equal runs differ"


class OptionSearch:
    """The search of one tuning.

    Args:
        runs: Runs with the settings of the full run.
        estimate: Full rate of the engine.

    Raises:
        InputError: If optuna's file is damaged or does not match the journal.
    """

    def __init__(self, runs: TuneRuns, estimate: Estimate) -> None:
        assert runs.tune.space is not None
        options, place, rate = runs.tune.options, runs.tune.place, estimate.samples_per_second
        self._space = runs.tune.space
        if "max_num_seqs" in self._space.values and "max_num_seqs" not in options.search_values:
            self._space = self._space.with_queries_in_time(queries_in_time(rate, runs))
        self._runs = shortened_runs(runs)
        self._short = self._runs is not runs
        with critical():  # optuna locks the file with a second file.
            study = open_study(place.study)
        if any((run.trial or 0) >= len(study.trials) for run in runs.journal.runs("search")):
            raise InputError(
                f"{place.study}: trials of the probes in {place.journal} are missing",
                "restore the file, or give another --output-log-dir",
            )
        self._signed = SignedOptions(self._runs, self._space)
        self._best: TuneRun | None = None  # best probe whose options sign off
        scenario = runs.tune.config.scenario
        self._trials = OptionTrials(self._space, study, scenario, rate, options.search_trials, options.search_budget_s)

    def go(self) -> TuneRun | None:
        """Run the remaining probes, and return the best probe whose options sign off.

        Returns:
            None if no rate was VALID with the defaults.

        Raises:
            HarnessError: If a run with the defaults failed.
            Interrupted: If a signal ends the search.
        """
        runs, options = self._runs, self._runs.tune.options
        runs.say(
            f"\nsearch: {', '.join(self._space.values)}; {self._space.count():,} possible settings, at most "
            f"{options.search_trials} trials, at most {duration(options.search_budget_s)}"
        )
        # The next probe may have other settings than an interrupted run.
        runs.set_unfinished_aside(runs.tune.place.run("search", runs.journal.next_number("search")))
        while (probe := self._next_probe()) is not None:
            left_s = options.search_budget_s - self.spent_s
            title = _TITLES.get(probe.phase, f"trial {self._trials.count}")
            runs.run(
                "search",
                probe.target_qps,
                probe.options,
                f": {title} ({shown(probe.options)}), {duration(left_s)} left",
                time_s=left_s,
                may_fail=probe.phase != "defaults",
                trial=probe.trial,
                phase=probe.phase,
            )
        best = best_probe(recommendable(self._probes))
        result = "no rate was VALID with the given options"
        if best is not None:
            result = f"{shown(best.options)}: VALID at {best.target_qps:g} queries/s"
        counts = f"{counted(len(self._probes), 'probe')}, {counted(self._trials.count, 'trial')}"
        runs.say(f"\nsearch: {result} ({counts}, {duration(self.spent_s)})")
        for worth in self._worths(best):
            low, high = (
                "?" if worth[key] is None else f"{worth[key]:.1%}" for key in ("worth_at_least", "worth_at_most")
            )
            probes = counted(worth["probes"], "probe")
            runs.say(f"  {worth['option']}={worth['value']}: gain {low} to {high} ({probes} without the option)")
        if best is not None:
            runs.say(f"  {visible_gain(self._probes)}")
        self._best = self._signed.accepted(self._probes)
        return self._best

    def _next_probe(self) -> NextProbe | None:
        with critical():
            return self._trials.next_probe(self._probes, self.spent_s)

    def _worths(self, best: TuneRun | None) -> list[dict[str, Any]]:
        return [] if best is None else [worth_of(self._space, name, self._probes, best) for name in best.options]

    @property
    def _probes(self) -> list[TuneRun]:
        """The probes of the search, except probes that were stopped when the time of the search was over."""
        return [run for run in self._runs.journal.runs("search") if not run.cut]

    @property
    def spent_s(self) -> float:
        """The wall time of the search's runs so far, without runs that a signal ended."""
        return sum(run.wall_s for run in self._runs.journal.runs("search"))

    def summary(self) -> dict[str, Any]:
        """Return the search in the form of tune.json."""
        best = self._best
        return {
            "space": dict(self._space.values),
            "legs_shortened": self._short,
            "trials": self._trials.count,
            "spent_s": round(self.spent_s, 1),
            "budget_s": self._runs.tune.options.search_budget_s,
            "best": None if best is None else {"options": best.options, "target_qps": best.target_qps},
            "worth": self._worths(best),
            "signoffs": self._signed.records,
            "probes": records(self._runs.journal.runs("search")),
        }


def queries_in_time(samples_per_second: float, runs: TuneRuns) -> int:
    """Return the number of concurrent queries with which output tokens meet their limit at full rate. [Little's law]

    A loaded engine completes queries at its full rate. The number is this rate multiplied by the allowed time of a
    query's output tokens.
    """
    limits = runs.prepared.benchmark.limits
    limit_ms = runs.setting("tpot_latency") or (limits.tpot_ms if limits else 0)
    stay_s = float(limit_ms) / 1e3 * (runs.prepared.plan.sampling.max_tokens - 1)
    return max(1, int(SAFE_SHARE * samples_per_second * stay_s))


def shortened_runs(runs: TuneRuns) -> TuneRuns:
    """Write the user.conf of short runs, with few queries and small sets of samples; return these runs.

    Returns:
        `runs` itself if the full run is as short.
    """
    tune, text = runs.tune, runs.prepared.user_conf
    if runs.min_duration_ms <= tune.options.search_leg_s * 1e3:
        return runs
    settings = {"min_duration": round(tune.options.search_leg_s * 1e3), "min_query_count": SHORT_MIN_QUERIES}
    if runs.set_size > SHORT_SET_SIZE:
        settings["performance_sample_count_override"] = SHORT_SET_SIZE
    for key, value in settings.items():
        text = with_setting(text, runs.prepared.plan.loadgen_key, runs.prepared.plan.loadgen_scenario, key, str(value))
    write_atomic(tune.place.search_conf, encode_conf(text))
    return dataclasses.replace(
        runs,
        tune=dataclasses.replace(tune, values={**tune.values, "user_conf": tune.place.search_conf}),
        prepared=dataclasses.replace(runs.prepared, user_conf=text),
    )
