"""The forecast of a run: its number of queries, its duration and the reasons why it will be INVALID."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Mode
from runs.loadgen.conf_lines import lookup, stored_lines
from runs.loadgen.counts import CountSettings, RunCount, count_run, settings_of
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.numbers.invalid import SettingAdvice
from runs.rounds import CURRENT_ROUND
from scenarios.launch.plan import PreparedRun


@dataclass(frozen=True)
class Forecast:
    """The forecast of one run. Times are from the first query to the last response."""

    count: RunCount
    invalid_because: tuple[str, ...]  # reasons, each with the setting that avoids it


def forecast(run: PreparedRun) -> Forecast | None:
    """Return the forecast of a run; None if an audit or the warm-up of a trial decides the load."""
    if run.plan.audit or run.plan.trial:
        return None
    count = expected_count(run, run.plan.mode)
    if run.plan.mode == "accuracy":
        return Forecast(count, ())
    return Forecast(count, tuple(_too_few(run, count)))


def expected_count(run: PreparedRun, mode: Mode, above: Mapping[str, float] = {}) -> RunCount:
    """Return the number of samples that LoadGen will issue with the settings of `count_settings`."""
    return count_run(count_settings(run, above), mode)


def count_settings(run: PreparedRun, above: Mapping[str, float] = {}) -> CountSettings:
    """Return the settings that decide how many samples LoadGen issues.

    Args:
        above: Settings that override user.conf, for example of an audit.config.
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
    required_percentile = setting(run, "target_latency_percentile")
    # Server needs enough queries to allow zero late queries; SingleStream's estimate discards at least one query.
    late = 0 if run.plan.loadgen_scenario == "Server" else 1
    needed = min_queries(late, required_percentile / 100 if required_percentile else percentile)
    if count.samples < needed:
        settings = SettingAdvice(run.plan.loadgen_scenario, run.asked, default=str(run.conf_path))
        yield (
            f"early stopping needs at least {needed} queries, but LoadGen will issue {count.samples:,}: "
            f"set {settings.option('min_query_count', str(needed))}"
        )
