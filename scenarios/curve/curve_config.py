"""The YAML file of a curve of MLPerf Endpoints, and its facts from the tables of the round."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator

from compliance.mlperf_endpoints.cohorts import Cohort, parse_cohort
from compliance.mlperf_endpoints.curve_rules import DEDICATED, ELECTED
from compliance.mlperf_endpoints.round_tables import RoundTables, SeedSet, day_text, round_tables, today
from compliance.mlperf_endpoints.tree import WITHOUT_POWER
from runs.errors import InputError
from runs.files.yaml_file import read_yaml
from runs.mistakes import Mistakes
from scenarios.checked_options import CheckedOptions, check_options
from sut.http.address import Access, ServerAddress, addresses

_EXAMPLE = "see `init --kind endpoints`"
MAX_CONNECTIONS = 28_000  # connections of a client to one IP address and port, which Linux's ports limit
REHEARSAL_DURATIONS_S = (5.0, 10.0)
PERFORMANCE, ACCURACY = "performance", "accuracy"  # types of a dataset in the client's configuration
DISCLOSURES = ("model_precision", "link_to_model", "dataset_link")  # fields of point.yaml that only the submitter knows


class CurveOptions(CheckedOptions):
    """The keys of curve.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    server: list[str] = Field(json_schema_extra={"example": "[http://localhost:8000]"})
    client: Path  # the program inference-endpoint
    model: str
    tokenizer: str | None = None  # default: the model
    model_params: dict[str, Any] = Field(default_factory=dict)  # sampling of the client; default: that of the round
    datasets: list[dict[str, Any]]  # entries of the client's configuration
    rows: int | None = Field(None, ge=1)  # rows of the performance dataset; default: counted in a JSON or JSONL file
    client_settings: dict[str, Any] = Field(default_factory=dict)  # settings.client of the client's configuration
    api_type: str | None = None  # endpoint_config.api_type of the client's configuration
    division: Literal["Standardized", "Serviced", "RDI"]
    seed_set: str
    target_cohort: str
    seed_sets: Path | None = None  # a newer seedset.yaml
    bound: bool = False  # the set is bound by a first submission, so its last cohort does not count
    disclosures: dict[str, str]  # fields of point.yaml
    system: Path  # system_desc.json, or the same keys in YAML
    power: Path | None = None  # system_power.json
    shared_src: Path  # directory of the implementation, with README.md
    shared_docs: Path  # directory of documents
    accelerators: int = Field(ge=0, json_schema_extra={"example": 8})
    c_min: int | None = Field(None, ge=1)
    c_max: int | None = None
    max_concurrency: int = 8192  # limit of the search for C_max
    concurrencies: list[int] | None = None  # all points; replaces c_min, c_max and points
    points: int = 8
    offline: Literal["elected", "dedicated"] = "elected"
    basis: Literal["window", "whole-run"] = "window"
    max_point_hours: float = Field(2.0, gt=0)  # limit for the point of C_min
    budget_hours: float | None = Field(None, gt=0)

    @field_validator("server", mode="before")
    @classmethod
    def _one_server(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class CurveConfig:
    """A checked configuration."""

    file: Path
    options: CurveOptions
    root: Path  # directory of the curve
    tables: RoundTables
    seed_set: SeedSet
    servers: tuple[ServerAddress, ...]
    client: str  # path of the client's program
    system: dict[str, Any]
    rows: int
    benchmark: str  # benchmark of the round; empty for another model
    is_rehearsal: bool

    @property
    def access(self) -> Access:
        return Access()

    @property
    def tokenizer(self) -> str:
        return self.options.tokenizer or self.options.model

    @property
    def ultra_low(self) -> int:
        return int(self.tables.points["ultra_low"])

    @property
    def min_c_max(self) -> int:
        """The lowest C_max without a written justification."""
        return int(self.tables.points["justified_c_max"]) + 1

    @property
    def durations_s(self) -> tuple[float, float]:
        """Minimum duration of a point up to the region ultra low, and above it."""
        limits = self.tables.limits["min_duration_s"]
        return REHEARSAL_DURATIONS_S if self.is_rehearsal else (limits["ultra_low"], limits["above"])

    @property
    def model_params(self) -> dict[str, Any]:
        rules = self.tables.models.get(self.benchmark, {})
        return dict(rules.get("sampling", {})) | self.options.model_params

    @cached_property
    def datasets(self) -> dict[str, list[dict[str, Any]]]:
        """The datasets by type, with absolute paths."""
        by_type: dict[str, list[dict[str, Any]]] = {PERFORMANCE: [], ACCURACY: []}
        for dataset in self.options.datasets:
            path = dataset.get("path")
            absolute = {"path": str((self.file.parent / path).resolve())} if isinstance(path, str) else {}
            kind = str(dataset.get("type", PERFORMANCE))
            by_type[kind].append({"type": kind} | json.loads(json.dumps(dataset)) | absolute)
        return by_type


def load_curve(file: Path, root: Path | None, *, is_rehearsal: bool) -> CurveConfig:
    """Read a curve's YAML file.

    Args:
        root: Directory of the curve. Default: output/NAME of the file.

    Raises:
        InputError: If a key is unknown, missing or has a wrong value, or a seed set, a cohort or a file does not fit;
            the message has all mistakes.
    """
    content = read_yaml(file, "--config")
    mistakes = Mistakes("curve")
    options = check_options(mistakes, CurveOptions, content, _EXAMPLE, file)
    if options is None:
        mistakes.refuse()
        raise AssertionError("a missing key is a mistake")
    tables = mistakes.attempt(round_tables, options.seed_sets and file.parent / options.seed_sets) or round_tables()
    servers: tuple[ServerAddress, ...] = ()
    with mistakes.collected("--api-server", f"{file}: server"):
        servers = tuple(addresses(",".join(options.server)))
    client = shutil.which(str(file.parent / options.client)) or shutil.which(str(options.client))
    if client is None:
        mistakes.add(f"{file}: client {options.client}: program not found", "give the path of inference-endpoint")
    seed_set = _check_seeds(mistakes, file, options, tables, is_rehearsal=is_rehearsal)
    _check_datasets(mistakes, file, options)
    _check_levels(mistakes, file, options, tables, len(servers))
    for name in ("shared_src", "shared_docs"):
        if not (file.parent / getattr(options, name)).is_dir():
            mistakes.add(f"{file}: {name}: {getattr(options, name)}: no such directory", "give a directory")
    if missing := [name for name in DISCLOSURES if not options.disclosures.get(name)]:
        mistakes.add(f"{file}: disclosures: {', '.join(missing)} missing", f"add {missing[0]} below disclosures")
    if options.division.lower() not in WITHOUT_POWER and options.power is None:
        mistakes.add(f"{file}: power: missing in division {options.division}", "give power: system_power.json")
    if options.power is not None and not (file.parent / options.power).is_file():
        mistakes.add(f"{file}: power: {options.power}: no such file", "give the path of system_power.json")
    system = mistakes.attempt(_read_facts, file.parent / options.system, f"{file}: system") or {}
    rows = mistakes.attempt(_rows, file, options) or 0
    if options.offline == DEDICATED and options.c_max and rows < options.c_max:
        mistakes.add(
            f"{file}: offline: dedicated: the dataset has {rows:,} rows, fewer than c_max {options.c_max:,}",
            f"write offline: {ELECTED}",
        )
    name = options.model.rstrip("/").rpartition("/")[2].lower()
    benchmark = next((key for key, rules in tables.models.items() if name in rules["names"]), "")
    if not benchmark and not is_rehearsal:
        mistakes.add(f"{file}: model {options.model}: not a model of the round", "give --rehearsal, or another model")
    if tables.models.get(benchmark, {}).get("agentic"):
        mistakes.add(f"{file}: model {options.model}: agentic benchmarks are not supported", "give another model")
    mistakes.refuse()
    assert seed_set is not None
    assert client is not None
    root = root or Path("output") / file.stem
    return CurveConfig(
        file, options, root.absolute(), tables, seed_set, servers, client, system, rows, benchmark, is_rehearsal
    )


def _check_seeds(
    mistakes: Mistakes, file: Path, options: CurveOptions, tables: RoundTables, *, is_rehearsal: bool
) -> SeedSet | None:
    """Return the seed set of the curve, and add mistakes in the set and the cohort."""
    cohort = parse_cohort(options.target_cohort)
    if cohort is None:
        mistakes.add(f"{file}: target_cohort {options.target_cohort}: not a cohort", "write, for example, 2026-12-C1")
    sets = tables.sets_named(options.seed_set)
    if not sets:
        names = ", ".join(dict.fromkeys(seed_set.name for seed_set in tables.seed_sets))
        mistakes.add(
            f"{file}: seed_set {options.seed_set}: unknown to this version, which has {names}",
            "give the published seedset.yaml: seed_sets: FILE",
        )
        return None
    if len({tuple(seed_set.seeds.items()) for seed_set in sets}) > 1:
        mistakes.add(
            f"{file}: seed_sets: the seeds of set {options.seed_set} differ from the published set of this name",
            "use the published seedset.yaml",
        )
    chosen = sets[0]
    if cohort is not None and not is_rehearsal:
        _check_cohort(mistakes, file, options, tables, chosen, cohort)
    return chosen


def _check_cohort(
    mistakes: Mistakes, file: Path, options: CurveOptions, tables: RoundTables, seed_set: SeedSet, cohort: Cohort
) -> None:
    day = today()
    open_cohorts = [candidate for candidate in seed_set.cohorts if checks_by(candidate, tables.exceptions) >= day]
    if checks_by(cohort, tables.exceptions) < day:
        following = open_cohorts[0] if open_cohorts else None
        mistakes.add(
            f"{file}: target_cohort {cohort}: checks had to pass by {day_text(checks_by(cohort, tables.exceptions))}",
            f"write target_cohort: {following}" if following else "repeat all points with a newer seed set",
        )
    if seed_set.cohorts and cohort not in seed_set.cohorts and not options.bound:
        last = seed_set.cohorts[-1]
        mistakes.add(
            f"{file}: target_cohort {cohort}: set {seed_set.name} can be adopted until cohort {last}",
            f"write target_cohort: {open_cohorts[0]}" if open_cohorts else
            "use a newer seed set and repeat all points, or write bound: true if a first submission has this set",
        )  # fmt: skip


def checks_by(cohort: Cohort, exceptions: Mapping[str, date]) -> date:
    """Return the day until which the automated checks of a cohort must pass: one business day before it."""
    day = cohort.day(exceptions) - timedelta(days=1)
    while day.weekday() > 4:
        day -= timedelta(days=1)
    return day


def _check_datasets(mistakes: Mistakes, file: Path, options: CurveOptions) -> None:
    kinds = [str(dataset.get("type", PERFORMANCE)) for dataset in options.datasets]
    if kinds.count(PERFORMANCE) != 1:
        mistakes.add(f"{file}: datasets: {kinds.count(PERFORMANCE)} of type performance, required: 1", _EXAMPLE)
    if ACCURACY not in kinds:
        mistakes.add(f"{file}: datasets: none of type accuracy", "add the benchmark's accuracy dataset")
    if unknown := sorted(set(kinds) - {PERFORMANCE, ACCURACY}):
        mistakes.add(f"{file}: datasets: type {unknown[0]}: unknown", "write performance or accuracy")
    for dataset in options.datasets:
        path = dataset.get("path")
        if isinstance(path, str) and not (file.parent / path).exists():
            mistakes.add(f"{file}: datasets: {path}: no such file", "give the path of the dataset")


def _check_levels(mistakes: Mistakes, file: Path, options: CurveOptions, tables: RoundTables, servers: int) -> None:
    """Add mistakes in the numbers and concurrencies of the points."""
    ultra_low = tables.points["ultra_low"]
    for name in ("c_max", "max_concurrency"):
        if (level := getattr(options, name)) is not None and level <= ultra_low:
            mistakes.add(f"{file}: {name} {level}: must be above {ultra_low}", f"write, for example, {name}: 1024")
    highest = max([options.c_max or 0, *(options.concurrencies or ())])
    if servers and highest > MAX_CONNECTIONS * servers:
        mistakes.add(
            f"{file}: concurrency {highest:,}: {servers} URLs carry about {MAX_CONNECTIONS * servers:,} connections",
            "add server URLs with other IP addresses or ports",
        )
    if options.concurrencies is None:
        _check_count(mistakes, f"{file}: points", options.points, options.offline, tables)
        if options.c_min is not None and options.c_min > ultra_low:
            problem = f"{file}: c_min {options.c_min}: must be at most {ultra_low}"
            mistakes.add(problem, f"write, for example, c_min: {ultra_low}")
        return
    levels = set(options.concurrencies)
    if min(levels, default=1) < 1:
        mistakes.add(f"{file}: concurrencies: {min(levels)}: must be at least 1", "remove it")
    count = len(levels) + (options.offline == DEDICATED)
    _check_count(mistakes, f"{file}: points of concurrencies and offline", count, options.offline, tables)
    for name in ("c_min", "c_max"):
        if getattr(options, name) is not None:
            mistakes.add(f"{file}: {name}: contradicts concurrencies", f"remove {name} or concurrencies")


def _check_count(mistakes: Mistakes, place: str, count: int, offline: str, tables: RoundTables) -> None:
    """Add a mistake if the round forbids a number of points, which includes a dedicated Offline run."""
    least, most = tables.point_limits(is_dedicated=offline == DEDICATED)
    if not least <= count <= most:
        mistakes.add(f"{place}: {count}: must be {least} to {most} with offline: {offline}", "correct the number")


def _read_facts(path: Path, place: str) -> dict[str, Any]:
    """Read a system description in JSON or YAML."""
    if not path.is_file():
        raise InputError(f"{place}: {path}: no such file", "give the path of system_desc.json")
    content = read_yaml(path, place)  # JSON is YAML
    facts: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return facts


def _rows(file: Path, options: CurveOptions) -> int:
    """Return the rows of the performance dataset.

    Raises:
        InputError: If the file is neither JSON nor JSONL, and `rows` is missing.
    """
    if options.rows is not None:
        return options.rows
    dataset = next((dataset for dataset in options.datasets if dataset.get("type", PERFORMANCE) == PERFORMANCE), {})
    path = file.parent / str(dataset.get("path", ""))
    if path.suffix == ".jsonl" and path.is_file():
        with path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    if path.suffix == ".json" and path.is_file():
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise InputError(f"{path}: {error}", "correct the file") from error
        if isinstance(content, list):
            return len(content)
    raise InputError(f"{file}: rows: missing, and the rows of {path.name} cannot be counted", "write rows: 13368")
