"""Strict reading of user.conf, and comparing it with LoadGen's log.

LoadGen silently ignores unknown keys, wrong model or scenario names and `a=b` without spaces, and reads `1e3` as 1.
Here such a line is an error with its number. Accepted lines are `model.scenario.key = value`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.reading import read_whole

SCENARIOS = ("Offline", "Server", "SingleStream", "MultiStream")

# Keys LoadGen 6.0.17 honours from user.conf, by value kind (test_settings_internal / TestSettings::FromConfig).
INTEGER_KEYS = {
    "mode", "use_token_latencies", "ttft_latency", "tpot_latency", "infer_token_latencies",
    "token_latency_scaling_factor", "samples_per_query", "target_latency", "performance_issue_unique",
    "performance_issue_same", "performance_issue_same_index", "sample_concatenate_permutation", "coalesce_queries",
    "max_async_queries", "min_duration", "max_duration", "min_query_count", "max_query_count",
    "performance_sample_count_override", "accuracy_sample_count_override", "print_timestamps",
    "accuracy_log_rng_seed", "accuracy_log_sampling_target",
}  # fmt: skip
REAL_KEYS = {"target_qps", "target_latency_percentile"}

HIGHEST_QPS = 1e6  # more than any system reaches; LoadGen prepares every query of the run beforehand

# Keys that LoadGen reads only from its compiled-in settings.
EMBEDDED_ONLY_KEYS = {
    "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed", "accuracy_log_probability",
    "test05", "test05_qsl_rng_seed", "test05_sample_index_rng_seed", "test05_schedule_rng_seed",
}  # fmt: skip

# Keys that LoadGen reads for one scenario only.
SCENARIO_KEYS = {
    "coalesce_queries": {"Server"},
    "max_async_queries": {"Server"},
    "samples_per_query": {"MultiStream"},
    "target_qps": {"Server", "Offline"},
    "target_latency": {"Server", "SingleStream", "MultiStream"},
    "target_latency_percentile": {"Server", "SingleStream", "MultiStream"},
}

# With a zero LoadGen crashes or never ends.
POSITIVE_KEYS = {"target_qps", "min_query_count", "target_latency_percentile"}
LARGEST_INTEGER = 10**12  # 30 years in ms; LoadGen's own arithmetic overflows above 9 × 10**12 ms
LARGEST_SEED = 2**64 - 1

_BLANKS = " \t\r\v\f"  # LoadGen's white space; Python's includes that of Unicode
_INTEGER = re.compile(r"(0|[1-9][0-9]{0,30})")
_REAL = re.compile(r"(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?")


@dataclass(frozen=True)
class Setting:
    """One accepted line."""

    line: int
    model: str
    scenario: str
    key: str
    value: str

    @property
    def name(self) -> str:
        return f"{self.model}.{self.scenario}.{self.key}"


def read_conf(path: Path, flag: str = "--user-conf") -> tuple[Setting, ...]:
    """Read and parse a LoadGen configuration file."""
    return parse_conf(read_conf_text(path, flag), path)


def read_conf_text(path: Path, flag: str) -> str:
    """The text of a configuration file.

    Raises:
        InputError: it cannot be read or is no text.
    """
    try:
        # not as text: a lone \r is no line end for LoadGen
        return read_whole(path, "name a readable file", option=flag).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{flag} {path} is not a text file: {error}", "name a LoadGen configuration file") from error


def parse_conf(text: str, path: Path) -> tuple[Setting, ...]:
    """Parse a LoadGen configuration; `path` is its name in messages.

    Raises:
        InputError: LoadGen would ignore or misread a line, or crash.
    """
    settings: list[Setting] = []
    for number, line in enumerate(text.split("\n"), start=1):
        setting = _parse_line(f"{path}:{number}", number, line)
        if setting is None:
            continue
        for earlier in settings:
            if earlier.name == setting.name:
                raise InputError(
                    f"{path}:{number}: {setting.name} is already set in line {earlier.line}", "keep one line"
                )
        settings.append(setting)
    return tuple(settings)


def _parse_line(place: str, number: int, line: str) -> Setting | None:
    words = re.findall(f"[^{_BLANKS}]+", line)
    if not words or words[0] == "#":
        return None
    for problem, fix in _problems(line, words):
        raise InputError(f"{place}: {problem}", fix)
    model, scenario, key = words[0].split(".")
    return Setting(number, model, scenario, key, words[2])


def _problems(line: str, words: list[str]) -> Iterator[tuple[str, str]]:
    """Problems of a line, and their fixes. Only the first is valid: each check assumes that the ones before passed."""
    for sign in line:
        if not sign.isascii() or (sign < " " and sign not in _BLANKS):
            yield f"LoadGen does not understand the character U+{ord(sign):04X}", "retype the line without it"
    if words[0].startswith("#"):
        yield f"LoadGen does not take {words[0]!r} as a comment", "put a space after the # sign"
    if len(words) != 3 or words[1] != "=":
        fix = "write `model.scenario.key = value`, for example `*.Server.target_qps = 10`"
        if "=" in line and "=" not in words:
            fix = "put spaces around the = sign; without them LoadGen ignores the line"
        elif len(words) > 3 and words[1] == "=" and words[3].startswith("#"):
            fix = "put the comment on a line of its own; after a value LoadGen rejects the whole file"
        yield f"LoadGen cannot read {line.strip()!r}", fix
    name, _, value = words
    if name.count(".") != 2:
        yield f"{name!r} is not `model.scenario.key`", "for example `*.Server.target_qps = 10`"
    model, scenario, key = name.split(".")
    if model not in ("*", *BENCHMARKS):
        yield f"LoadGen would ignore the model {model!r}", f"use * or one of {', '.join(BENCHMARKS)}"
    if scenario not in ("*", *SCENARIOS):
        fix = f"use * or one of {', '.join(SCENARIOS)}, spelled so"
        if scenario == "Interactive":
            fix = "use Server with the model of Interactive, llama3_1-8b-interactive say"
        yield f"LoadGen would ignore the scenario {scenario!r}", fix
    if key in EMBEDDED_ONLY_KEYS:
        come = "it comes from the settings of the round compiled into LoadGen"
        yield f"LoadGen ignores {key} here; {come}", "remove the line"
    if key not in INTEGER_KEYS | REAL_KEYS:
        yield f"LoadGen has no key {key!r} and would ignore it", "correct or remove the line"
    read_for = SCENARIO_KEYS.get(key, {scenario}) | {"*"}
    if scenario not in read_for:
        named = " and ".join(sorted(read_for - {"*"}))
        yield f"LoadGen reads {key} only for {named}, not for {scenario}", "correct or remove the line"
    given, real = f"{key} = {value}", key in REAL_KEYS
    if not (_REAL if real else _INTEGER).fullmatch(value):
        kind = "a decimal number like 12.5" if real else "a whole number like 600000"
        yield f"{given}: LoadGen would misread this value", f"write {kind}"
    if float(value) == 0 and (key in POSITIVE_KEYS or (key == "target_latency" and scenario != "Server")):
        yield f"{given}: LoadGen would crash or never end", "write a number above 0"
    if key == "target_qps" and float(value) > HIGHEST_QPS:
        yield f"{given}: LoadGen would draw its schedule for hours", f"write at most {HIGHEST_QPS:,.0f}"
    if key == "target_latency_percentile" and float(value) >= 100:
        yield f"{given}: LoadGen would crash", "write a number below 100"
    largest = LARGEST_SEED if key.endswith("seed") else LARGEST_INTEGER
    if not real and int(value) > largest:
        yield f"{given} is too large for LoadGen", f"write at most {largest}"


def lookup(settings: tuple[Setting, ...], model: str, scenario: str, key: str) -> str | None:
    """The value that LoadGen would use for a key."""
    found = in_force(settings, (model,), scenario, key)
    return None if found is None else found.value


def in_force(settings: Sequence[Setting], models: Sequence[str], scenario: str, key: str) -> Setting | None:
    """The line that LoadGen would use for a key: model.scenario, *.scenario, model.*, *.* in this order; of equal lines
    the last. `models` are names of one model."""
    for of_model, of_scenario in ((models, scenario), (("*",), scenario), (models, "*"), (("*",), "*")):
        for setting in reversed(settings):
            if setting.model in of_model and setting.scenario == of_scenario and setting.key == key:
                return setting
    return None


def lines_taken(text: str) -> Iterator[Setting]:
    """The lines of an untrusted file that LoadGen may use; others are skipped."""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        parts = words[0].split(".") if len(words) == 3 and words[1] == "=" else []
        if len(parts) >= 3:
            yield Setting(number, ".".join(parts[:-2]), parts[-2], parts[-1], words[2])


def with_setting(text: str, model: str, scenario: str, key: str, value: str) -> str:
    """The text with one value replaced: lines with the same setting are removed, and one is added at the end."""
    kept = [
        line
        for line in text.rstrip("\n").split("\n")
        if line.split()[:1] not in ([f"{model}.{scenario}.{key}"], [f"*.{scenario}.{key}"])
    ]
    return "\n".join([*kept, f"{model}.{scenario}.{key} = {value}", ""])


# Compared with the log --------------------------------------------------------------------------------------------

_SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")
_NS, _SHARE = 1e6, 0.01  # of a millisecond, of one per cent
# Record of a key in the log, and the factor to its unit. [loadgen] TestSettings::FromConfig
_ANY = {key: (f"requested_{key}", 1.0) for key in (*sorted(INTEGER_KEYS), *_SEEDS)} | {
    key: (f"requested_{key}_ms", 1.0) for key in ("min_duration", "max_duration")
}
_OF_SCENARIO: dict[str, dict[str, tuple[str, float]]] = {
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "Server": {
        **{key: (f"requested_server_{key}", 1) for key in ("target_qps", "coalesce_queries", "max_async_queries")},
        **{key: (f"requested_server_{key}", _NS) for key in ("ttft_latency", "tpot_latency")},
        "target_latency": ("requested_server_target_latency_ns", _NS),
        "target_latency_percentile": ("requested_server_target_latency_percentile", _SHARE),
    },
    "SingleStream": {
        "target_latency": ("requested_single_stream_expected_latency_ns", _NS),
        "target_latency_percentile": ("requested_single_stream_target_latency_percentile", _SHARE),
    },
}
# The setting that every run has to choose, and LoadGen's default.
_TARGETS = {"Offline": ("target_qps", 1.0), "Server": ("target_qps", 1.0), "SingleStream": ("target_latency", 0.0)}


@dataclass(frozen=True)
class Mismatch:
    """A setting that differs in the log. `line` is None if no line sets it; `logged` is in the key's unit."""

    key: str
    line: Setting | None
    record: str
    logged: float


def mismatches(
    lines: Sequence[Setting],
    models: Sequence[str],
    detail: DetailLog,
    left_out: Collection[str] = (),
    otherwise: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Mismatch]:
    """Settings of a configuration that differ in LoadGen's log.

    Args:
        lines: of user.conf, with numbers as values.
        models: names of one model.
        left_out: keys that something else decided.
        otherwise: known values of keys without a line (`counts.defaults`).
    """
    scenario = detail.scenario
    target, default = _TARGETS.get(scenario, ("", 0.0))
    otherwise = {target: default, **otherwise}
    for key, (record, factor) in {**_ANY, **_OF_SCENARIO.get(scenario, {})}.items():
        logged = detail.get(record)
        if key in left_out or not isinstance(logged, int | float):
            continue
        line = in_force(lines, models, scenario, key)
        if line is None:
            wrong = float(logged) != otherwise.get(key, float(logged))
        else:
            wrong = abs(float(line.value) * factor - float(logged)) > SIX_DIGITS * max(1.0, abs(float(logged)))
        if wrong:
            yield Mismatch(key, line, record, float(logged) / factor)
