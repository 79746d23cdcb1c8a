"""Trial runs: the speed of the engine during the warm-up decides their size and rate.

A run without data, settings or a rate is a trial; so is a Server or Interactive run on few rows of the user's without a
rate.

The offered rate is a share of the measured rate with a few concurrent queries, so that the engine keeps up. The number
of queries fits into the duration of a trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.errors import SetupError
from runs.files.writing import write_atomic
from runs.harness import HARNESS_ROOT
from runs.loadgen.conf_lines import with_setting
from runs.loadgen.schedule import poisson_offsets_ns
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, RunPlan, Trial
from runs.record.observed import Contention, NotRecorded
from runs.record.progress import is_slower
from runs.rounds import CURRENT_ROUND
from runs.wording import counted, duration

TRIAL_CONF = HARNESS_ROOT / "configs/trial.conf"

AT_A_TIME = 4  # concurrent queries of the measurement; SingleStream: 1
LOAD_SHARE = 0.65  # rate of the trial in Server and Interactive, as a share of the measured rate
LONGEST_S = 100.0  # maximum time from the first query to the last
SHORTEST_S = 10.0  # minimum time on a machine that completes `USUAL` queries faster
USUAL = 24
FEWEST = 8  # minimum number of queries; early stopping needs 7 at p50
FEWEST_IN_STREAM = 12  # minimum number of queries in SingleStream; early stopping's estimate needs 11 at p50
MOST = 1000


@dataclass(frozen=True)
class Measured:
    """The speed of an engine with `queries` concurrent queries of full length."""

    queries: int
    seconds: float  # time from the first submission to the last response
    output_tokens: int

    @property
    def queries_per_second(self) -> float:
        return self.queries / max(self.seconds, 1e-6)


def at_a_time(scenario: Scenario) -> int:
    """Return the number of concurrent queries of the measurement."""
    return 1 if scenario == "SingleStream" else AT_A_TIME


def trial_settings(scenario: Scenario, queries_per_second: float, rows: int | None = None) -> dict[str, int | float]:
    """Return LoadGen's settings for a measured rate, by key.

    Args:
        rows: Number of rows of the user's dataset, of which each is issued once if they fit (Server and Interactive).
    """
    if scenario == "SingleStream":
        fitting, fast = int(LONGEST_S * queries_per_second), int(SHORTEST_S * queries_per_second)
        count = min(MOST, max(FEWEST_IN_STREAM, min(fitting, USUAL), fast))
        return {"min_query_count": count, "target_latency": max(1, round(1e3 / queries_per_second))}
    if scenario == "Offline":  # More concurrent queries than measured are at least as fast.
        count = min(MOST, max(FEWEST, int(LONGEST_S * queries_per_second)))
        return {"min_query_count": count, "target_qps": _three_digits(queries_per_second)}
    rate = _three_digits(min(LOAD_SHARE * queries_per_second, MOST / SHORTEST_S))
    offsets_ns = poisson_offsets_ns(CURRENT_ROUND.seeds.schedule_rng_seed, rate, max(MOST, rows or 0))
    fitting, fast = (int(offsets_ns.searchsorted(seconds * 1e9, side="right")) for seconds in (LONGEST_S, SHORTEST_S))
    if rows is not None and FEWEST <= rows <= fitting:
        return {"min_query_count": rows, "target_qps": rate, "sample_concatenate_permutation": 1}
    if rows is not None:
        return {"min_query_count": max(FEWEST, min(fitting, rows)), "target_qps": rate}
    return {"min_query_count": max(FEWEST, min(fitting, USUAL), fast), "target_qps": rate}


def write_trial_conf(run_dir: RunDir, plan: RunPlan, measured: Measured, rows: int | None) -> Trial:
    """Write the user.conf of a trial into its run directory; return the measurement for the manifest.

    Args:
        rows: As in `trial_settings`.

    Raises:
        SetupError: If the engine is too slow for a trial.
    """
    rate = measured.queries_per_second
    if rate < 1e-5:
        raise SetupError(f"a query takes {1 / rate:,.0f} s on this machine", "use a smaller model or another machine")
    settings = trial_settings(plan.scenario, rate, rows)
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
    """Return the text of trial.conf with the measured settings."""
    for key, value in settings.items():
        written = f"{value:.10f}".rstrip("0").rstrip(".")
        text = with_setting(text, plan.loadgen_key, LOADGEN_SCENARIO[plan.scenario], key, written)
    return text


def sentence(manifest: Manifest) -> str:
    """Return a sentence on the measurement and the load of a trial; empty for other runs."""
    trial = manifest.trial
    if trial is None:
        return ""
    at_once = "one query" if trial.queries_at_a_time == 1 else f"{trial.queries_at_a_time} queries at a time"
    words = f"{at_once} took {trial.seconds:.3g} s during warm-up"
    rate = trial.settings.get("target_qps")
    if rate is not None and manifest.plan.loadgen_scenario == "Server":
        words += f", {trial.queries_per_second:.3g}/s; the trial offers {rate:g}/s"
    return words


def slower_than_measured(duration_ns: int | None, contention: Contention | NotRecorded | None = None) -> str:
    """Return a note on a trial that took much longer than planned from its warm-up; empty for other trials."""
    took_s = (duration_ns or 0) / 1e9
    if not is_slower(LONGEST_S, took_s):
        return ""
    why = "the machine was slower than during warm-up"
    if isinstance(contention, Contention) and contention.cores_taken:
        why = f"other programs used {contention.cores_taken} of {counted(contention.usable_cores, 'core')}"
    return (
        f"the run took {duration(took_s)} instead of at most {LONGEST_S:.0f} s, because {why}: end other programs, "
        "and repeat the trial"
    )


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
