"""What a tune is asked for: its own options, and those of the legs it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.benchmarks import LOADGEN_SCENARIO
from runs.errors import InputError
from runs.tune_layout import TuneDir
from scenarios.config import LOWEST_QPS, RunConfig, load_yaml, make_config, merged
from scenarios.tune_search import MOST_PROBES, RESOLUTION
from scenarios.user_conf import HIGHEST_QPS

# A tune sets these itself, leg by leg.
NOT_FOR_TUNES = frozenset({"accuracy", "audit_conf", "target_qps"})


def _field(default: Any, help: str, metavar: str, **limits: Any) -> Any:
    return Field(default, description=help, json_schema_extra={"group": "tune", "metavar": metavar}, **limits)


class TuneOptions(BaseModel):
    """The tune's own keys; in a YAML file they stand below `tune`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offline_qps: float | None = _field(
        None,
        "The system's Offline rate in samples/s, from which the search starts. Default: measured by an Offline leg.",
        "QPS",
        ge=LOWEST_QPS,
        le=HIGHEST_QPS,
    )
    estimate_s: float = _field(
        60.0, "The Offline leg that measures it is stopped after so long. Default: 60.", "S", gt=0, le=3600
    )
    max_probes: int = _field(
        MOST_PROBES, f"Probes at most. Default, and the most: {MOST_PROBES}.", "N", ge=1, le=MOST_PROBES
    )
    resolution: float = _field(
        RESOLUTION,
        f"Stop when the lowest invalid rate is at most this share above the highest valid one. Default: {RESOLUTION}.",
        "SHARE",
        ge=0.001,
        le=0.5,
    )


@dataclass(frozen=True)
class Tune:
    """A checked request."""

    options: TuneOptions
    values: dict[str, Any]  # fields of RunConfig that all legs share
    config: RunConfig
    place: TuneDir


def load_tune(file: Path | None, own: dict[str, Any], legs: dict[str, Any]) -> Tune:
    """The command line above a YAML file.

    Args:
        file: keys of `run`, and the tune's under `tune`.
        own: options of the tune that were given.
        legs: options of `run` that were given.

    Raises:
        InputError: a key that there is not, a value that is not allowed, or a scenario without a rate.
    """
    content = load_yaml(file) if file else {}
    block = content.pop("tune", None) or {}
    if not isinstance(block, dict):
        raise InputError(f"--config {file}: tune: expected keys and values", "write `tune: {max_probes: 6}`")
    values = merged(content, legs)
    for name in sorted(values):
        if name in NOT_FOR_TUNES:
            raise InputError(f"--{name.replace('_', '-')}: a tune sets it itself", "leave it out")
    try:
        options = TuneOptions.model_validate({**{str(key).replace("-", "_"): one for key, one in block.items()}, **own})
    except ValidationError as error:
        raise InputError("; ".join(map(_said, error.errors())), "see `python main.py tune --help`") from error
    config = make_config(values)
    if LOADGEN_SCENARIO[config.scenario] == "SingleStream":
        raise InputError(
            "--scenario SingleStream has no target_qps: its queries come one after another",
            "tune Server, Interactive or Offline",
        )
    place = TuneDir(Path(values.pop("output_log_dir", None) or Path("output") / f"tune-{config.scenario}"))
    if config.user_conf is not None and config.user_conf.resolve() == place.user_conf.resolve():
        raise InputError(
            f"--user-conf {config.user_conf} is what the tune will write",
            "give --output-log-dir another directory, or tune from a copy of the file",
        )
    return Tune(options, values, config, place)


def _said(problem: Any) -> str:
    key = "--" + str(problem["loc"][0] if problem["loc"] else "").replace("_", "-")
    if problem["type"] == "extra_forbidden":
        return f"tune option {key}: there is no such option"
    return f"{key} {problem.get('input')}: {problem['msg']}"
