"""A trial run: its size and rate follow from the engine's speed, measured during warm-up.

The offered rate is a share of what the engine did with a few queries at a time, so that it keeps up and TTFT is that
of an engine with headroom. The number of queries is what fits into the time of a trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.errors import SetupError
from runs.files import write_atomic
from runs.harness import HARNESS_ROOT
from runs.loadgen.conf_lines import with_setting
from runs.loadgen.schedule import poisson_offsets_ns
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, RunPlan, Trial
from runs.rounds import CURRENT_ROUND

TRIAL_CONF = HARNESS_ROOT / "configs/trial.conf"

AT_A_TIME = 4  # queries measured together; in SingleStream one
LOAD_SHARE = 0.65  # of the measured rate, Server and Interactive
LONGEST_S = 100.0  # from the first query to the last
SHORTEST_S = 10.0  # on a machine so fast that `USUAL` queries take less
USUAL = 24
FEWEST = 8  # however slow the engine: early stopping needs 7 at p50
FEWEST_IN_STREAM = 12  # early stopping's estimate needs 11 at p50
MOST = 1000


@dataclass(frozen=True)
class Measured:
    """The speed of an engine with `queries` queries of full length at a time."""

    queries: int
    seconds: float  # from the first submission to the last response
    output_tokens: int

    @property
    def queries_per_second(self) -> float:
        return self.queries / max(self.seconds, 1e-6)


def at_a_time(scenario: Scenario) -> int:
    """How many queries are measured together."""
    return 1 if scenario == "SingleStream" else AT_A_TIME


def trial_settings(scenario: Scenario, queries_per_second: float) -> dict[str, int | float]:
    """LoadGen's settings that follow from a measured rate, by key."""
    if scenario == "SingleStream":
        fitting, fast = int(LONGEST_S * queries_per_second), int(SHORTEST_S * queries_per_second)
        count = min(MOST, max(FEWEST_IN_STREAM, min(fitting, USUAL), fast))
        return {"min_query_count": count, "target_latency": max(1, round(1e3 / queries_per_second))}
    if scenario == "Offline":  # more at a time than was measured, so at least as fast
        count = min(MOST, max(FEWEST, int(LONGEST_S * queries_per_second)))
        return {"min_query_count": count, "target_qps": _three_digits(queries_per_second)}
    rate = _three_digits(min(LOAD_SHARE * queries_per_second, MOST / SHORTEST_S))
    offsets_ns = poisson_offsets_ns(CURRENT_ROUND.seeds.schedule_rng_seed, rate, MOST)
    fitting, fast = (int(offsets_ns.searchsorted(seconds * 1e9, side="right")) for seconds in (LONGEST_S, SHORTEST_S))
    return {"min_query_count": max(FEWEST, min(fitting, USUAL), fast), "target_qps": rate}


def write_trial_conf(run_dir: RunDir, plan: RunPlan, measured: Measured) -> Trial:
    """Write the user.conf of a trial into its run directory; returns the record of what it follows from.

    Raises:
        SetupError: the engine made no progress that could be measured.
    """
    rate = measured.queries_per_second
    if rate < 1e-5:
        raise SetupError(f"a query takes {1 / rate:,.0f} s on this machine", "use a smaller model or another machine")
    settings = trial_settings(plan.scenario, rate)
    text = with_trial_settings(TRIAL_CONF.read_text(), plan, settings)
    write_atomic(run_dir.user_conf, text)
    return Trial(
        queries_at_a_time=measured.queries,
        seconds=round(measured.seconds, 3),
        output_tokens=measured.output_tokens,
        queries_per_second=round(rate, 6),
        settings=settings,
    )


def with_trial_settings(text: str, plan: RunPlan, settings: Mapping[str, int | float]) -> str:
    """The text of trial.conf with the settings that were measured."""
    for key, value in settings.items():
        written = f"{value:.10f}".rstrip("0").rstrip(".")
        text = with_setting(text, plan.loadgen_key, LOADGEN_SCENARIO[plan.scenario], key, written)
    return text


def sentence(manifest: Manifest) -> str:
    """What a trial measured, and the load that follows from it; empty for other runs."""
    trial = manifest.trial
    if trial is None:
        return ""
    at_once = "one query" if trial.queries_at_a_time == 1 else f"{trial.queries_at_a_time} queries at a time"
    words = f"{at_once} took {trial.seconds:.3g} s during warm-up"
    rate = trial.settings.get("target_qps")
    if rate is not None and manifest.plan.loadgen_scenario == "Server":
        words += f", {trial.queries_per_second:.3g}/s; the trial offers {rate:g}/s"
    return words


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
