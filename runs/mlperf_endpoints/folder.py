"""A run folder of the MLPerf Endpoints client. Each file is parsed once, on first use.

Fields are read by name, and other fields are ignored, because releases of the client write different fields. The fields
that are used have one type and bounds, because every file is untrusted.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError

from runs.errors import InputError, names_its_file
from runs.files.fields import strictly
from runs.files.reading import MAX_LOG_BYTES, first_problem, read_as, read_record
from runs.mlperf_endpoints.layout import (
    AUDIT_FILES,
    CONFIG,
    EVENTS,
    FILES,
    REPORT,
    SAMPLES,
    SNAPSHOT,
    SUMMARY,
    is_run_folder,
)
from runs.wording import printable

if TYPE_CHECKING:  # not needed for most files of a folder
    import numpy as np
    from numpy.typing import NDArray

    from runs.mlperf_endpoints.events import Events

CLIENT_RELEASE = "0.1"  # mlcommons/endpoints: 0.1.0 from August 2025 to August 2026
CONFIG_FORMAT = "1.0"  # format of config.yaml
PERFORMANCE = "performance"  # the name of the measured phase in sample_idx_map.json
NO_INDEX = -1
_FIX = "use the unchanged file of the client's run folder"

T = TypeVar("T")
BoundedCount = Annotated[int, Field(ge=0, le=2**62)]
Number = Annotated[int, Field(ge=-(2**62), le=2**62)] | Annotated[float, Field(allow_inf_nan=False)]
MeasuredNumber = Annotated[Number, Field(ge=0, le=2**62)]
Percentiles = dict[Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3})?$")], Number | None]


class _Read(BaseModel):
    model_config = strictly() | {"extra": "ignore"}


class _Statistics(_Read):
    total: Number | None = None
    min: Number | None = None
    max: Number | None = None
    percentiles: Percentiles = {}
    early_stopping_percentiles: Percentiles | None = None


class _Histogram(_Read):
    buckets: list[tuple[float, float]] = []
    counts: list[BoundedCount] = []


class Series(_Statistics):
    """A measure in result_summary.json; empty if not measured."""

    median: Number | None = None
    avg: Number | None = None
    std_dev: Number | None = None
    histogram: _Histogram = _Histogram()


class Summary(_Read):
    """performance/result_summary.json."""

    version: str
    n_samples_issued: BoundedCount
    n_samples_completed: BoundedCount  # including failed samples
    n_samples_failed: BoundedCount
    duration_ns: BoundedCount | None
    state: str
    complete: bool
    git_sha: str | None = None  # commit of the client
    ttft: Series
    tpot: Series
    latency: Series
    input_sequence_lengths: Series = Series()
    output_sequence_lengths: Series
    legacy_loadgen_window_duration_ns: BoundedCount | None = None
    qps: Number | None = None
    tps: Number | None = None
    finish_reason_counts: dict[str, BoundedCount] = {}
    run_config: dict[str, Any] | None = None
    steady_state: dict[str, Any] | None = None  # since September 2026


class Stat(_Statistics):
    """One metric of final_snapshot.json: a counter with its value, or a series."""

    type: Literal["counter", "series"]
    name: str
    value: Number | None = None
    count: BoundedCount = 0
    sum_sq: Annotated[int, Field(ge=0, le=2**127)] | Annotated[float, Field(allow_inf_nan=False)] | None = None
    histogram: list[tuple[tuple[float, float], BoundedCount]] = []


class Snapshot(_Read):
    """metrics/final_snapshot.json, from which the client computes the summary."""

    counter: BoundedCount | None = None  # number of snapshots, including this one
    timestamp_ns: BoundedCount | None = None  # time in ns, on the clock of the events
    state: str
    n_pending_tasks: BoundedCount = 0
    metrics: list[Stat]


class LoadPattern(_Read):
    type: str = "max_throughput"
    target_qps: Annotated[Number, Field(ge=1e-6, le=2**62)] | None = None
    target_concurrency: BoundedCount | None = None
    use_legacy_loadgen_qps_metrics: bool = True

    @property
    def text(self) -> str:
        """The load pattern in words: poisson at 4/s."""
        rate = f" at {self.target_qps:g}/s" if self.target_qps else ""
        count = f" of {self.target_concurrency}" if self.target_concurrency else ""
        return self.type.replace("_", " ") + rate + count


class _Runtime(_Read):
    min_duration_ms: MeasuredNumber | None = None
    max_duration_ms: MeasuredNumber | None = None  # 0 = no limit
    min_issue_duration_ms: MeasuredNumber | None = None
    max_issue_duration_ms: MeasuredNumber | None = None
    n_samples_to_issue: BoundedCount | None = None
    scheduler_random_seed: int = 42
    dataloader_random_seed: int = 42


class _EarlyStopping(_Read):
    enabled: bool = True


class _WarmUp(_Read):
    enabled: bool = False
    n_requests: BoundedCount | None = None
    salt: bool = False
    drain: bool = False


class _Drain(_Read):
    performance_timeout_s: MeasuredNumber | None = None


class _Timeouts(_Read):
    performance_drain_timeout_s: MeasuredNumber | None = None


class _Client(_Read):
    num_workers: int = -1  # -1 = chosen by the client
    stream_all_chunks: bool | None = None


class _Endpoints(_Read):
    endpoints: list[str] = []
    api_type: str | None = None


class _Settings(_Read):
    load_pattern: LoadPattern = LoadPattern()
    runtime: _Runtime = _Runtime()
    early_stopping: _EarlyStopping = _EarlyStopping()
    client: _Client = _Client()
    warmup: _WarmUp = _WarmUp()
    drain: _Drain = _Drain()
    timeouts: _Timeouts = _Timeouts()


class ClientAudit(_Read):
    """The audit that followed the run."""

    samples: BoundedCount
    audit_samples: BoundedCount | None = None
    sample_index: BoundedCount = 0
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.1


class _ModelParams(_Read):
    name: str = ""
    tokenizer_name: str | None = None
    max_new_tokens: Annotated[int, Field(ge=0, le=2**31)] | None = None
    min_new_tokens: int = 1
    seed: int | None = None
    streaming: str | bool | None = None  # YAML reads a bare `on` as a Boolean


class ClientForm(NamedTuple):
    """The names and defaults of time settings that a group of client releases has."""

    since: str
    runtime_keys: frozenset[str]  # keys of settings.runtime that only this group has
    section: str  # section of the settings that only this group has
    min_duration: str
    max_duration: str
    drain_timeout: str
    default_min_duration_ms: int | None  # None: without a count and a duration, the client issues the dataset once


# All releases report the version 0.1.0. [mlcommons/endpoints ea332753 and #409]
CLIENT_FORMS = (
    ClientForm("August 2025", frozenset({"min_duration_ms", "max_duration_ms"}), "drain", "min_duration_ms",
               "max_duration_ms", "performance_timeout_s", 600_000),
    ClientForm("25 August 2026", frozenset({"min_issue_duration_ms", "max_issue_duration_ms"}), "timeouts",
               "min_issue_duration_ms", "max_issue_duration_ms", "performance_drain_timeout_s", None),
)  # fmt: skip
# Beginning of the client's commit, for a config.yaml without a key that only one group has.
_FORM_OF_COMMIT = {"ea332753": CLIENT_FORMS[0], "56063590": CLIENT_FORMS[1], "f1100cf": CLIENT_FORMS[1]}


class TimeSettings(NamedTuple):
    """The time settings of a run. A value is None if config.yaml sets none and the client has no default."""

    form: ClientForm | None  # None: unknown
    min_duration_ms: Number | None
    max_duration_ms: Number | None  # 0 = no limit
    limits_issuing: bool  # the maximum limits the time to issue samples, and not the measured phase
    drain_timeout_s: Number | None
    max_duration: str  # name of the setting in config.yaml
    drain_timeout: str


class Config(_Read):
    """The fields of config.yaml that affect numbers, and the complete content."""

    content: dict[str, Any]
    version: str | Number | None = None
    type: str = ""
    benchmark_mode: str | None = None  # the type of a submission's run
    endpoint_config: _Endpoints = _Endpoints()
    model_params: _ModelParams = _ModelParams()
    settings: _Settings = _Settings()
    audit: ClientAudit | None = None

    @property
    def mode(self) -> str:
        """Mode of the client, usually offline or online."""
        return self.benchmark_mode or self.type

    def time_settings(self, git_sha: str | None = None) -> TimeSettings:
        """Return the time settings, whose names depend on the client's release.

        Args:
            git_sha: Commit of the client, which decides if the keys of config.yaml do not.
        """
        settings, runtime, form = self.settings, self.settings.runtime, self._form(git_sha)
        minima, maxima = (
            [getattr(runtime, f"{name}_issue_duration_ms"), getattr(runtime, f"{name}_duration_ms")]
            for name in ("min", "max")
        )
        timeouts = [settings.timeouts.performance_drain_timeout_s, settings.drain.performance_timeout_s]
        names = form or CLIENT_FORMS[-1]
        default = None if form is None else form.default_min_duration_ms
        return TimeSettings(
            form,
            next((value for value in minima if value is not None), default),
            next((value for value in maxima if value is not None), None),
            maxima[0] is not None,
            next((value for value in timeouts if value is not None), None),
            CLIENT_FORMS[0].max_duration if maxima[0] is None and maxima[1] is not None else names.max_duration,
            names.drain_timeout,
        )

    def _form(self, git_sha: str | None) -> ClientForm | None:
        forms = self.forms
        if forms:
            return forms[0] if len(forms) == 1 else None
        return next((form for start, form in _FORM_OF_COMMIT.items() if (git_sha or "").startswith(start)), None)

    @property
    def forms(self) -> list[ClientForm]:
        """The groups of client releases that have a key of this config.yaml alone."""
        keys, sections = self.settings.runtime.model_fields_set, self.settings.model_fields_set
        return [form for form in CLIENT_FORMS if form.runtime_keys & keys or form.section in sections]

    @property
    def streaming(self) -> bool | None:
        """True if the client streamed responses; None if unknown. By default, it streams except in Offline."""
        setting = self.model_params.streaming
        auto = None if setting is None else self.mode != "offline"
        return {"on": True, "off": False, True: True, False: False}.get(setting or "", auto)


def _config(path: Path) -> Config:
    read_record(path, _FIX).decode(errors="replace")  # a regular file of this folder, of bounded size
    from runs.files.yaml_file import read_yaml

    content = read_yaml(path, "")
    try:
        return Config.model_validate(content | {"content": content})
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", _FIX) from error


def _snapshot(path: Path) -> Snapshot:
    snapshot = read_as(path, Snapshot, _FIX, within=path.parent, strict=True)
    if twice := next(
        (name for name, count in Counter(stat.name for stat in snapshot.metrics).items() if count > 1), ""
    ):
        raise InputError(f"{path} has the metric {printable(twice, 40)} twice", _FIX)
    return snapshot


def _text(path: Path) -> str:
    try:
        return read_record(path, _FIX).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text: {error}", _FIX) from error


def _events(path: Path) -> "Events":
    from runs.mlperf_endpoints.events import Events

    return Events(path)


def _indices(path: Path) -> dict[str, dict[str, int]]:
    import msgspec

    content = read_record(path, _FIX, max_bytes=MAX_LOG_BYTES)
    try:
        phases = msgspec.json.decode(content, type=dict[str, dict[str, Annotated[int, msgspec.Meta(ge=0, lt=2**62)]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} does not map sample UUIDs to dataset indices: {error}", _FIX) from error
    # UUIDs and names of phases contain no `":`. So the content has more `":` than `phases` has keys only if a key
    # occurs twice.
    if content.count(b'":') != len(phases) + sum(map(len, phases.values())):
        raise InputError(f"{path} contains a key twice, or differs from the format of the client", _FIX)
    return phases


def _of_file(name: str, read: Callable[[Path], T]) -> "cached_property[T | None]":
    """Return a property that reads a file on first use; its value is None if the file is missing."""
    named = names_its_file(read)
    return cached_property(lambda run: named(run.path(name)) if run.has(name) else None)


@dataclass(eq=False)
class EndpointsRun:
    """A run folder.

    Raises (every property):
        InputError: If the file is damaged, of another form, too large, or not a regular file; it names the file.
    """

    root: Path

    config = _of_file(CONFIG, _config)
    summary = _of_file(SUMMARY, lambda path: read_as(path, Summary, _FIX, within=path.parent, strict=True))
    snapshot = _of_file(SNAPSHOT, _snapshot)
    report = _of_file(REPORT, _text)
    events = _of_file(EVENTS, _events)
    indices = _of_file(SAMPLES, _indices)  # phase → sample's uuid → index in the dataset

    def path(self, name: str) -> Path:
        return self.root / name

    def has(self, name: str) -> bool:
        """Return whether the folder has a file; a broken link counts, because reading it reports the error."""
        return lexists(self.path(name))

    @cached_property
    def time_settings(self) -> TimeSettings:
        """The time settings in config.yaml."""
        git_sha = None if self.summary is None else self.summary.git_sha
        return (self.config or Config(content={})).time_settings(git_sha)

    @property
    def only_audit(self) -> bool:
        """True if the client ran only its audit."""
        return any(map(self.has, AUDIT_FILES)) and not any(map(self.has, FILES))

    @property
    def missing(self) -> tuple[str, ...]:
        """The missing files of the client."""
        return () if self.only_audit else tuple(name for name in FILES if not self.has(name))

    @property
    def raw_config(self) -> dict[str, Any]:
        return self.config.content if self.config is not None else {}

    def datasets(self, *, measured: bool = False) -> list[dict[str, Any]]:
        """Return the datasets of config.yaml; with `measured`, without those for accuracy only."""
        listed = self.raw_config.get("datasets")
        datasets = [dataset for dataset in listed if isinstance(dataset, dict)] if isinstance(listed, list) else []
        return [dataset for dataset in datasets if not measured or dataset.get("type") != "accuracy"]

    def sample_index(self, phase: str = PERFORMANCE) -> "NDArray[np.int64]":
        """Return the dataset index of each issued sample; NO_INDEX if the map of the phase has no such sample."""
        import numpy as np

        rows = {} if self.events is None else self.events.rows
        index = np.full(len(rows), NO_INDEX, np.int64)
        for uuid, place in (self.indices or {}).get(phase, {}).items():
            if (row := rows.get(uuid)) is not None:
                index[row] = place
        return index


class EndpointsPoint(EndpointsRun):
    """A point of a submission tree. Its summary is in the directory of config.yaml."""

    summary = _of_file(
        "result_summary.json", lambda path: read_as(path, Summary, _FIX, within=path.parent, strict=True)
    )


def read_folder(path: Path) -> EndpointsRun:
    """Return the run in a folder, if its client is supported.

    Raises:
        InputError: If it is not such a folder, the client's release or format is not supported, or config.yaml or
            result_summary.json is damaged.
    """
    if not is_run_folder(path):
        raise InputError(f"{path} has no run of the MLPerf Endpoints client", f"give a folder with {SUMMARY}")
    run = EndpointsRun(path)
    release = CLIENT_RELEASE if run.summary is None else run.summary.version
    form = CONFIG_FORMAT if run.config is None else str(run.config.version)
    if not f"{release}.".startswith(f"{CLIENT_RELEASE}.") or form != CONFIG_FORMAT:
        raise InputError(
            f"{path} was written by client release {printable(release, 40)} in format {printable(form, 40)}; this "
            f"harness supports release {CLIENT_RELEASE} with format {CONFIG_FORMAT}",
            "use a version of this harness that supports this client",
        )
    return run
