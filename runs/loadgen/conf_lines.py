"""LoadGen's parsing of a configuration file: lines, numbers, and the line that counts for a key.

The tests give the same files to LoadGen and to this module, and compare the settings.

Source: mlcommons/inference loadgen/test_settings_internal.cc, TestSettings::FromConfig (commit b66003e1)
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from runs.errors import InputError
from runs.files.reading import read_whole

WHITE_SPACE = " \t\r\v\f"  # LoadGen's white space within a line; Python's includes Unicode characters
HIGHEST_QPS = 1e6  # above the rate of any system; LoadGen prepares every query before the run
LARGEST_UINT64 = 2**64 - 1
_WORD = re.compile(f"[^{WHITE_SPACE}]+")


# Texts ------------------------------------------------------------------------------------------------------------


def decode_conf(content: bytes) -> str:
    """Return the text of a file; `encode_conf` gives the same bytes back, whatever their encoding is."""
    return content.decode(errors="surrogateescape")


def encode_conf(text: str) -> bytes:
    """Return the bytes of a text from `decode_conf`."""
    return text.encode(errors="surrogateescape")


# Numbers ----------------------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<octal>0[0-7]*)|(?P<decimal>[1-9][0-9]*))")
_HEX_REAL = re.compile(r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE)
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[+-]?(?:inf(?:inity)?|nan(?:\([0-9a-z_]*\))?)", re.IGNORECASE)
_BASES = {"hex": 16, "octal": 8, "decimal": 10}
_DIGITS_OF_UINT64 = 22  # in base 8, the longest form; Python refuses to convert thousands of digits


def c_integer(text: str) -> tuple[int, str]:
    """Return the number that C's strtoull(text, …, 0) reads at the beginning of a word, and the rest of the word."""
    match = _INTEGER.match(text)
    if match is None:
        return 0, text
    number = min(_magnitude(match), LARGEST_UINT64)
    if text.startswith("-") and not overflows(text):
        number = -number % (LARGEST_UINT64 + 1)
    return number, text[match.end() :]


def overflows(text: str) -> bool:
    """Return whether the whole number at the beginning of a word is too large for strtoull."""
    match = _INTEGER.match(text)
    return match is not None and _magnitude(match) > LARGEST_UINT64


def _magnitude(match: re.Match[str]) -> int:
    kind = match.lastgroup or ""
    digits = match[kind].lstrip("0") or "0"
    return int(digits, _BASES[kind]) if len(digits) <= _DIGITS_OF_UINT64 else LARGEST_UINT64 + 1


def c_real(text: str) -> tuple[float, str]:
    """Return the number that C's strtod reads at the beginning of a word, and the rest of the word."""
    if match := _NO_NUMBER.match(text):
        return float(match[0].partition("(")[0]), text[match.end() :]
    if match := _HEX_REAL.match(text):
        try:
            return float.fromhex(match[0]), text[match.end() :]
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf, text[match.end() :]
    match = _REAL.match(text)
    return (0.0, text) if match is None else (float(match[0]), text[match.end() :])


def is_number(word: str) -> bool:
    """Return whether LoadGen accepts a word as a value; otherwise it rejects the file."""
    return bool(word) and not (c_integer(word)[1] and c_real(word)[1])


# Keys -------------------------------------------------------------------------------------------------------------


class ValueKind(Enum):
    """LoadGen's type of a value."""

    INTEGER = "integer"  # strtoull
    REAL = "real"  # strtod
    ONE = "on for 1 only"
    SWITCH = "off for 0 only"


_KINDS = {
    ValueKind.INTEGER: (
        "mode", "ttft_latency", "tpot_latency", "token_latency_scaling_factor", "samples_per_query", "target_latency",
        "performance_issue_same_index", "max_async_queries", "min_duration", "max_duration", "min_query_count",
        "max_query_count", "performance_sample_count_override", "accuracy_sample_count_override",
        "accuracy_log_rng_seed", "accuracy_log_sampling_target",
    ),
    ValueKind.REAL: ("target_qps", "target_latency_percentile"),
    ValueKind.ONE: ("use_token_latencies", "infer_token_latencies", "sample_concatenate_permutation"),
    ValueKind.SWITCH: ("performance_issue_unique", "performance_issue_same", "coalesce_queries", "print_timestamps"),
}  # fmt: skip
# Keys that LoadGen reads from user.conf and audit.config.
KEYS: dict[str, ValueKind] = {key: kind for kind, keys in _KINDS.items() for key in keys}
# Keys that LoadGen reads only for some scenarios.
SCENARIOS_OF: dict[str, tuple[str, ...]] = {
    "ttft_latency": ("Server",),
    "tpot_latency": ("Server",),
    "coalesce_queries": ("Server",),
    "max_async_queries": ("Server",),
    "samples_per_query": ("MultiStream",),
    "target_qps": ("Server", "Offline"),
    "target_latency": ("Server", "SingleStream", "MultiStream"),
    "target_latency_percentile": ("Server", "SingleStream", "MultiStream"),
}


def value_kind(key: str, scenario: str) -> ValueKind:
    """Return how LoadGen reads a key of a scenario."""
    return ValueKind.REAL if key == "target_latency" and scenario != "Server" else KEYS[key]


def is_read(key: str, scenario: str) -> bool:
    """Return whether LoadGen reads a key for a scenario; `*` stands for all scenarios."""
    return key in KEYS and (scenario == "*" or scenario in SCENARIOS_OF.get(key, (scenario,)))


def number_of(value: str, kind: ValueKind) -> int | float:
    """Return the number that LoadGen sets; switches are 0 or 1."""
    if kind is ValueKind.REAL:
        return c_real(value)[0]
    number = c_integer(value)[0]
    if kind is ValueKind.INTEGER:
        return number
    return int(number == 1) if kind is ValueKind.ONE else int(number != 0)


# Lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A line that LoadGen stores. `model`, `scenario` and `key` are the parts of a name with three parts."""

    line: int
    model: str
    scenario: str
    key: str
    value: str

    @property
    def name(self) -> str:
        return f"{self.model}.{self.scenario}.{self.key}"


class LineEffect(Enum):
    """LoadGen's handling of a line."""

    COMMENT = "nothing to read"
    DROPPED = "ignored, because it has no value"
    REJECTED = "file rejected: the second word is not ="
    NO_NUMBER = "file rejected: a value is not a number"
    STORED = "stored under its first word"


def words_of(line: str) -> list[str]:
    """Return the words of a line, as LoadGen separates them."""
    return _WORD.findall(line)


def effect_of(words: Sequence[str]) -> LineEffect:
    """Return what LoadGen does with a line of these words."""
    if not words or words[0] == "#":
        return LineEffect.COMMENT
    if len(words) == 1 or words[1] == "#":
        return LineEffect.DROPPED
    if words[1] != "=":
        return LineEffect.REJECTED
    if not all(map(is_number, words[2:])):
        return LineEffect.NO_NUMBER
    return LineEffect.STORED if len(words) > 2 else LineEffect.DROPPED


def setting_of(number: int, words: Sequence[str]) -> Setting:
    """Return the setting of a stored line; its last value counts."""
    model, scenario, key = ["", "", *words[0].rsplit(".", 2)][-3:]
    return Setting(number, model, scenario, key, words[-1])


def lines_of(text: str) -> Iterator[tuple[int, list[str], LineEffect]]:
    """Yield the lines of a file: number, words, and what LoadGen does with it."""
    for number, line in enumerate(text.split("\n"), start=1):
        words = words_of(line)
        yield number, words, effect_of(words)


def stored_lines(text: str) -> tuple[Setting, ...]:
    """Return the lines that LoadGen stores, even if it rejects the file for another line."""
    return tuple(setting_of(number, words) for number, words, effect in lines_of(text) if effect is LineEffect.STORED)


def read_stored(path: Path) -> tuple[Setting, ...]:
    """Return the settings of a file that LoadGen has read.

    Raises:
        InputError: If the file is unreadable, or LoadGen rejects it.
    """
    return accepted_lines(decode_conf(read_whole(path, "give a readable file")), path)


def accepted_lines(text: str, path: Path) -> tuple[Setting, ...]:
    """Return the settings of a text that LoadGen has read; `path` is the name in messages.

    Raises:
        InputError: If LoadGen rejects it.
    """
    settings = []
    for number, words, effect in lines_of(text):
        if effect in (LineEffect.REJECTED, LineEffect.NO_NUMBER):
            raise InputError(f"{path}:{number}: LoadGen rejects the file for this line", "restore the file", path=path)
        if effect is LineEffect.STORED:
            settings.append(setting_of(number, words))
    return tuple(settings)


# Settings ---------------------------------------------------------------------------------------------------------


def effective_line(settings: Sequence[Setting], models: Sequence[str], scenario: str, key: str) -> Setting | None:
    """Return the line that LoadGen uses for a key. The order is model.scenario, *.scenario, model.*, *.*; among equal
    lines the last counts. `models` are the names of one model.
    """
    for of_model, of_scenario in ((models, scenario), (("*",), scenario), (models, "*"), (("*",), "*")):
        for setting in reversed(settings):
            if setting.key == key and setting.model in of_model and setting.scenario == of_scenario:
                return setting
    return None


def lookup(settings: Sequence[Setting], model: str, scenario: str, key: str) -> int | float | None:
    """Return the number that LoadGen uses for a key of a scenario; None if no line sets it."""
    setting = effective_line(settings, (model,), scenario, key) if is_read(key, scenario) else None
    return None if setting is None else number_of(setting.value, value_kind(key, scenario))


def with_setting(text: str, model: str, scenario: str, key: str, value: str) -> str:
    """Return the text with one value replaced: lines with the same setting are removed, and one is added at the end."""
    replaced = ([f"{model}.{scenario}.{key}"], [f"*.{scenario}.{key}"])
    kept = [line for line in text.rstrip("\n").split("\n") if words_of(line)[:1] not in replaced]
    return "\n".join([*kept, f"{model}.{scenario}.{key} = {value}", ""])
