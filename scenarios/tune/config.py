"""The options of a tune: its own, and those of the runs that it starts."""

import dataclasses
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from runs.benchmark import LOADGEN_SCENARIO
from runs.errors import InputError
from runs.fields import option_field
from runs.loadgen.conf_lines import HIGHEST_QPS
from scenarios.run.config import LOWEST_QPS, RunConfig, checked, make_config, merged, split_config, without_trial
from scenarios.tune.rates import MAX_PROBES, RESOLUTION
from scenarios.tune.tune_dir import TuneDir

if TYPE_CHECKING:
    from scenarios.tune.option_space import Space

# A tune sets these itself, run by run.
NOT_FOR_TUNES = frozenset({"accuracy", "audit_conf", "target_qps"})

SEARCH_TRIALS = 30
SEARCH_BUDGET_S = 7200.0
SEARCH_LEG_S = 60.0


_field = partial(option_field, group="tune")


class TuneOptions(BaseModel):
    """The tune's own keys; in a YAML file they stand below `tune`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    offline_qps: float | None = _field(
        None,
        "Offline rate in samples/s from which the search starts. Default: measured by an Offline run.",
        metavar="QPS",
        ge=LOWEST_QPS,
        le=HIGHEST_QPS,
    )
    estimate_s: float = _field(
        60.0, "Length of the Offline run that measures this rate. Default: 60.", metavar="S", gt=0, le=3600
    )
    max_probes: int = _field(
        MAX_PROBES, f"Most probes. Default and maximum: {MAX_PROBES}.", metavar="N", ge=1, le=MAX_PROBES
    )
    resolution: float = _field(
        RESOLUTION,
        f"Stop when the lowest invalid rate is at most this share above the highest valid rate. Default: {RESOLUTION}.",
        metavar="SHARE",
        ge=0.001,
        le=0.5,
    )
    search: bool = _field(
        False, "First search the engine's scheduling options for the highest valid rate (Server, Interactive)."
    )
    search_trials: int = _field(
        SEARCH_TRIALS,
        f"Most settings to try, besides the given ones. Default: {SEARCH_TRIALS}.",
        metavar="N",
        ge=1,
        le=1000,
    )
    search_budget_s: float = _field(
        SEARCH_BUDGET_S,
        f"Longest time for the search; the probes of the rate follow it. Default: {SEARCH_BUDGET_S:.0f}.",
        metavar="S",
        gt=0,
        le=1e6,
    )
    search_leg_s: float = _field(
        SEARCH_LEG_S,
        f"Longest min_duration of the search's runs. Default: {SEARCH_LEG_S:.0f}.",
        metavar="S",
        ge=1,
        le=3600,
    )
    search_values: dict[str, Any] = _field(
        {},
        "Search this option over these values, such as max_num_seqs='[64, 128]'; repeatable. Default: the usual "
        "options of the engine on this machine.",
        metavar="OPTION=LIST",
    )


@dataclass(frozen=True)
class Tune:
    """A checked request."""

    options: TuneOptions
    values: dict[str, Any]  # fields of RunConfig that all runs share
    config: RunConfig
    place: TuneDir
    space: "Space | None"  # what a search may change; None without one

    @property
    def search_identity(self) -> dict[str, str]:
        """What the runs of the search depend on."""
        if self.space is None:
            return {}
        return {
            "tune search": json.dumps({name: list(of) for name, of in self.space.values.items()}),
            "tune search_leg_s": f"{self.options.search_leg_s:g}",
        }

    def with_replicas(self, count: int) -> "Tune":
        """The same for runs that were planned with so many replicas: limits hold for each of them."""
        return dataclasses.replace(self, space=_space(self.options, self.values, self.config, count))


def load_tune(file: Path | None, own: dict[str, Any], runs: dict[str, Any]) -> Tune:
    """The command line above a YAML file.

    Args:
        file: keys of `run`, and the tune's under `tune`.
        own: options of the tune that were given.
        runs: options of `run` that were given.

    Raises:
        InputError: an unknown key, a value that is not allowed, or a scenario without a rate.
    """
    asked, content = split_config(file, "tune", own, "{max_probes: 6}")
    options = checked(TuneOptions, asked, "see `python main.py tune --help-all`")
    values = merged(content, runs)
    for name in sorted(NOT_FOR_TUNES & values.keys()):
        raise InputError(f"--{name.replace('_', '-')}: a tune sets it itself", "leave it out")
    config = make_config(values)
    if LOADGEN_SCENARIO[config.scenario] == "SingleStream":
        raise InputError(
            "--scenario SingleStream has no target_qps: its queries come one after another",
            "tune Server, Interactive or Offline",
        )
    space = _space(options, values, config)
    place = TuneDir(Path(values.pop("output_log_dir", None) or Path("output") / f"tune-{config.scenario}"))
    written = place.user_conf.resolve(), place.search_conf.resolve()
    if config.user_conf is not None and config.user_conf.resolve() in written:
        raise InputError(
            f"--user-conf {config.user_conf} is what the tune will write",
            "give --output-log-dir another directory, or tune from a copy of the file",
        )
    values = without_trial(values)  # a rate is searched within the official limits, never those of a trial
    return Tune(options, values, config, place, space)


def _space(options: TuneOptions, values: dict[str, Any], config: RunConfig, replicas: int = 0) -> "Space | None":
    given = [f"--{name.replace('_', '-')}" for name in sorted(options.model_fields_set) if name.startswith("search_")]
    given += ["--search"] if options.search else []
    if given and LOADGEN_SCENARIO[config.scenario] != "Server":
        raise InputError(
            f"{given[-1]} with --scenario {config.scenario}: only the rates of Server and Interactive depend on "
            "scheduling options",
            f"leave out {', '.join(given)}",
        )
    if not options.search:
        if given:
            raise InputError(f"{given[0]} has no effect without --search", "add --search")
        return None
    from scenarios.tune.option_space import make_space

    return make_space(values, config, options.search_values, replicas=replicas)
