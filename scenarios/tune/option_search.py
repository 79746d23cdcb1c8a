"""The search over scheduling options, before the search for the rate.

Settings come from a study of optuna, kept in the tune's directory and resumed by its name; rates follow from the probes
so far (rates.py). The given settings (the defaults) are the first trial: it finds their highest valid rate. Every later
trial begins a little above the best rate so far: one that is INVALID there is over with that probe, which is stopped
early; one that is VALID continues upwards. At the end each option of the best settings is put back, one at a time,
which shows what it is worth. One without which the best rate is still VALID is left out.
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
from runs.files import write_atomic
from runs.interrupts import critical
from runs.loadgen.conf_lines import encode_conf, with_setting
from runs.reading import MAX_LOG_BYTES, read_whole
from runs.wording import counted, duration
from scenarios.tune.journal import Estimate, Options, Phase, TuneRun, records, tried_of
from scenarios.tune.option_space import Space, shown
from scenarios.tune.rates import MAX_PROBES, Bracket, next_rate, rounded
from scenarios.tune.tune_runs import TuneRuns

RESOLUTION = 0.03  # of a trial's rate: smaller differences are not searched for
WORTH_PROBES = 4  # for one option; those below the best rate's come after one that was stopped early
WORTH_SHARE = 0.3  # of the time, kept for the worth of each option
DRAWS = 32  # of the sampler, for settings that are new; after that, the first new ones in a fixed order
# LoadGen issues whole sets of samples: small ones let a run end when its time is over. As many queries as early
# stopping needs to allow a few late ones, so that one hiccup does not decide.
SHORT_SET_SIZE = 256
SHORT_MIN_QUERIES = 1_024
SAFE_SHARE = 0.95  # of the Offline rate: prompts and responses in one step are a little slower than each by itself
_TITLES = {"defaults": "settings as given", "worth": "an option put back"}


class Ask(NamedTuple):
    """A probe to be run."""

    trial: int  # its number in optuna's study; 0: the given settings
    phase: Phase
    options: Options
    target_qps: float


def open_study(file: Path | None) -> optuna.Study:
    """The study in a file, as it was left or a new one; without a file one in memory. The caller holds the tune's lock.

    Raises:
        InputError: the file is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    try:
        if file is not None:
            if file.exists():
                content = read_whole(file, "make the file readable", max_bytes=MAX_LOG_BYTES)
                write_atomic(file, content[: content.rfind(b"\n") + 1])  # optuna would append to half a line
            file.with_name(f"{file.name}.lock").unlink(missing_ok=True)  # optuna's, of a process that was killed
            storage = JournalStorage(JournalFileBackend(str(file), JournalFileOpenLock(str(file))))
        study = optuna.create_study(storage=storage, study_name="search", direction="maximize", load_if_exists=True)
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=0)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(
            f"{file}: not a study of optuna ({error})",
            "restore the file, or give --output-log-dir another directory",
        ) from error
    return study


class OptionTrials:
    """Which settings are probed next, and at which rate.

    Args:
        offline_qps: samples/s of the system in the Offline scenario.
        most_trials: of settings other than the defaults.
        budget_s: for all probes.
    """

    def __init__(
        self, space: Space, study: optuna.Study, scenario: str, offline_qps: float, most_trials: int, budget_s: float
    ) -> None:
        self._space, self._study, self._scenario, self._offline_qps = space, study, scenario, offline_qps
        self._most_trials, self._budget_s = most_trials, budget_s

    @property
    def count(self) -> int:
        """The settings tried beside the defaults, without those that only put an option back."""
        return sum(_phase(trial) == "trial" for trial in self._trials())

    def next_probe(self, probes: Sequence[TuneRun], spent_s: float) -> Ask | None:
        """The next probe; None when the search is over.

        Args:
            probes: all so far, in their order; none of them cut short.
            spent_s: the time they took.
        """
        while spent_s < self._budget_s:
            running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            trial = running[0] if running else self._begin(probes, spent_s)
            if trial is None:
                return None
            options = self._options(trial)
            rate = self._rate(trial, options, probes)
            if rate is not None:
                return Ask(trial.number, _phase(trial), options, rate)
            self._study.tell(trial.number, _score([probe for probe in probes if probe.options == options]))
        return None

    def _begin(self, probes: Sequence[TuneRun], spent_s: float) -> Trial | None:
        """A new trial: of the defaults, of settings that were not tried, or of the best ones without one option."""
        tried = [self._options(trial) for trial in self._trials()]
        best = best_of(probes)
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

    def _new(self, tried: Sequence[Options], best: Options) -> Trial | None:
        """A trial of settings that were not tried; None when all have been.

        First each option alone departs from the best so far: a few trials that show which options matter. Then the
        sampler chooses.
        """
        untried = next((one for one in self._space.combinations() if one not in tried), None)
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
            self._study.tell(trial.number, state=TrialState.FAIL)  # the sampler ignores it
        return self._ask(untried, "trial")

    def _ask(self, options: Options | None = None, phase: Phase = "trial") -> Trial:
        """A trial of these settings, or of those that the sampler chooses."""
        if options is not None:
            given = {name: options.get(name) for name in self._space.values if self._space.matters(name, options)}
            self._study.enqueue_trial(given, user_attrs={"phase": phase})
        trial = self._study.ask()
        chosen: Options = {}
        for name, values in self._space.values.items():
            if self._space.matters(name, chosen):
                chosen[name] = trial.suggest_categorical(name, (None, *values))
        return trial

    def _rate(self, trial: Trial | FrozenTrial, options: Options, probes: Sequence[TuneRun]) -> float | None:
        """The next rate of a trial; None when it is over."""
        own = [probe for probe in probes if probe.trial == trial.number]
        tried, best = own, best_of(probes)
        if any(probe.verdict is None for probe in own):  # the engine refuses these settings
            return None
        phase, most = _phase(trial), MAX_PROBES
        start = best.target_qps if best is not None and phase != "defaults" else None
        if phase == "trial" and start is not None:
            if own and not any(probe.valid for probe in own):
                return None
            start = own[0].target_qps if own else rounded(start * (1 + RESOLUTION))
        elif phase == "worth" and start is not None:
            tried = with_options(probes, options)
            most = len(tried) + WORTH_PROBES - len(own)
            invalid = Bracket.of(tried_of(tried)).invalid
            if invalid is None or invalid > start:
                # Not known to be worse: probed at the best rate itself. Should it be VALID, the option is not needed.
                tried, most = [probe for probe in tried if probe.target_qps == start], 1
        rate = next_rate(
            self._scenario, self._offline_qps, tried_of(tried), resolution=RESOLUTION, most_probes=most, start=start
        )
        return None if rate in [probe.target_qps for probe in tried] else rate

    def _trials(self) -> list[FrozenTrial]:
        """All but draws of settings that were tried before."""
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.COMPLETE))

    def _options(self, trial: Trial | FrozenTrial) -> Options:
        return self._space.reduced(trial.params)


def best_of(probes: Sequence[TuneRun]) -> TuneRun | None:
    """The highest valid rate and its settings; of equal ones those with the fewest options, then the earliest."""
    valid = [probe for probe in probes if probe.valid]
    return max(valid, key=lambda probe: (probe.target_qps, -len(probe.options)), default=None)


def with_options(probes: Sequence[TuneRun], options: Options) -> list[TuneRun]:
    """All probes of some settings that have a verdict."""
    return [probe for probe in probes if probe.options == options and probe.verdict]


def worth_of(space: Space, name: str, probes: Sequence[TuneRun], best: TuneRun) -> dict[str, Any]:
    """The worth of one option of the best settings, for tune.json: the rates with it put back, all other options as
    they are, and how much higher the best rate is, as a share of these."""
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
    """Of settings: the highest rate that was VALID. Where none was, a rate that failed, less the share of the run that
    was not answered when its verdict was certain: of two that fail at one rate, the one that fails later is better."""
    valid = [probe.target_qps for probe in probes if probe.valid]
    answered = [probe.queries_answered / probe.queries_planned if probe.verdict else 0.0 for probe in probes]
    return max(valid or [probe.target_qps * min(1.0, share) for probe, share in zip(probes, answered, strict=True)])


def _phase(trial: Trial | FrozenTrial) -> Phase:
    phase: Phase = trial.user_attrs.get("phase", "trial")
    return phase


class OptionSearch:
    """The search of one tune.

    Args:
        runs: with the settings of the real run.
        estimate: the engine's full rate.

    Raises:
        InputError: optuna's file is damaged or is not that of the journal.
    """

    def __init__(self, runs: TuneRuns, estimate: Estimate) -> None:
        assert runs.tune.space is not None
        options, place, rate = runs.tune.options, runs.tune.place, estimate.samples_per_second
        self._space = runs.tune.space
        if "max_num_seqs" in self._space.values and "max_num_seqs" not in options.search_values:
            self._space = self._space.with_queries_in_time(queries_in_time(rate, runs))
        self._runs = shortened(runs)
        self._short = self._runs is not runs
        with critical():  # optuna locks the file by another one
            study = open_study(place.study)
        if any((run.trial or 0) >= len(study.trials) for run in runs.journal.runs("search")):
            raise InputError(
                f"{place.study} lacks trials that {place.journal} has probes of",
                "restore the file, or give --output-log-dir another directory",
            )
        scenario = runs.tune.config.scenario
        self._trials = OptionTrials(self._space, study, scenario, rate, options.search_trials, options.search_budget_s)

    def go(self) -> TuneRun | None:
        """Run every probe that is left, and return the best one; None when no rate was VALID with the defaults.

        Raises:
            HarnessError: a run with the defaults failed.
            Interrupted: by a signal.
        """
        runs, options = self._runs, self._runs.tune.options
        runs.say(
            f"\nsearch: {', '.join(self._space.values)}; {self._space.count():,} settings, at most "
            f"{options.search_trials} of them tried, at most {duration(options.search_budget_s)}"
        )
        # An interrupted run, whose settings may not be asked for again.
        runs.set_unfinished_aside(runs.tune.place.run("search", runs.journal.next_number("search")))
        while (ask := self._next_probe()) is not None:
            left_s = options.search_budget_s - self.spent_s
            what = _TITLES.get(ask.phase, f"trial {self._trials.count}")
            runs.run(
                "search",
                ask.target_qps,
                ask.options,
                f": {what} ({shown(ask.options)}), {duration(left_s)} left",
                time_s=left_s,
                may_fail=ask.phase != "defaults",
                trial=ask.trial,
                phase=ask.phase,
            )
        best = best_of(self._probes)
        found = "no rate was VALID with the settings as given"
        if best is not None:
            found = f"{shown(best.options)}: VALID at {best.target_qps:g} queries/s"
        counts = f"{counted(len(self._probes), 'probe')}, {counted(self._trials.count, 'trial')}"
        runs.say(f"\nsearch: {found} ({counts}, {duration(self.spent_s)})")
        for worth in self._worths(best):
            low, high = (
                "?" if worth[key] is None else f"{worth[key]:.1%}" for key in ("worth_at_least", "worth_at_most")
            )
            probes = counted(worth["probes"], "probe")
            runs.say(f"  {worth['option']}={worth['value']}: worth {low} to {high} ({probes} without it)")
        return best

    def _next_probe(self) -> Ask | None:
        with critical():
            return self._trials.next_probe(self._probes, self.spent_s)

    def _worths(self, best: TuneRun | None) -> list[dict[str, Any]]:
        return [] if best is None else [worth_of(self._space, name, self._probes, best) for name in best.options]

    @property
    def _probes(self) -> list[TuneRun]:
        """Without those that the end of the time cut short."""
        return [run for run in self._runs.journal.runs("search") if not run.cut]

    @property
    def spent_s(self) -> float:
        """Wall time of the search's runs so far, without those that a signal ended."""
        return sum(run.wall_s for run in self._runs.journal.runs("search"))

    def summary(self) -> dict[str, Any]:
        """The search for tune.json."""
        best = best_of(self._probes)
        return {
            "space": dict(self._space.values),
            "legs_shortened": self._short,
            "trials": self._trials.count,
            "spent_s": round(self.spent_s, 1),
            "budget_s": self._runs.tune.options.search_budget_s,
            "best": None if best is None else {"options": best.options, "target_qps": best.target_qps},
            "worth": self._worths(best),
            "probes": records(self._runs.journal.runs("search")),
        }


def queries_in_time(samples_per_second: float, runs: TuneRuns) -> int:
    """Queries in the engine at a time for which, at its full rate, output tokens keep their limit. [Little's law]

    An engine that is behind answers at its full rate: so many queries, which come and go at this rate, each stay as
    long as their output tokens may take.
    """
    limits = runs.prepared.benchmark.limits
    limit_ms = runs.setting("tpot_latency") or (limits.tpot_ms if limits else 0)
    stay_s = float(limit_ms) / 1e3 * (int(runs.prepared.plan.sampling["max_tokens"]) - 1)
    return max(1, int(SAFE_SHARE * samples_per_second * stay_s))


def shortened(runs: TuneRuns) -> TuneRuns:
    """The same for short runs: their time, few queries, and small sets of samples. Writes their user.conf.

    Returns:
        `runs` where those of the real run are as short.
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
