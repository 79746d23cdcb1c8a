"""The search over scheduling options: runs the probes that tune_trials.py asks for, and tells what was found."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from runs.errors import HarnessError, Interrupted
from runs.files import write_atomic
from runs.loadgen.user_conf import with_setting
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.wording import counted, duration
from scenarios.console import say
from scenarios.tune.config import Tune
from scenarios.tune.journal import Estimate, Journal, NoVerdict, SearchRecord, probes_of
from scenarios.tune.option_sampler import suggest
from scenarios.tune.option_space import Space, shown
from scenarios.tune.option_trials import Ask, Best, Limits, Probe, Worth, best_of, next_ask, trials_of, worths
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
        make_room: sets a run directory aside, if it is there.
    """

    def __init__(
        self, tune: Tune, planner: LegPlanner, journal: Journal, console: Console, make_room: Callable[[Path], None]
    ) -> None:
        assert tune.space is not None
        self._space: Space = tune.space
        self._short = is_shortened(tune, planner)
        self._tune, self._planner = (tune, planner) if not self._short else shortened(tune, planner)
        self._journal = journal
        self._console = console
        self._make_room = make_room

    def go(self, estimate: Estimate) -> Best | None:
        """Run every probe that is left, and return the best settings; None when no rate was VALID with the defaults.

        Raises:
            HarnessError: a leg with the defaults failed.
            Interrupted: by a signal.
        """
        options = self._tune.options
        if "max_num_seqs" in self._space.values and "max_num_seqs" not in options.search_values:
            queries = queries_in_time(estimate.samples_per_second, self._planner)
            self._space = self._space.with_queries_in_time(queries)
        limits = Limits(
            self._tune.config.scenario, estimate.samples_per_second, options.search_trials, options.search_budget_s
        )
        self._say(
            f"\nsearch: {', '.join(self._space.values)}; {self._space.count():,} settings, at most "
            f"{options.search_trials} of them tried, at most {duration(options.search_budget_s)}"
        )
        self._make_room(self._next_dir)  # of an interrupted leg, which need not be asked for again
        while (ask := next_ask(self._space, self._probes(), self.spent_s, limits, suggest)) is not None:
            self._probe(ask)
        best = best_of(self._probes())
        self._tell(best)
        return best

    @property
    def _next_dir(self) -> Path:
        return self._tune.place.leg("search", len(self._journal.searched()) + 1)

    @property
    def spent_s(self) -> float:
        """Wall time of the search's legs so far; legs that a signal ended are not among them."""
        return sum(line.wall_s for line in self._journal.searched())

    def summary(self) -> dict[str, Any]:
        """The search for tune.json."""
        probes = self._probes()
        best = best_of(probes)
        return {
            "space": dict(self._space.values),
            "legs_shortened": self._short,
            "trials": trials_of(probes),
            "spent_s": round(self.spent_s, 1),
            "budget_s": self._tune.options.search_budget_s,
            "best": None if best is None else dataclasses.asdict(best),
            "worth": []
            if best is None
            else [_worth_record(worth, best) for worth in worths(self._space, probes, best)],
            "probes": [line.model_dump(mode="json", exclude={"step"}) for line in self._journal.searched()],
        }

    def _probe(self, ask: Ask) -> None:
        """Run one leg and record it."""
        self._planner.refuse_hopeless(ask.target_qps)
        number = len(self._journal.searched()) + 1
        expected_s = self._planner.count(ask.target_qps).expected_s
        left_s = self._tune.options.search_budget_s - self.spent_s
        title = {"defaults": "settings as given", "trial": f"trial {ask.trial}", "worth": "an option put back"}
        self._say(
            f"\nsearch {number}: {title[ask.phase]} ({shown(ask.options)}): {ask.target_qps:g} queries/s, "
            f"{duration(expected_s)}; {duration(left_s)} left"
        )
        line = self._leg(ask, number, left_s)
        self._journal.add(line)
        outcome = line.verdict if isinstance(line, SearchRecord) else f"no verdict: {line.reason}"
        self._say(f"search {number}: {ask.target_qps:g} queries/s {outcome}")

    def _leg(self, ask: Ask, number: int, left_s: float) -> SearchRecord | NoVerdict:
        run_dir = RunDir(self._next_dir)
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
            return NoVerdict(
                number=number,
                cut=cut,
                reason=error.message,
                target_qps=ask.target_qps,
                wall_s=round(time.monotonic() - started_s, 1),
                directory=run_dir.root.name,
                options=ask.options,
                trial=ask.trial,
                phase=ask.phase,
            )
        return SearchRecord.model_validate({**facts, "number": number, "trial": ask.trial, "phase": ask.phase})

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _probes(self) -> list[Probe]:
        return probes_of(self._journal.searched())

    def _tell(self, best: Best | None) -> None:
        """What came out, and what it is worth."""
        probes = self._probes()
        count = f"{counted(len(probes), 'probe')}, {counted(trials_of(probes), 'trial')}, {duration(self.spent_s)}"
        if best is None:
            self._say(f"\nsearch: no rate was VALID with the settings as given ({count})")
            return
        self._say(f"\nsearch: {shown(best.options)}: VALID at {best.target_qps:g} queries/s ({count})")
        for worth in worths(self._space, probes, best):
            self._say(f"  {worth.name}={best.options[worth.name]}: {said(worth, best)}")


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


def is_shortened(tune: Tune, planner: LegPlanner) -> bool:
    """Whether the search's legs are shorter than those of the real run."""
    return (
        int(planner.setting("min_duration") or planner.leg.benchmark.min_duration_ms) > tune.options.search_leg_s * 1e3
    )


def shortened(tune: Tune, planner: LegPlanner) -> tuple[Tune, LegPlanner]:
    """The same for short legs: their time, few queries, and small sets of samples. Writes their user.conf."""
    plan, text = planner.leg.plan, planner.leg.user_conf
    settings = {"min_duration": round(tune.options.search_leg_s * 1e3), "min_query_count": SHORT_MIN_QUERIES}
    if planner.set_size > SHORT_SET_SIZE:
        settings["performance_sample_count_override"] = SHORT_SET_SIZE
    for key, value in settings.items():
        text = with_setting(text, plan.loadgen_key, plan.loadgen_scenario, key, str(value))
    write_atomic(tune.place.search_conf, text)
    short = dataclasses.replace(tune, values={**tune.values, "user_conf": tune.place.search_conf})
    return short, LegPlanner(dataclasses.replace(planner.leg, user_conf=text))


def said(worth: Worth, best: Best) -> str:
    """What an option is worth, with the number of probes behind it."""
    at_least, at_most = worth.shares(best)
    behind = f"{worth.probes} probe{'' if worth.probes == 1 else 's'} without it"
    if at_least is None and at_most is None:
        return "its worth was not measured"
    if at_most is None:
        return f"worth at least {at_least:.1%} ({behind}, none VALID)"
    if at_least is None:
        return f"worth at most {at_most:.1%} ({behind})"
    return f"worth {at_least:.1%} to {at_most:.1%} ({behind})"


def search_identity(tune: Tune) -> dict[str, str]:
    """What the search's steps depend on."""
    if tune.space is None:
        return {}
    return {
        "tune search": json.dumps({name: list(of) for name, of in tune.space.values.items()}),
        "tune search_leg_s": f"{tune.options.search_leg_s:g}",
    }


def _worth_record(worth: Worth, best: Best) -> dict[str, Any]:
    at_least, at_most = worth.shares(best)
    return {
        "option": worth.name,
        "value": best.options[worth.name],
        "best_target_qps": best.target_qps,
        "without": {"options": worth.without, "valid": worth.bracket.valid, "invalid": worth.bracket.invalid},
        "probes": worth.probes,
        "worth_at_least": at_least,
        "worth_at_most": at_most,
    }
