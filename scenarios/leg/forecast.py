"""What a leg will be, before it starts: how many queries, for how long, why, and what will make it INVALID."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Mode
from runs.loadgen.conf_lines import lookup, stored_lines
from runs.loadgen.counts import CountSettings, LegCount, count_leg, settings_of
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.numbers.invalid import Settings
from runs.rounds import CURRENT_ROUND
from scenarios.leg.plan import PreparedLeg


@dataclass(frozen=True)
class Forecast:
    """Of one leg. Times are those between the first query and the last answer."""

    count: LegCount
    invalid_because: tuple[str, ...]  # each with the line to set


def forecast(leg: PreparedLeg) -> Forecast | None:
    """What is known of a leg; None where an audit or the warm-up of a trial decides."""
    if leg.plan.audit or leg.plan.trial:
        return None
    count = expected_count(leg, leg.plan.mode)
    if leg.plan.mode == "accuracy":
        return Forecast(count, ())
    return Forecast(count, tuple(_too_few(leg, count)))


def expected_count(leg: PreparedLeg, mode: Mode, above: Mapping[str, float] = {}) -> LegCount:
    """What LoadGen will issue, as `count_settings` has it."""
    return count_leg(count_settings(leg, above), mode)


def count_settings(leg: PreparedLeg, above: Mapping[str, float] = {}) -> CountSettings:
    """What decides how many samples LoadGen issues.

    Args:
        above: settings, of an audit.config say, which win over user.conf.
    """

    def value(key: str) -> float | None:
        return above[key] if key in above else setting(leg, key)

    return settings_of(leg.plan.scenario, leg.benchmark, CURRENT_ROUND, leg.plan.sample_count, value)


def setting(leg: PreparedLeg, key: str) -> int | float | None:
    """Return the number that user.conf sets for a key of the run's scenario."""
    return lookup(stored_lines(leg.user_conf), leg.benchmark.loadgen_key, LOADGEN_SCENARIO[leg.plan.scenario], key)


def _too_few(leg: PreparedLeg, count: LegCount) -> Iterator[str]:
    percentile = PERCENTILE.get(leg.plan.loadgen_scenario)
    if percentile is None:
        return
    asked = setting(leg, "target_latency_percentile")
    # Server's verdict allows none to be late at least; SingleStream's estimate takes the latency of one that is.
    late = 0 if leg.plan.loadgen_scenario == "Server" else 1
    needed = min_queries(late, asked / 100 if asked else percentile)
    if count.samples < needed:
        yield (
            f"early stopping needs at least {needed} queries, there will be {count.samples:,}: "
            + f"set {Settings(leg.plan.loadgen_scenario, leg.asked).to('min_query_count', str(needed))}"
        )
