"""What a leg will be, before it starts: how many queries, for how long, why, and what will make it INVALID."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.benchmark import LOADGEN_SCENARIO, Mode
from runs.errors import InputError
from runs.loadgen.counts import CountSettings, LegCount, count_leg, settings_of
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.loadgen.user_conf import lookup, parse_conf
from runs.numbers.invalid import Settings
from runs.reading import read_object
from runs.record.manifest import read_manifest
from runs.rounds import CURRENT_ROUND
from scenarios.leg.plan import PreparedLeg

MOST_NEIGHBOURS = 200  # run directories beside this one that are looked at
OFFLINE_MARGIN = 1.1


@dataclass(frozen=True)
class Forecast:
    """Of one leg. Times are those between the first query and the last answer."""

    count: LegCount
    invalid_because: tuple[str, ...]  # for sure; each with the line to set
    doubts: tuple[str, ...] = ()  # from what was measured before; likewise

    def warnings(self) -> Iterator[str]:
        """For a person."""
        for reason in self.invalid_because:
            yield f"will be INVALID: {reason}"
        for doubt in self.doubts:
            yield f"likely INVALID: {doubt}"


def forecast(leg: PreparedLeg) -> Forecast | None:
    """What is known of a leg; None where an audit decides."""
    if leg.plan.audit:
        return None
    count = expected_count(leg, leg.plan.mode)
    if leg.plan.mode == "accuracy":
        return Forecast(count, ())
    return Forecast(count, tuple(_too_few(leg, count)), tuple(_measured_before(leg, count)))


def expected_count(leg: PreparedLeg, mode: Mode, above: Mapping[str, float] = {}) -> LegCount:
    """What LoadGen will issue, as `count_settings` has it."""
    return count_leg(count_settings(leg, above), mode)


def count_settings(leg: PreparedLeg, above: Mapping[str, float] = {}) -> CountSettings:
    """What decides how many samples LoadGen issues.

    Args:
        above: settings, of an audit.config say, which win over user.conf.
    """

    def value(key: str) -> str | None:
        return str(above[key]) if key in above else setting(leg, key)

    return settings_of(leg.plan.scenario, leg.benchmark, CURRENT_ROUND, leg.plan.sample_count, value)


def setting(leg: PreparedLeg, key: str) -> str | None:
    """What user.conf has for a key of the leg's scenario."""
    settings = parse_conf(leg.user_conf, leg.conf_path)
    return lookup(settings, leg.benchmark.loadgen_key, LOADGEN_SCENARIO[leg.plan.scenario], key)


def _set(leg: PreparedLeg, key: str, value: str) -> str:
    return "set " + Settings(leg.plan.loadgen_scenario, leg.asked).to(key, value)


def _too_few(leg: PreparedLeg, count: LegCount) -> Iterator[str]:
    percentile = PERCENTILE.get(leg.plan.loadgen_scenario)
    if percentile is None:
        return
    asked = setting(leg, "target_latency_percentile")
    # Server's verdict allows none to be late at least; SingleStream's estimate takes the latency of one that is.
    late = 0 if leg.plan.loadgen_scenario == "Server" else 1
    needed = min_queries(late, float(asked) / 100 if asked else percentile)
    if count.samples < needed:
        yield (
            f"early stopping needs at least {needed} queries, there will be {count.samples:,}: "
            + _set(leg, "min_query_count", str(needed))
        )


def _measured_before(leg: PreparedLeg, count: LegCount) -> Iterator[str]:
    """What the legs beside this one came to: of the same engine, options, model and data."""
    rate = float(setting(leg, "target_qps") or 1)
    for folder, result in _neighbours(leg):
        before = float(result["in_force"]["target_qps"] or 0)
        speed = float((result.get("reported") or {}).get("samples_per_second") or 0)
        if leg.plan.loadgen_scenario == "Server" and 0 < before <= rate:
            if (result.get("conditions") or {}).get("perf_constraints_met") is False:
                yield (
                    f"{folder} did not keep its limits at {before:g} queries/s, this is {rate:g}: "
                    + _set(leg, "target_qps", f"{0.9 * before:.2f}")
                )
                return
        elif leg.plan.loadgen_scenario == "Offline" and speed:
            needed_s = result["in_force"]["min_duration_ms"] / 1e3
            if count.samples / speed < needed_s:
                yield (
                    f"at the {speed:.4g} samples/s of {folder} it ends after {count.samples / speed:.0f} s of the "
                    f"required {needed_s:g} s: " + _set(leg, "target_qps", f"{OFFLINE_MARGIN * speed:.2f}")
                )
                return


def _neighbours(leg: PreparedLeg) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Finished performance legs in the directories beside this one, the newest first, with their result.json."""
    keys = ("scenario", "mode", "engine", "engine_options", "model_path", "dataset_sha256", "sampling")
    ours = leg.plan.model_dump(mode="json", include=set(keys))
    beside = sorted(leg.run_dir.root.parent.glob("*/result.json"), reverse=True)[:MOST_NEIGHBOURS]
    for path in beside:
        try:
            plan = read_manifest(path.with_name("manifest.json")).plan
            if plan.model_dump(mode="json", include=set(keys)) == ours:
                result = read_object(path, "")
                if result["verdict"] in ("VALID", "INVALID"):
                    yield path.parent, result
        except (InputError, KeyError, TypeError):
            continue  # damaged or of another version: it says nothing here
