"""The options of a tuning and of the runs that it starts."""

import dataclasses
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from runs.benchmark import LOADGEN_SCENARIO
from runs.errors import InputError
from runs.files.fields import option_field
from runs.harness import PROGRAM
from runs.loadgen.conf_lines import HIGHEST_QPS
from runs.mistakes import Mistakes
from runs.record.tune_dir import TuneDir
from scenarios.checked_options import CheckedOptions, check_options
from scenarios.launch.run_config import LOWEST_QPS, RunConfig, check_config, merged, split_config, without_trial
from scenarios.tune.rates import MAX_PROBES, RESOLUTION

if TYPE_CHECKING:
    from scenarios.tune.option_space import Space

# Options of `run` that a tuning sets itself.
NOT_FOR_TUNES = frozenset({"accuracy", "audit_conf", "label", "target_qps"})

SEARCH_TRIALS = 30
SEARCH_BUDGET_S = 7200.0
SEARCH_LEG_S = 60.0


_field = partial(option_field, group="tune")


class TuneOptions(CheckedOptions):
    """The options of a tuning. In a YAML file, they are under the key `tune`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    offline_qps: float | None = _field(
        None,
        "Offline rate for the first estimate, in samples/s. Default: measured by an Offline run.",
        metavar="QPS",
        ge=LOWEST_QPS,
        le=HIGHEST_QPS,
    )
    estimate_s: float = _field(
        60.0, "Duration in s of the Offline run that measures the rate. Default: 60.", metavar="S", gt=0, le=3600
    )
    max_probes: int = _field(
        MAX_PROBES,
        f"Maximum number of probes, 1 to {MAX_PROBES}. Default: {MAX_PROBES}.",
        metavar="N",
        ge=1,
        le=MAX_PROBES,
    )
    resolution: float = _field(
        RESOLUTION,
        f"Stop when the lowest INVALID rate is at most this share above the highest VALID rate. Default: {RESOLUTION}.",
        metavar="SHARE",
        ge=0.001,
        le=0.5,
    )
    search: bool = _field(False, "Search the engine's scheduling options first, then the rate (Server, Interactive).")
    search_trials: int = _field(
        SEARCH_TRIALS,
        f"Maximum number of option sets to try, in addition to the given options. Default: {SEARCH_TRIALS}.",
        metavar="N",
        ge=1,
        le=1000,
    )
    search_budget_s: float = _field(
        SEARCH_BUDGET_S,
        f"Maximum time of the search in s. The time of the probes is additional. Default: {SEARCH_BUDGET_S:.0f}.",
        metavar="S",
        gt=0,
        le=1e6,
    )
    search_leg_s: float = _field(
        SEARCH_LEG_S,
        f"Maximum min_duration of the runs of the search, in s. Default: {SEARCH_LEG_S:.0f}.",
        metavar="S",
        ge=1,
        le=3600,
    )
    search_values: dict[str, Any] = _field(
        {},
        "Values to try for an option, such as max_num_seqs='[64, 128]'. Repeatable. Default: options and values that "
        "suit the engine and this machine.",
        metavar="OPTION=LIST",
    )


@dataclass(frozen=True)
class Tune:
    """The checked configuration of a tuning."""

    options: TuneOptions
    values: dict[str, Any]  # fields of RunConfig that all runs share
    config: RunConfig
    place: TuneDir
    space: "Space | None"  # options of the search; None without a search

    @property
    def search_identity(self) -> dict[str, str]:
        """Configuration of the search. A continued tuning must have an equal configuration."""
        if self.space is None:
            return {}
        return {
            "tune search": json.dumps({name: list(choices) for name, choices in self.space.values.items()}),
            "tune search_leg_s": f"{self.options.search_leg_s:g}",
        }

    def with_replicas(self, count: int) -> "Tune":
        """Return this tuning for runs with `count` replicas, because limits apply to each replica."""
        return dataclasses.replace(self, space=_space(self.options, self.config, count))


def load_tune(file: Path | None, own_values: dict[str, Any], runs: dict[str, Any]) -> Tune:
    """Merge the command line and a YAML file into the configuration of a tuning.

    Args:
        file: YAML file with keys of `run`, and the tuning's keys under `tune`.
        own: Options of the tuning on the command line.
        runs: Options of `run` on the command line.

    Raises:
        InputError: If a key is unknown, a value is not allowed, or the scenario has no rate.
    """
    mistakes = Mistakes("tune")
    requested, content = split_config(file, "tune", own_values, "{max_probes: 6}")
    options = check_options(mistakes, TuneOptions, requested, f"see `{PROGRAM} tune --help-all`")
    values = merged(content, runs)
    for name in sorted(NOT_FOR_TUNES & values.keys()):
        mistakes.add(f"--{name.replace('_', '-')}: set by the tuning itself", "remove this option")
    config = check_config(mistakes, values)
    if config is not None and LOADGEN_SCENARIO[config.scenario] == "SingleStream":
        mistakes.add("--scenario SingleStream: has no target_qps", "give --scenario Server, Interactive or Offline")
    options, config = mistakes.accept(options), mistakes.accept(config)
    values = {name: getattr(config, name) for name in values}
    space = mistakes.attempt(_space, options, config)
    place = TuneDir(values.pop("output_log_dir", None) or Path("output") / f"tune-{config.scenario}")
    written = place.user_conf.resolve(), place.search_conf.resolve()
    if config.user_conf is not None and config.user_conf.resolve() in written:
        mistakes.add(
            f"--user-conf {config.user_conf}: the tuning would overwrite this file",
            "give another --output-log-dir, or a copy of the file",
        )
    mistakes.refuse()
    values = without_trial(values)  # The search uses the official limits, never the limits of a trial.
    return Tune(options, values, config, place, space)


def _space(options: TuneOptions, config: RunConfig, replicas: int = 0) -> "Space | None":
    named = [f"--{name.replace('_', '-')}" for name in sorted(options.model_fields_set) if name.startswith("search_")]
    named += ["--search"] if options.search else []
    if named and LOADGEN_SCENARIO[config.scenario] != "Server":
        raise InputError(
            f"{named[-1]} with --scenario {config.scenario}: only the rates of Server and Interactive depend on "
            "scheduling options",
            f"remove {', '.join(named)}",
        )
    if not options.search:
        if named:
            raise InputError(f"{named[0]}: no effect without --search", "add --search")
        return None
    from scenarios.tune.option_space import make_space

    return make_space(config, options.search_values, replicas=replicas)
