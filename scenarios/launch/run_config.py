"""The options of a run, in one schema for the command line, the YAML file and the manifest."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, field_validator

from compliance.techniques.declaration import TechniqueBlock
from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.files.fields import options_in
from runs.files.yaml_file import read_yaml
from runs.files.yaml_keys import with_underscores
from runs.harness import HARNESS_ROOT, PROGRAM
from runs.loadgen.conf_lines import HIGHEST_QPS
from runs.mistakes import Mistakes
from scenarios.checked_options import CheckedOptions, check_options
from sut.engines import DEFAULT, ENGINE_FAULTS, KINDS, EngineOptions
from sut.http.secret_options import without_secrets

# Default user.conf: for the benchmark's dataset; for fewer rows; for the embedded dataset, unless the run is a trial
# (scenarios/launch/trial.py).
USER_CONF = HARNESS_ROOT / "user.conf"
OWN_DATA_CONF = HARNESS_ROOT / "configs/own-data.conf"
EMBEDDED_CONF = HARNESS_ROOT / "configs/embedded.conf"
MAX_REPLICAS = 1024  # processes on this machine
LOWEST_QPS = 1e-6  # queries/s; user.conf has ten decimals, and LoadGen never ends at a rate of 0
_what, _loadgen, _engine, _compat = map(options_in, ("what", "loadgen", "engine", "compat"))


class RunOptions(CheckedOptions):
    """Options that all engines share."""

    model_config = ConfigDict(defer_build=True)

    # The run
    scenario: Scenario = _what(
        "LoadGen scenario. Interactive is the Server scenario with lower latency limits.", default=...
    )
    accuracy: bool = _what(
        "Run in accuracy mode: issue every sample once and score the output. Default: performance mode.", default=False
    )
    model_path: str | None = _what(
        "Model folder or Hugging Face Hub ID. Default: the embedded small model (not eligible for submission).", "MODEL"
    )
    dataset_path: Path | None = _what(
        "Dataset in the MLCommons format (cnn_eval.json). Default: the bundled 64 articles.", "FILE"
    )
    label: str | None = _what("Name of the run, for `results`, `report` and `compare`.", "NAME", min_length=1)
    total_sample_count: int | None = _what("Use the first N rows of the dataset. Default: all rows.", "N", ge=1)
    lg_model_name: str | None = _what(f"LoadGen model key: {', '.join(BENCHMARKS)}. Default: from --scenario.", "KEY")

    # LoadGen
    user_conf: Path | None = _loadgen(
        "LoadGen user.conf. Default: user.conf; configs/own-data.conf for datasets with fewer rows than the "
        "benchmark's dataset. With the bundled articles, the harness chooses the settings (docs/running.md).",
        "FILE",
    )
    target_qps: float | None = _loadgen(
        "Rate in queries/s (Offline: expected rate in samples/s). Overrides target_qps in user.conf.",
        "QPS",
        ge=LOWEST_QPS,
        le=HIGHEST_QPS,
    )
    audit_conf: Path | None = _loadgen(
        "LoadGen audit.config. Without this option, LoadGen reads no audit.config, even if the working directory "
        "contains one.",
        "FILE",
    )
    enable_log_trace: bool = _loadgen("Let LoadGen write mlperf_log_trace.json (0.4 to 2 kB per query).", default=False)
    output_log_dir: Path | None = _loadgen("Run directory to create. Default: output/<time>-<scenario>-<mode>.", "DIR")
    signing_key: Path | None = _loadgen(
        "Ed25519 private key (PEM) that signs the attestation seal.json. Default: a key in your home directory, "
        "created at first use.",
        "FILE",
    )

    # Engine
    engine: str = _engine(
        f"{', '.join(f'{name} ({kind.help})' for name, kind in KINDS.items())}.", "|".join(KINDS), DEFAULT
    )
    vllm: bool = _engine("Short form of --engine vllm.", default=False)
    sampling_arg: dict[str, Any] = _engine(
        "Sampling parameter that replaces the benchmark's parameter. Repeatable. The run is not eligible for "
        "submission.",
        "KEY=VALUE",
        {},
    )
    admission: Literal["off", "fcfs", "shortest", "deadline", "priority"] = _engine(
        "Order in which the harness sends waiting queries to the engine. Queries wait while --admission-tokens or "
        "--admission-queries is reached. Server and Interactive only (docs/engine-options.md). Default: off.",
        default="off",
    )
    admission_tokens: int | None = _engine(
        "Maximum number of prompt tokens of queries in the engine that wait for their first output token. Default: the "
        "engine's token budget per step.",
        "N",
        ge=1,
    )
    admission_queries: int | None = _engine(
        "Maximum number of unfinished queries in the engine. Default: no limit.", "N", ge=1
    )
    concurrency: int | None = _engine(
        "Closed loop: send at most N queries at once to the engine, in total over all replicas. Offline only; the run "
        "is not eligible for submission. requests.jsonl states when each query was sent. Default: no limit.",
        "N",
        ge=1,
    )
    replicas: str | None = _engine(
        "Number of engines that share the load of one LoadGen. Each engine has its own process, and its share of the "
        "devices or cores. auto: as many engines as fit (docs/parallel.md). Default: auto on multiple accelerators, "
        "else one engine in the process of the run.",
        "N|auto",
    )
    cluster: str | None = _engine(
        "Start the replicas on the nodes of a Ray cluster. ADDRESS is HOST:PORT of the head node; auto is the cluster "
        "of this machine. Default for --replicas: one replica per device (docs/parallel.md).",
        "auto|ADDRESS",
    )
    engine_start_timeout_s: float = _engine(
        "Maximum time in s until the engine is ready. Default: 1800.", "S", 1800.0, gt=0, allow_inf_nan=False
    )
    stall_timeout_s: float = _engine(
        "End the run if queries are open and the engine makes no progress for this time, in s. The harness raises the "
        "value for slow engine steps. Default: 20.",
        "S",
        20.0,
        gt=0,
        allow_inf_nan=False,
    )

    # Declaration of the result
    mechanism: TechniqueBlock | None = _engine(
        "Technique to declare (docs/mechanisms.md), or a YAML file with the fields of the declaration. Default: "
        "baseline/none.",
        "MECHANISM/VARIANT|FILE",
    )

    # Options of the reference implementation and of existing scripts
    batch_size: int | None = _compat("Ignored: the engine batches continuously.", "N", ge=1)
    num_workers: int | None = _compat("Ignored: one event loop serves all queries.", "N", ge=1)
    max_new_tokens: int | None = _compat(
        "Same as --sampling-arg max_tokens=N. Only the benchmark's value is eligible for submission.", "N", ge=1
    )

    @property
    def is_trial(self) -> bool:
        """True if the warm-up decides the load, because no dataset, settings or rate are given."""
        named = (self.dataset_path, self.user_conf, self.target_qps, self.audit_conf)
        return not self.accuracy and all(value is None for value in named)

    @property
    def is_light(self) -> bool:
        """True if the run uses the embedded model with few concurrent queries."""
        return self.model_path is None and (self.is_trial or self.scenario == "SingleStream")

    @property
    def has_replicas(self) -> bool:
        """True if --replicas or --cluster is given."""
        return self.replicas is not None or self.cluster is not None

    @field_validator("replicas", mode="before")
    @classmethod
    def _number_of_replicas(cls, value: Any) -> Any:
        if value is None or value == "auto":
            return value
        text = str(value)
        if isinstance(value, bool) or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAX_REPLICAS:
            raise ValueError(f"must be a whole number from 1 to {MAX_REPLICAS:,}, or auto")
        return str(value)

    @field_validator("cluster")
    @classmethod
    def _address_of_a_cluster(cls, value: str | None) -> str | None:
        if value is not None and value != "auto" and not re.fullmatch(r"[^:/\s]+:\d{1,5}", value):
            raise ValueError("must be HOST:PORT of the head, such as 10.0.0.1:6379, or auto")
        return value

    @field_validator("scenario", mode="before")
    @classmethod
    def _scenario_name(cls, value: object) -> object:
        if isinstance(value, str):
            for name in SCENARIOS:
                if value.lower() == name.lower():
                    return name
            if value.lower() == "multistream":
                raise ValueError(f"MultiStream is not part of this benchmark; choose from {', '.join(SCENARIOS)}")
        return value

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value in ENGINE_FAULTS:
            raise ENGINE_FAULTS[value]
        if value not in KINDS:
            raise ValueError(f"unknown engine; choose from {', '.join(KINDS)}")
        return value

    @field_validator("lg_model_name")
    @classmethod
    def _known_key(cls, value: str | None) -> str | None:
        if value is not None and value not in BENCHMARKS:
            raise ValueError(
                f"LoadGen has no settings for {value!r} and would silently use generic ones; "
                f"choose from {', '.join(BENCHMARKS)}"
            )
        return value

    @field_validator("admission", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads the word off as false


class RunConfig(EngineOptions, RunOptions):
    """All options of one LoadGen run. It refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML run configuration. The keys are the fields of `RunConfig` and carry their line number.

    Raises:
        InputError: If the file is unreadable, is not YAML or not a mapping, or has a key twice.
    """
    return without_secrets(with_underscores(read_yaml(path, "--config")))


def merged(file: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the file's values overridden by the command line, pair by pair for KEY=VALUE options."""
    # `file | given` would keep the keys of the file, and errors would name a line of the file.
    both = {key: value for key, value in file.items() if key not in options} | options
    for key, value in options.items():
        if isinstance(value, dict) and isinstance(file.get(key), dict):
            both[key] = {**file[key], **value}
    return both


def split_config(
    file: Path | None, block: str, options: dict[str, Any], example: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a command that starts runs, and the keys of its file that belong to the runs.

    Args:
        file: YAML file with the keys of a run, and the command's keys under `block`.
        given: The command's options on the command line, which override the file.
        example: Example of the block, for a message.

    Raises:
        InputError: If the block has no keys.
    """
    content = load_yaml(file) if file else {}
    values = content.pop(block, None) or {}
    if not isinstance(values, dict):
        raise InputError(f"--config {file}: {block}: expected keys and values", f"write `{block}: {example}`")
    return merged(with_underscores(values), options), content


def make_config(values: dict[str, Any]) -> RunConfig:
    """Validate the values of a run. Without --engine, an option such as --api-server selects the engine.

    Raises:
        InputError: If values are wrong; the message names each key, its value and the allowed values.
    """
    mistakes = Mistakes()
    return mistakes.accept(check_config(mistakes, values))


def check_config(mistakes: Mistakes, values: dict[str, Any]) -> RunConfig | None:
    """Return the values of a run without the wrong values, which are added to the mistakes; None if one is missing."""
    if not values.get("engine") and not values.get("vllm"):
        for kind in KINDS.values():
            if kind.chosen_by is not None and values.get(kind.chosen_by):
                values = {**values, "engine": kind.name}
    return check_options(mistakes, RunConfig, values, f"see `{PROGRAM} {mistakes.command} --help-all`")


def without_trial(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with a fixed user.conf, so that runs can be compared."""
    if values.get("user_conf") is not None:
        return values
    return {**values, "user_conf": EMBEDDED_CONF if values.get("dataset_path") is None else USER_CONF}
