"""The trials of a search over scheduling options: which settings are probed next, and at which rate.

Settings come from a study of optuna, kept in the tune's directory and resumed by its name; rates follow from the probes
so far (rates.py). The settings given (the defaults) are the first trial: it looks for their highest valid rate. Every
trial after that begins a little above the best rate so far: one that is INVALID there is over with that probe, which is
stopped early; only one that is VALID goes on upwards. At the end each option of the best settings is put back, one at a
time, which tells what it is worth. One without which the best rate is still VALID is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from runs.errors import InputError
from runs.files import write_atomic
from runs.reading import MAX_LOG_BYTES, read_whole
from scenarios.tune.journal import Options, Phase, SearchRecord
from scenarios.tune.option_space import Space
from scenarios.tune.rates import MOST_PROBES, Bracket, Tried, next_rate, rounded

RESOLUTION = 0.03  # of a trial's rate: a difference smaller than this is not looked for
WORTH_PROBES = 4  # for one option; those below the best rate's come after one that was stopped early
WORTH_SHARE = 0.3  # of the time, kept for the question what each option is worth
DRAWS = 32  # of the sampler, for settings that are new; after that, the first new ones in a fixed order


@dataclass(frozen=True)
class Limits:
    """How far the search goes."""

    scenario: str
    offline_qps: float
    most_trials: int
    budget_s: float


@dataclass(frozen=True)
class Probe:
    """One probe, as the next one is decided by it."""

    trial: int  # its number in optuna's study; 0: the settings given
    phase: Phase
    options: Options
    target_qps: float
    valid: bool | None = None  # None: no verdict yet, or the leg failed, as with an engine that refuses the settings
    held: float = 0.0  # share of its queries that were answered when its verdict was certain


def probes_of(lines: Sequence[SearchRecord]) -> list[Probe]:
    """What the search is decided by. A probe that the clock cut short tells nothing and is left out."""
    return [
        Probe(
            line.trial,
            line.phase,
            line.options,
            line.target_qps,
            line.valid if line.verdict else None,
            min(1.0, line.queries_answered / line.queries_planned) if line.verdict else 0.0,
        )
        for line in lines
        if not line.cut
    ]


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
            lock = JournalFileOpenLock(str(file))
            storage = JournalStorage(JournalFileBackend(str(file), lock))
        study = optuna.create_study(storage=storage, study_name="search", direction="maximize", load_if_exists=True)
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=0)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(
            f"{file}: not a study of optuna ({error})",
            "restore the file, or give --output-log-dir another directory",
        ) from error
    return study


class OptionTrials:
    """The trials of one search."""

    def __init__(self, space: Space, limits: Limits, study: optuna.Study) -> None:
        self._space, self._limits, self._study = space, limits, study

    @property
    def count(self) -> int:
        """How many settings were tried beside the defaults; those that only put an option back do not count."""
        return sum(_phase(trial) == "trial" for trial in self._trials())

    def next_probe(self, probes: Sequence[Probe], spent_s: float) -> Probe | None:
        """The next probe, without a verdict; None when the search is over.

        Args:
            probes: all so far, in their order.
            spent_s: the time they took.
        """
        while spent_s < self._limits.budget_s:
            running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            trial = running[0] if running else self._begin(probes, spent_s)
            if trial is None:
                return None
            options = self._options(trial)
            rate = self._rate(trial, options, probes)
            if rate is not None:
                return Probe(trial.number, _phase(trial), options, rate)
            self._study.tell(trial.number, _score([probe for probe in probes if probe.options == options]))
        return None

    def _begin(self, probes: Sequence[Probe], spent_s: float) -> Trial | None:
        """A new trial: of the defaults, of settings that were not tried, or of the best ones without one option."""
        tried = [self._options(trial) for trial in self._trials()]
        best = best_of(probes)
        if not tried:
            return self._ask({}, "defaults")
        if best is None:
            return None
        time_s = self._limits.budget_s * (1 - WORTH_SHARE if best.options else 1)
        if self.count < self._limits.most_trials and spent_s < time_s and (new := self._new(tried, best.options)):
            return new
        asked = [self._options(trial) for trial in self._trials() if _phase(trial) == "worth"]
        for name in best.options:
            if (without := self._space.without(name, best.options)) not in asked:
                return self._ask(without, "worth")
        return None

    def _new(self, tried: Sequence[Options], best: Options) -> Trial | None:
        """A trial of settings that were not tried; None when all have been.

        First each option alone departs from the best so far, at the middle one of its values: a few trials that tell
        options that matter from those that do not. Then the sampler asks.
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
        """A trial of these settings, or of what the sampler chooses."""
        if options is not None:
            given = {name: options.get(name) for name in self._space.values if self._space.matters(name, options)}
            self._study.enqueue_trial(given, user_attrs={"phase": phase})
        trial = self._study.ask()
        chosen: Options = {}
        for name, values in self._space.values.items():
            if self._space.matters(name, chosen):
                chosen[name] = trial.suggest_categorical(name, (None, *values))
        return trial

    def _rate(self, trial: Trial | FrozenTrial, options: Options, probes: Sequence[Probe]) -> float | None:
        """The next rate of a trial; None when it is over."""
        own = [probe for probe in probes if probe.trial == trial.number]
        tried, best = tried_with(own, options), best_of(probes)
        if any(probe.valid is None for probe in own):
            return None
        phase, most = _phase(trial), MOST_PROBES
        start = best.target_qps if best is not None and phase != "defaults" else None
        if phase == "trial" and start is not None:
            if own and not any(one.valid for one in tried):
                return None
            start = own[0].target_qps if own else rounded(start * (1 + RESOLUTION))
        elif phase == "worth" and start is not None:
            tried = tried_with(probes, options)
            most = len(tried) + WORTH_PROBES - len(own)
            invalid = Bracket.of(tried).invalid
            if invalid is None or invalid > start:
                # Not known to be worse: asked at the best rate itself. Should it be VALID, the option is not needed.
                tried, most = [one for one in tried if one.target_qps == start], 1
        scenario, offline_qps = self._limits.scenario, self._limits.offline_qps
        rate = next_rate(scenario, offline_qps, tried, resolution=RESOLUTION, most_probes=most, start=start)
        return None if rate in [one.target_qps for one in tried] else rate

    def _trials(self) -> list[FrozenTrial]:
        """All but draws of settings that were tried before."""
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.COMPLETE))

    def _options(self, trial: Trial | FrozenTrial) -> Options:
        return self._space.reduced(trial.params)


def best_of(probes: Sequence[Probe]) -> Probe | None:
    """The highest valid rate and its settings; of equal ones those with the fewest options, then the earliest."""
    valid = [probe for probe in probes if probe.valid]
    return max(valid, key=lambda probe: (probe.target_qps, -len(probe.options)), default=None)


def tried_with(probes: Sequence[Probe], options: Options) -> list[Tried]:
    """All rates with a verdict for some settings."""
    return [
        Tried(probe.target_qps, probe.valid) for probe in probes if probe.options == options and probe.valid is not None
    ]


def worth_of(space: Space, name: str, probes: Sequence[Probe], best: Probe) -> dict[str, Any]:
    """What is known of the worth of one option of the best settings, for tune.json: the rates with it put back, all
    other options as they are, and how much higher the best rate is, as a share of these."""
    without = space.without(name, best.options)
    tried = tried_with(probes, without)
    bracket = Bracket.of(tried)
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


def _score(probes: Sequence[Probe]) -> float:
    """Of settings: the highest rate that was VALID. Where none was, a rate that failed, less what of the leg it did not
    hold: of two that fail at one rate, the one whose failure shows later is the better."""
    valid = [probe.target_qps for probe in probes if probe.valid]
    return max(valid or [probe.target_qps * probe.held for probe in probes])


def _phase(trial: Trial | FrozenTrial) -> Phase:
    phase: Phase = trial.user_attrs.get("phase", "trial")
    return phase
