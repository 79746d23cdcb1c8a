"""The search over scheduling options: runs the probes that option_trials.py asks for, and reports what was found."""

import dataclasses
from typing import Any

from runs.errors import InputError
from runs.files import write_atomic
from runs.loadgen.user_conf import with_setting
from runs.wording import counted, duration
from scenarios.tune.journal import Estimate, SearchRecord, told
from scenarios.tune.legs import TuneLegs
from scenarios.tune.option_space import shown
from scenarios.tune.option_trials import Limits, OptionTrials, Probe, best_of, open_study, probes_of, worth_of

# LoadGen issues whole sets of samples: small ones let a leg end when its time is over. As many queries as early
# stopping needs to allow a few late ones, so that one hiccup does not decide.
SHORT_SET_SIZE = 256
SHORT_MIN_QUERIES = 1_024
SAFE_SHARE = 0.95  # of the Offline rate: prompts and answers in one step are a little slower than each by itself
_TITLES = {"defaults": "settings as given", "worth": "an option put back"}


class OptionSearch:
    """The search of one tune.

    Args:
        legs: with the settings of the real run.
        estimate: the engine's full rate.

    Raises:
        InputError: optuna's file is damaged or is not that of the journal.
    """

    def __init__(self, legs: TuneLegs, estimate: Estimate) -> None:
        assert legs.tune.space is not None
        options, place, rate = legs.tune.options, legs.tune.place, estimate.samples_per_second
        self._space = legs.tune.space
        if "max_num_seqs" in self._space.values and "max_num_seqs" not in options.search_values:
            self._space = self._space.with_queries_in_time(queries_in_time(rate, legs))
        self._legs = shortened(legs)
        self._short = self._legs is not legs
        study = open_study(place.study)
        if any(line.trial >= len(study.trials) for line in legs.journal.searched()):
            raise InputError(
                f"{place.study} lacks trials that {place.journal} has probes of",
                "restore the file, or give --output-log-dir another directory",
            )
        limits = Limits(legs.tune.config.scenario, rate, options.search_trials, options.search_budget_s)
        self._trials = OptionTrials(self._space, limits, study)

    def go(self) -> Probe | None:
        """Run every probe that is left, and return the best one; None when no rate was VALID with the defaults.

        Raises:
            HarnessError: a leg with the defaults failed.
            Interrupted: by a signal.
        """
        legs, options = self._legs, self._legs.tune.options
        legs.say(
            f"\nsearch: {', '.join(self._space.values)}; {self._space.count():,} settings, at most "
            f"{options.search_trials} of them tried, at most {duration(options.search_budget_s)}"
        )
        # Of an interrupted leg, which need not be asked for again.
        legs.make_room(legs.tune.place.leg("search", legs.journal.next_number("search")))
        while (ask := self._trials.next_probe(self._probes, self.spent_s)) is not None:
            left_s = options.search_budget_s - self.spent_s
            title = _TITLES.get(ask.phase, f"trial {self._trials.count}")
            of = f": {title} ({shown(ask.options)}), {duration(left_s)} left"
            facts = legs.measure(
                "search", ask.target_qps, ask.options, of, time_s=left_s, may_fail=ask.phase != "defaults"
            )
            legs.recorded(SearchRecord(**facts, trial=ask.trial, phase=ask.phase))
        best = best_of(self._probes)
        found = "no rate was VALID with the settings as given"
        if best is not None:
            found = f"{shown(best.options)}: VALID at {best.target_qps:g} queries/s"
        counts = f"{counted(len(self._probes), 'probe')}, {counted(self._trials.count, 'trial')}"
        legs.say(f"\nsearch: {found} ({counts}, {duration(self.spent_s)})")
        for worth in self._worths(best):
            low, high = (
                "?" if worth[key] is None else f"{worth[key]:.1%}" for key in ("worth_at_least", "worth_at_most")
            )
            probes = counted(worth["probes"], "probe")
            legs.say(f"  {worth['option']}={worth['value']}: worth {low} to {high} ({probes} without it)")
        return best

    def _worths(self, best: Probe | None) -> list[dict[str, Any]]:
        return [] if best is None else [worth_of(self._space, name, self._probes, best) for name in best.options]

    @property
    def _probes(self) -> list[Probe]:
        return probes_of(self._legs.journal.searched())

    @property
    def spent_s(self) -> float:
        """Wall time of the search's legs so far; legs that a signal ended are not among them."""
        return sum(line.wall_s for line in self._legs.journal.searched())

    def summary(self) -> dict[str, Any]:
        """The search for tune.json."""
        best = best_of(self._probes)
        return {
            "space": dict(self._space.values),
            "legs_shortened": self._short,
            "trials": self._trials.count,
            "spent_s": round(self.spent_s, 1),
            "budget_s": self._legs.tune.options.search_budget_s,
            "best": None if best is None else {"options": best.options, "target_qps": best.target_qps},
            "worth": self._worths(best),
            "probes": told(self._legs.journal.searched()),
        }


def queries_in_time(samples_per_second: float, legs: TuneLegs) -> int:
    """Queries in the engine at a time for which, at its full rate, output tokens keep their limit. [Little's law]

    An engine that is behind answers at its full rate: so many queries, which come and go at this rate, each stay as
    long as their output tokens may take.
    """
    limits = legs.leg.benchmark.limits
    limit_ms = legs.setting("tpot_latency") or (limits.tpot_ms if limits else 0)
    stay_s = float(limit_ms) / 1e3 * (int(legs.leg.plan.sampling["max_tokens"]) - 1)
    return max(1, int(SAFE_SHARE * samples_per_second * stay_s))


def shortened(legs: TuneLegs) -> TuneLegs:
    """The same for short legs: their time, few queries, and small sets of samples. Writes their user.conf.

    Returns:
        `legs` where those of the real run are as short.
    """
    tune, text = legs.tune, legs.leg.user_conf
    if legs.min_duration_ms <= tune.options.search_leg_s * 1e3:
        return legs
    settings = {"min_duration": round(tune.options.search_leg_s * 1e3), "min_query_count": SHORT_MIN_QUERIES}
    if legs.set_size > SHORT_SET_SIZE:
        settings["performance_sample_count_override"] = SHORT_SET_SIZE
    for key, value in settings.items():
        text = with_setting(text, legs.leg.plan.loadgen_key, legs.leg.plan.loadgen_scenario, key, str(value))
    write_atomic(tune.place.search_conf, text)
    return dataclasses.replace(
        legs,
        tune=dataclasses.replace(tune, values={**tune.values, "user_conf": tune.place.search_conf}),
        leg=dataclasses.replace(legs.leg, user_conf=text),
    )
