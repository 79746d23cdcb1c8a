"""The options of one run: one schema for the command line, the YAML file and the manifest."""

import difflib
import re
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from compliance.mechanisms.declaration import MechanismBlock
from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.fields import option_field
from runs.harness import HARNESS_ROOT
from runs.loadgen.conf_lines import HIGHEST_QPS
from runs.yaml_file import place_of, read_yaml, with_underscores
from sut.engines import DEFAULT, ENDPOINT, KINDS, EngineOptions

# For the embedded dataset without --user-conf, unless the run is a trial (scenarios/run/trial.py).
EMBEDDED_CONF = HARNESS_ROOT / "configs/embedded.conf"
MAX_REPLICAS = 1024  # each is a process of this machine
LOWEST_QPS = 1e-6  # user.conf is written with ten decimals; a rate of 0 would keep LoadGen busy for ever


class RunOptions(BaseModel):
    """The options that all engines share."""

    model_config = ConfigDict(defer_build=True)

    # What to run
    scenario: Scenario = option_field(
        ..., "Offline, Server, SingleStream, or Interactive (LoadGen's Server with tighter limits).", "what"
    )
    accuracy: bool = option_field(
        False, "Accuracy run: every sample once, scored with ROUGE. Otherwise performance.", "what"
    )
    model_path: str | None = option_field(
        None,
        "Model folder or hub ID. Default: the embedded small model (not eligible for submission).",
        "what",
        "MODEL",
    )
    dataset_path: Path | None = option_field(
        None, "Dataset in the MLCommons format (cnn_eval.json). Default: the bundled 64 articles.", "what", "FILE"
    )
    total_sample_count: int | None = option_field(
        None, "Use the first N rows of the dataset. Default: all rows.", "what", "N", ge=1
    )
    lg_model_name: str | None = option_field(
        None, f"LoadGen model key: {', '.join(BENCHMARKS)}. Default: by scenario.", "what", "KEY"
    )

    # LoadGen
    user_conf: Path | None = option_field(
        None,
        "LoadGen user.conf. Default: user.conf; with the bundled articles configs/embedded.conf, or in a performance "
        "run without --target-qps configs/trial.conf and what the warm-up measures.",
        "loadgen",
        "FILE",
    )
    target_qps: float | None = option_field(
        None,
        "Overrides target_qps of user.conf for this scenario (Offline: the expected rate).",
        "loadgen",
        "QPS",
        ge=LOWEST_QPS,
        le=HIGHEST_QPS,
    )
    audit_conf: Path | None = option_field(
        None,
        "audit.config for LoadGen. Without this option there is no audit, whatever files lie around.",
        "loadgen",
        "FILE",
    )
    enable_log_trace: bool = option_field(False, "Write mlperf_log_trace.json (0.4 to 2 kB per query).", "loadgen")
    output_log_dir: Path | None = option_field(
        None, "Run directory; must not hold another run. Default: output/<time>-<scenario>-<mode>.", "loadgen", "DIR"
    )
    signing_key: Path | None = option_field(
        None,
        "Ed25519 private key (PEM) that signs seal.json. Default: the user's own key, made on first use.",
        "loadgen",
        "FILE",
    )

    # Engine
    engine: str = option_field(
        DEFAULT, f"{', '.join(f'{name} ({kind.help})' for name, kind in KINDS.items())}.", "engine", "|".join(KINDS)
    )
    vllm: bool = option_field(False, "Same as --engine vllm.", "engine")
    sampling_arg: dict[str, Any] = option_field(
        {},
        "Overrides the benchmark's sampling; repeatable. Makes the run ineligible for submission.",
        "engine",
        "KEY=VALUE",
    )
    admission: Literal["off", "fcfs", "shortest", "deadline", "priority"] = option_field(
        "off",
        "Server and Interactive: hold queries back while the engine has reached --admission-tokens or "
        "--admission-queries, and hand them over in this order (docs/running.md).",
        "engine",
    )
    admission_tokens: int | None = option_field(
        None,
        "Most prompt tokens in the engine without a first token yet. Default: the engine's token budget per step.",
        "engine",
        "N",
        ge=1,
    )
    admission_queries: int | None = option_field(
        None, "Most unanswered queries in the engine. Default: no limit.", "engine", "N", ge=1
    )
    replicas: str | None = option_field(
        None,
        "Number of engines behind one LoadGen, each in its own process with its share of devices or cores; auto = as "
        "many as fit (docs/parallel.md). Default: auto on several accelerators, else one engine in the run's process.",
        "engine",
        "N|auto",
    )
    cluster: str | None = option_field(
        None,
        "Run replicas on the nodes of a Ray cluster: HOST:PORT of its head; auto = the cluster of this machine. One "
        "replica per device, or --replicas (docs/parallel.md).",
        "engine",
        "auto|ADDRESS",
    )
    engine_start_timeout_s: float = option_field(
        1800.0, "End the run when the engine is not ready after this time.", "engine", "S", gt=0, allow_inf_nan=False
    )
    stall_timeout_s: float = option_field(
        20.0,
        "End the run when queries are open and the engine makes no progress for this time (longer where engine steps "
        "take long).",
        "engine",
        "S",
        gt=0,
        allow_inf_nan=False,
    )

    # What the result is to be called
    mechanism: MechanismBlock | None = option_field(
        None,
        "Technique to declare (docs/mechanisms.md), or a YAML file with its fields. Default: baseline/none.",
        "engine",
        "MECHANISM/VARIANT|FILE",
    )

    # Reference flags without a meaning under continuous batching
    batch_size: int | None = option_field(None, "Ignored: the engine batches continuously.", "compat", "N", ge=1)
    num_workers: int | None = option_field(None, "Ignored: one event loop serves all queries.", "compat", "N", ge=1)

    @property
    def is_trial(self) -> bool:
        """Whether the engine's speed during warm-up decides the load: nobody named data, settings or a rate."""
        named = (self.dataset_path, self.user_conf, self.target_qps, self.audit_conf)
        return not self.accuracy and all(value is None for value in named)

    @property
    def is_light(self) -> bool:
        """Whether the embedded model has few queries at a time."""
        return self.model_path is None and (self.is_trial or self.scenario == "SingleStream")

    @property
    def has_replicas(self) -> bool:
        """Whether --replicas or --cluster is given."""
        return self.replicas is not None or self.cluster is not None

    @field_validator("*", mode="before")
    @classmethod
    def _no_stand_ins(cls, value: object, info: ValidationInfo) -> object:
        """Refuse what pydantic would take for something else: an empty text for a path, true for the number 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation, *get_args(annotation)}
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("holds a null byte")
        if value == "" and {Path, str} & kinds:
            raise ValueError("is empty: is a shell variable unset?")
        if isinstance(value, bool) and {int, float} & kinds:
            raise ValueError("must be a number")
        return value

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
        if value not in KINDS:
            raise ValueError(f"there is no such engine; choose from {', '.join(KINDS)}")
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
        return "off" if value is False else value  # YAML reads a plain off as false


class RunConfig(EngineOptions, RunOptions):
    """All options of one LoadGen run. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)


def load_yaml(path: Path, option: str = "--config") -> dict[str, Any]:
    """Read a YAML run configuration; keys are the fields of `RunConfig`, and know their line.

    Raises:
        InputError: unreadable, not YAML, not a mapping, or a key twice.
    """
    return with_underscores(read_yaml(path, option))


def merged(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The file's values under those of the command line; of KEY=VALUE options pair by pair."""
    # Not `file | given`: that would keep the file's key, which says that the value comes from there.
    both = {key: value for key, value in file.items() if key not in given} | given
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(file.get(key), dict):
            both[key] = {**file[key], **value}
    return both


Options = TypeVar("Options", bound=BaseModel)


def split_config(
    file: Path | None, block: str, given: dict[str, Any], example: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The own options of a command that starts runs, and the keys of its file that are meant for the runs.

    Args:
        file: YAML with the keys of a run, and the command's own under `block`.
        given: the command's own options on the command line, above those of the file.
        example: of the block, for a message.

    Raises:
        InputError: the block has no keys.
    """
    content = load_yaml(file) if file else {}
    own = content.pop(block, None) or {}
    if not isinstance(own, dict):
        raise InputError(f"--config {file}: {block}: expected keys and values", f"write `{block}: {example}`")
    return merged(with_underscores(own), given), content


def make_config(values: dict[str, Any]) -> RunConfig:
    """Validate; several problems are reported together. With --api-server alone the engine is endpoint.

    Raises:
        InputError: naming each key, its value and what is allowed.
    """
    if values.get("api_server") and not values.get("engine") and not values.get("vllm"):
        values = {**values, "engine": ENDPOINT}
    return checked(RunConfig, values, "see `python main.py run --help-all`")


def without_trial(values: dict[str, Any]) -> dict[str, Any]:
    """Values for runs that are compared with others: with the bundled articles, their user.conf is a fixed one."""
    if values.get("dataset_path") is None and values.get("user_conf") is None:
        return {**values, "user_conf": EMBEDDED_CONF}
    return values


def checked(schema: type[Options], values: dict[str, Any], fix: str, file: Path | None = None) -> Options:
    """Values that come from the command line, from a YAML file or from both, as their schema.

    Args:
        values: keys from a file know their place.
        file: where they all come from; None = maybe from the command line.

    Raises:
        InputError: naming every key that is wrong, its value and what is allowed.
    """
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise InputError("; ".join(_problem(one, values, schema, file) for one in error.errors()), fix) from error


def _problem(problem: Any, values: dict[str, Any], schema: type[BaseModel], file: Path | None) -> str:
    name, *deeper = [str(part) for part in problem["loc"] if part != "[key]"] or [""]
    place = place_of(values, name) or (str(file) if file else "")
    key = ": ".join([place, name, *deeper]) if place else "--" + name.replace("_", "-")
    name = (deeper or [name])[-1]
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, schema.model_fields, 1)
        return f"{key}: there is no such {'key' if place else 'option'}" + (
            f"; did you mean {near[0]}?" if near else ""
        )
    return f"{key} {problem.get('input')!s:.80}: {problem['msg'].removeprefix('Value error, ')}"
