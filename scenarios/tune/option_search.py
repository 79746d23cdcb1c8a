"""The search over scheduling options: runs the probes that option_trials.py asks for, and reports what was found."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from runs.errors import HarnessError, InputError, Interrupted
from runs.files import write_atomic
from runs.loadgen.user_conf import with_setting
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.wording import counted, duration
from scenarios.console import say
from scenarios.tune.config import Tune
from scenarios.tune.journal import Estimate, Journal, NoVerdict, Probe, SearchRecord, probes_of
from scenarios.tune.option_space import shown
from scenarios.tune.option_trials import Limits, OptionTrials, best_of, open_study, worth_of
from scenarios.tune.tune_legs import LegPlanner, leg_facts

# LoadGen issues whole sets of samples: small ones let a leg end when its time is over. As many queries as early
# stopping needs to allow a few late ones, so that one hiccup does not decide.
SHORT_SET_SIZE = 256
SHORT_MIN_QUERIES = 1_024
SAFE_SHARE = 0.95  # of the Offline rate: prompts and answers in one step are a little slower than each by itself


class _TimeIsUp(Interrupted):
    """The search's wall time was over in the middle of a leg."""


class OptionSearch:
    """The search of one tune.

    Args:
        planner: of legs with the settings of the real run.
        estimate: the engine's full rate.
        make_room: sets a run directory aside, if it is there.

    Raises:
        InputError: optuna's file is damaged or is not that of the journal.
    """

    def __init__(
        self,
        tune: Tune,
        planner: LegPlanner,
        journal: Journal,
        estimate: Estimate,
        console: Console,
        make_room: Callable[[Path], None],
    ) -> None:
        assert tune.space is not None
        options, rate, self._space = tune.options, estimate.samples_per_second, tune.space
        if "max_num_seqs" in self._space.values and "max_num_seqs" not in options.search_values:
            self._space = self._space.with_queries_in_time(queries_in_time(rate, planner))
        self._tune, self._planner = shortened(tune, planner) or (tune, planner)
        self._short = self._tune is not tune
        self._journal, self._console, self._make_room = journal, console, make_room
        study = open_study(tune.place.study)
        if any(line.trial >= len(study.trials) for line in journal.searched()):
            raise InputError(
                f"{tune.place.study} lacks trials that {tune.place.journal} has probes of",
                "restore the file, or give --output-log-dir another directory",
            )
        limits = Limits(tune.config.scenario, rate, options.search_trials, options.search_budget_s)
        self._trials = OptionTrials(self._space, limits, study)

    def go(self) -> Probe | None:
        """Run every probe that is left, and return the best one; None when no rate was VALID with the defaults.

        Raises:
            HarnessError: a leg with the defaults failed.
            Interrupted: by a signal.
        """
        options = self._tune.options
        self._say(
            f"\nsearch: {', '.join(self._space.values)}; {self._space.count():,} settings, at most "
            f"{options.search_trials} of them tried, at most {duration(options.search_budget_s)}"
        )
        self._make_room(self._next_dir)  # of an interrupted leg, which need not be asked for again
        while (ask := self._trials.next_probe(self._probes, self.spent_s)) is not None:
            self._probe(ask)
        best = best_of(self._probes)
        found = "no rate was VALID with the settings as given"
        if best is not None:
            found = f"{shown(best.options)}: VALID at {best.target_qps:g} queries/s"
        counts = f"{counted(len(self._probes), 'probe')}, {counted(self._trials.count, 'trial')}"
        self._say(f"\nsearch: {found} ({counts}, {duration(self.spent_s)})")
        for worth in self._worths(best):
            low, high = (
                "?" if worth[key] is None else f"{worth[key]:.1%}" for key in ("worth_at_least", "worth_at_most")
            )
            probes = counted(worth["probes"], "probe")
            self._say(f"  {worth['option']}={worth['value']}: worth {low} to {high} ({probes} without it)")
        return best

    def _worths(self, best: Probe | None) -> list[dict[str, Any]]:
        return [] if best is None else [worth_of(self._space, name, self._probes, best) for name in best.options]

    @property
    def _next_dir(self) -> Path:
        return self._tune.place.leg("search", len(self._journal.searched()) + 1)

    @property
    def _probes(self) -> list[Probe]:
        return probes_of(self._journal.searched())

    @property
    def spent_s(self) -> float:
        """Wall time of the search's legs so far; legs that a signal ended are not among them."""
        return sum(line.wall_s for line in self._journal.searched())

    def summary(self) -> dict[str, Any]:
        """The search for tune.json."""
        best = best_of(self._probes)
        return {
            "space": dict(self._space.values),
            "legs_shortened": self._short,
            "trials": self._trials.count,
            "spent_s": round(self.spent_s, 1),
            "budget_s": self._tune.options.search_budget_s,
            "best": None if best is None else {"options": best.options, "target_qps": best.target_qps},
            "worth": self._worths(best),
            "probes": [line.model_dump(mode="json", exclude={"step"}) for line in self._journal.searched()],
        }

    def _probe(self, ask: Probe) -> None:
        """Run one leg and record it."""
        self._planner.refuse_hopeless(ask.target_qps)
        number = len(self._journal.searched()) + 1
        expected_s = self._planner.count(ask.target_qps).expected_s
        left_s = self._tune.options.search_budget_s - self.spent_s
        trial = f"trial {self._trials.count}"
        title = {"defaults": "settings as given", "trial": trial, "worth": "an option put back"}
        self._say(
            f"\nsearch {number}: {title[ask.phase]} ({shown(ask.options)}): {ask.target_qps:g} queries/s, "
            f"{duration(expected_s)}; {duration(left_s)} left"
        )
        line = self._leg(ask, number, left_s)
        self._journal.add(line)
        outcome = line.verdict if isinstance(line, SearchRecord) else f"no verdict: {line.reason}"
        self._say(f"search {number}: {ask.target_qps:g} queries/s {outcome}")

    def _leg(self, ask: Probe, number: int, left_s: float) -> SearchRecord | NoVerdict:
        run_dir = RunDir(self._next_dir)
        of: dict[str, Any] = {"number": number, "trial": ask.trial, "phase": ask.phase}
        started_s = time.monotonic()

        def until_time_is_up(_: Progress) -> None:
            if time.monotonic() - started_s > left_s:
                raise _TimeIsUp("stopped: the search's time is over")

        try:
            facts = leg_facts(
                self._tune, self._planner, run_dir, ask.target_qps, ask.options, self._console, until_time_is_up
            )
        except HarnessError as error:
            cut = isinstance(error, _TimeIsUp)
            if not cut and (isinstance(error, Interrupted) or ask.phase == "defaults"):
                raise
            wall_s = round(time.monotonic() - started_s, 1)
            asked: dict[str, Any] = {
                "target_qps": ask.target_qps,
                "options": ask.options,
                "directory": run_dir.root.name,
            }
            return NoVerdict(**asked, **of, cut=cut, reason=error.message, wall_s=wall_s)
        return SearchRecord.model_validate({**facts, **of})

    def _say(self, text: str) -> None:
        say(self._console, text)


def queries_in_time(samples_per_second: float, planner: LegPlanner) -> int:
    """Queries in the engine at a time for which, at its full rate, output tokens keep their limit. [Little's law]

    An engine that is behind answers at its full rate: so many queries, which come and go at this rate, each stay as
    long as their output tokens may take.

    Args:
        samples_per_second: the engine's full rate.
        planner: of legs of the scenario.
    """
    limits = planner.leg.benchmark.limits
    limit_ms = planner.setting("tpot_latency") or (limits.tpot_ms if limits else 0)
    stay_s = float(limit_ms) / 1e3 * (int(planner.leg.plan.sampling["max_tokens"]) - 1)
    return max(1, int(SAFE_SHARE * samples_per_second * stay_s))


def shortened(tune: Tune, planner: LegPlanner) -> tuple[Tune, LegPlanner] | None:
    """The same for short legs: their time, few queries, and small sets of samples. Writes their user.conf.

    Returns:
        None where the legs of the real run are as short.
    """
    real_ms = int(planner.setting("min_duration") or planner.leg.benchmark.min_duration_ms)
    if real_ms <= tune.options.search_leg_s * 1e3:
        return None
    plan, text = planner.leg.plan, planner.leg.user_conf
    settings = {"min_duration": round(tune.options.search_leg_s * 1e3), "min_query_count": SHORT_MIN_QUERIES}
    if planner.set_size > SHORT_SET_SIZE:
        settings["performance_sample_count_override"] = SHORT_SET_SIZE
    for key, value in settings.items():
        text = with_setting(text, plan.loadgen_key, plan.loadgen_scenario, key, str(value))
    write_atomic(tune.place.search_conf, text)
    short = dataclasses.replace(tune, values={**tune.values, "user_conf": tune.place.search_conf})
    return short, LegPlanner(dataclasses.replace(planner.leg, user_conf=text))
