"""Parser of `mlperf_log_detail.txt`: the `:::MLLOG {json}` records that LoadGen writes.

Reads the logs of the LoadGen versions from OLDEST to NEWEST. Damage is an `InputError` with the line number.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from runs.errors import InputError, names_its_file
from runs.files.reading import DETAIL_LOG, bounded_lines
from runs.rounds import Seeds

PREFIX = b":::MLLOG "
OLDEST, NEWEST = (4, 0, 0), (6, 0, 17)  # LoadGen versions whose logs are supported; NEWEST is the installed version
OF_ROUNDS = (5, 0, 0)  # oldest version that a supported round requires
_COUNTS_ERRORS = (5, 0, 21)  # first version that ends its results with num_errors; 5.0.15 and round v5.1's 4.1 do not
# First version whose generated_samples_per_query includes padding [mlcommons/inference ef1bd3b9]
_COUNTS_PADDING = (5, 0, 11)
_ONE_OFFLINE_QUERY = (5, 0, 6)  # first version that always generates one Offline query [mlcommons/inference 1f73d4c2]
SIX_DIGITS = 1e-5  # relative error of LoadGen's floating-point numbers, which have six digits
_CLOCK_CHANGES_S = (0, 3600, -3600)  # no change of the local clock, to winter time, to summer time
_LAST_RECORD_S = 1.0  # tolerance for power_end after the last record
# Part of the name of a system that LoadGen reaches over a network. [inference_rules.adoc; checker constants.py]
NETWORK_SUT = "Network SUT"
# Limit of kept error records: LoadGen may write one per sample. Further errors are only counted.
MAX_KEPT_RECORDS = 1000
MAX_PROCESSES = 8  # limit of kept process IDs
# LoadGen's clock counts from the start of the test. Earlier records have times above this limit, because they wrap.
BEFORE_START_MS = 1e12
# Keys that LoadGen may write repeatedly in a run.
_REPEATED = frozenset({"generic_message", "loaded_qsl_set", "early_stopping_result"})
_FIELDS = (b'"key"', b'"value"', b'"time_ms"', b'"metadata"', b'"is_error"')
# C++ doubles that JSON cannot express.
_NOT_A_NUMBER = re.compile(rb'"value": (-?)(nan|inf)(?=,)')


class TruncatedLogError(InputError):
    """The last line of the log is cut off: LoadGen was stopped while writing, or the copy is incomplete."""


@dataclass(frozen=True)
class LogRecord:
    """An error or warning of LoadGen. `time_ms` is relative to the start of the test; earlier times wrap to about
    1.8e13.
    """

    key: str
    value: Any
    time_ms: float
    line_number: int

    def __str__(self) -> str:
        return f"{self.key}: {self.value}"


@dataclass
class DetailLog:
    """The content of a detail log. A key that occurs repeatedly has its last value."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    errors: list[LogRecord] = field(default_factory=list)
    warnings: list[LogRecord] = field(default_factory=list)
    error_count: int = 0  # number of all errors, including those beyond MAX_KEPT_RECORDS
    warning_count: int = 0
    last_ms: float = 0.0  # time_ms of the last record
    processes: set[int | None] = field(default_factory=set)  # process IDs of the records; None for a record without one
    step_back: tuple[int, float, float] | None = (
        None  # first record with an earlier time: line, time before it, its time
    )
    # Key → line of its second record, for keys that LoadGen writes once.
    repeated: dict[str, int] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    @property
    def is_network(self) -> bool:
        """True if the system's name marks a system that is reached over a network."""
        return NETWORK_SUT in str(self.get("sut_name"))

    @property
    def finished(self) -> bool:
        """True if LoadGen reached the end of the timed run."""
        return "power_end" in self.values

    @property
    def window_s(self) -> float | None:
        """Seconds from power_begin to power_end; None if one of them is missing or invalid.

        LoadGen logs both as local times. An hour is added or subtracted if the times then fit the time of the last
        record, which counts from the start of the test: the clock changed to or from summer time.
        """
        begin, end = power_time(self.get("power_begin")), power_time(self.get("power_end"))
        if begin is None or end is None:
            return None
        window_s, most_s = (end - begin).total_seconds(), self.last_ms / 1000 + _LAST_RECORD_S
        possible = [length_s for change_s in _CLOCK_CHANGES_S if 0 <= (length_s := window_s + change_s) <= most_s]
        return max(possible, default=window_s)

    @property
    def has_results(self) -> bool:
        """True if the log has the results of a performance run."""
        return "result_validity" in self.values

    @property
    def scenario(self) -> str:
        """LoadGen's scenario: Offline, Server, SingleStream or MultiStream."""
        return self._text("effective_scenario", "requested_scenario")

    @property
    def mode(self) -> str:
        """PerformanceOnly, AccuracyOnly, SubmissionRun or FindPeakPerformance."""
        return self._text("effective_test_mode", "requested_test_mode")

    @property
    def validity(self) -> str | None:
        """VALID or INVALID; None without a result."""
        value = self.get("result_validity")
        return value if isinstance(value, str) else None

    @cached_property
    def version(self) -> tuple[int, ...]:
        """LoadGen's version, for example (6, 0, 17).

        Without a version it is NEWEST, so that the log must have all records of that version; an invalid version gives
        ().
        """
        text = self.get("loadgen_version")
        if text is None:
            return NEWEST
        match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?: @.*)?", str(text))
        return tuple(int(part or 0) for part in match.groups()) if match else ()

    def unknown_version(self, oldest: tuple[int, ...] = OLDEST) -> str:
        """Return a sentence if LoadGen's version is older than `oldest`, newer than NEWEST, or missing."""
        if oldest <= self.version <= NEWEST:
            return ""
        supported = " to ".join(".".join(map(str, version)) for version in (oldest[:2], NEWEST))
        age = "not among" if not self.version else "older than" if self.version < oldest else "newer than"
        return f"LoadGen {str(self.get('loadgen_version'))[:40]} is {age} the supported versions ({supported})"

    @property
    def counts_errors(self) -> bool:
        """True if this LoadGen ends its results with num_errors."""
        return self.version >= _COUNTS_ERRORS

    @property
    def samples_per_query(self) -> int | None:
        """Samples that LoadGen put into each query; None if the log does not state the number.

        With sample_concatenate_permutation, LoadGen pads an Offline query to whole datasets. Older versions log the
        number before padding, and versions before July 2024 do not log the setting.
        """
        logged = self.integer("generated_samples_per_query")
        if self.scenario != "Offline" or self.version >= _COUNTS_PADDING:
            return logged
        fills_up = self.effective("sample_concatenate_permutation")
        one_set = min(self.integer("qsl_reported_total_count"), self.integer("effective_performance_sample_count"))
        if fills_up is None or one_set <= 0:
            return None
        return -(-logged // one_set) * one_set if fills_up else logged

    @property
    def queries_generated(self) -> int:
        """Number of queries that LoadGen prepared; older versions include Offline queries that they never issue."""
        logged = self.integer("generated_query_count")
        return min(1, logged) if self.scenario == "Offline" and self.version < _ONE_OFFLINE_QUERY else logged

    @property
    def uses_token_latencies(self) -> bool:
        return self.get("requested_use_token_latencies") is True

    @cached_property
    def loaded_qsl_set(self) -> list[int]:
        """Sample indices that LoadGen loaded, in its order; of an accuracy run with multiple sets, the last set."""
        value: list[int] = self._typed("loaded_qsl_set", list)
        if set(map(type, value)) - {int} or min(value, default=0) < 0:
            raise self.missing("loaded_qsl_set", value)
        return value

    @property
    def seeds(self) -> Seeds:
        return Seeds(
            self.integer("effective_qsl_rng_seed"),
            self.integer("effective_sample_index_rng_seed"),
            self.integer("effective_schedule_rng_seed"),
        )

    def effective(self, name: str, default: Any = None) -> Any:
        """Return the value of `effective_<name>`, after user.conf and audit.config."""
        return self.get(f"effective_{name}", default)

    def number(self, key: str) -> float:
        """Return a number; like `integer` and `flag`, raise InputError if it is missing or of another type."""
        return float(self._typed(key, int, float))

    def integer(self, key: str) -> int:
        """Return a whole number, without rounding."""
        return int(self._typed(key, int))

    def flag(self, key: str) -> bool | None:
        """Return True or False; None if LoadGen writes none."""
        return None if self.get(key) is None else bool(self._typed(key, bool))

    def _typed(self, key: str, *types: type) -> Any:
        value = self.get(key)
        if type(value) not in types:
            raise self.missing(key, value)
        return value

    def missing(self, key: str, value: Any) -> InputError:
        shown = "null" if value is None else repr(str(value)[:60])
        problem = f"has the value {shown} in the record" if key in self.values else "has no record"
        fix = "give the complete mlperf_log_detail.txt of a LoadGen run"
        return InputError(f"{self.path} {problem} {key!r}", fix, path=self.path)

    def _text(self, *keys: str) -> str:
        for key in keys:
            value = self.get(key)
            if isinstance(value, str):
                return value
        raise self.missing(keys[0], self.get(keys[0]))


def power_time(value: object) -> datetime | None:
    """Return the local time of `power_begin` or `power_end`, as if it were UTC; None if invalid."""
    try:
        return datetime.strptime(f"{value}+0000", "%m-%d-%Y %H:%M:%S.%f%z")
    except ValueError:
        return None


@names_its_file
def read_detail(path: Path) -> DetailLog:
    """Parse a detail log.

    Raises:
        TruncatedLogError: If the last line is cut off.
        InputError: If the log is missing, empty, not from LoadGen, or damaged; it names the line.
    """
    log, seen = DetailLog(path), set[str]()
    fix = "give the path of a LoadGen detail log"
    for number, log_line in bounded_lines(path, DETAIL_LOG, fix):
        cut = not log_line.endswith(b"\n")
        line = log_line.strip()
        if not line:
            continue
        if not line.startswith(PREFIX):
            begun = cut and PREFIX.startswith(line)
            problem = "is cut off" if begun else f"starts with {line[:40]!r}, not with ':::MLLOG'"
            raise _damaged(path, number, problem, cut)
        _add_record(log, seen, line[len(PREFIX) :], number, cut)
    if not log.values:
        raise InputError(f"{path} is empty", "rerun, because the run was stopped before LoadGen wrote its log")
    return log


def _add_record(log: DetailLog, seen: set[str], text: bytes, number: int, cut: bool) -> None:
    """Add one record to the log."""
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        record = _with_special_number(text)
        if record is None:
            raise _damaged(log.path, number, f"is not valid JSON ({error})", cut) from error
    if not isinstance(record, dict) or not isinstance(key := record.get("key"), str) or "value" not in record:
        raise _damaged(log.path, number, "has no key and value", cut)
    metadata = record.get("metadata")
    time_ms = record.get("time_ms")
    if not isinstance(metadata, dict) or not isinstance(time_ms, int | float):
        raise _damaged(log.path, number, f"({key}) has no time_ms or no metadata", cut)
    if max(map(text.count, _FIELDS)) > 1:  # quotes within a text are escaped
        raise _damaged(log.path, number, f"({key}) has a field twice", cut)
    is_error, is_warning = metadata.get("is_error"), metadata.get("is_warning")
    if type(is_error) is not bool or type(is_warning) is not bool:
        raise _damaged(log.path, number, f"({key}) has no is_error or no is_warning", cut)
    process = metadata.get("pid")
    if len(log.processes) < MAX_PROCESSES:
        log.processes.add(process if type(process) is int else None)
    if time_ms < log.last_ms < BEFORE_START_MS and log.step_back is None:
        log.step_back = number, log.last_ms, time_ms
    log.values[key], log.last_ms = record["value"], time_ms
    log.error_count += is_error
    log.warning_count += is_warning and not is_error
    if is_error or is_warning:
        kept = log.errors if is_error else log.warnings
        if len(kept) < MAX_KEPT_RECORDS:
            kept.append(LogRecord(key, record["value"], float(time_ms), number))
    elif key not in _REPEATED:
        if key in seen:
            log.repeated.setdefault(key, number)
        seen.add(key)


def _with_special_number(text: bytes) -> Any:
    """Return a record whose value is a bare nan or inf, such as a rate over zero time; None for other damage."""
    match = _NOT_A_NUMBER.search(text)
    if match is None:
        return None
    try:
        record = orjson.loads(text[: match.start()] + b'"value": null' + text[match.end() :])
    except orjson.JSONDecodeError:
        return None
    return record | {"value": float(match[1] + match[2])} if isinstance(record, dict) else None


def _damaged(path: Path, number: int, problem: str, cut: bool) -> InputError:
    if cut:
        return TruncatedLogError(
            f"{path} line {number} {problem}: the file ends in the middle of a line",
            "copy the complete log; if the run was stopped before LoadGen had finished, rerun",
            line=number,
        )
    return InputError(
        f"{path} line {number} {problem}", "give the unchanged mlperf_log_detail.txt that LoadGen wrote", line=number
    )
