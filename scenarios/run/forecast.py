"""What a run will be, before it starts: how many queries, for how long, why, and what will make it INVALID."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Mode
from runs.loadgen.conf_lines import lookup, stored_lines
from runs.loadgen.counts import CountSettings, RunCount, count_run, settings_of
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.numbers.invalid import Settings
from runs.rounds import CURRENT_ROUND
from scenarios.run.plan import PreparedRun


@dataclass(frozen=True)
class Forecast:
    """Of one run. Times are those between the first query and the last response."""

    count: RunCount
    invalid_because: tuple[str, ...]  # each with the line to set


def forecast(run: PreparedRun) -> Forecast | None:
    """What is known of a run; None where an audit or the warm-up of a trial decides."""
    if run.plan.audit or run.plan.trial:
        return None
    count = expected_count(run, run.plan.mode)
    if run.plan.mode == "accuracy":
        return Forecast(count, ())
    return Forecast(count, tuple(_too_few(run, count)))


def expected_count(run: PreparedRun, mode: Mode, above: Mapping[str, float] = {}) -> RunCount:
    """What LoadGen will issue, as `count_settings` has it."""
    return count_run(count_settings(run, above), mode)


def count_settings(run: PreparedRun, above: Mapping[str, float] = {}) -> CountSettings:
    """What decides how many samples LoadGen issues.

    Args:
        above: settings, of an audit.config say, which win over user.conf.
    """

    def value(key: str) -> float | None:
        return above[key] if key in above else setting(run, key)

    return settings_of(run.plan.scenario, run.benchmark, CURRENT_ROUND, run.plan.sample_count, value)


def setting(run: PreparedRun, key: str) -> int | float | None:
    """Return the number that user.conf sets for a key of the run's scenario."""
    return lookup(stored_lines(run.user_conf), run.benchmark.loadgen_key, LOADGEN_SCENARIO[run.plan.scenario], key)


def _too_few(run: PreparedRun, count: RunCount) -> Iterator[str]:
    percentile = PERCENTILE.get(run.plan.loadgen_scenario)
    if percentile is None:
        return
    asked = setting(run, "target_latency_percentile")
    # Server's verdict allows none to be late at least; SingleStream's estimate takes the latency of one that is.
    late = 0 if run.plan.loadgen_scenario == "Server" else 1
    needed = min_queries(late, asked / 100 if asked else percentile)
    if count.samples < needed:
        yield (
            f"early stopping needs at least {needed} queries, there will be {count.samples:,}: "
            + f"set {Settings(run.plan.loadgen_scenario, run.asked).to('min_query_count', str(needed))}"
        )
