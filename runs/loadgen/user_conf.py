"""Checking a user.conf or audit.config before a run. Lines that LoadGen would ignore or misread are refused, with a
fix.

Lines that LoadGen accepts are accepted with LoadGen's meaning (conf_lines.py). Harmless lines without effect, such as
those for other MLPerf benchmarks, are skipped with a note.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.files.reading import MIB, read_whole
from runs.loadgen.conf_lines import (
    HIGHEST_QPS,
    KEYS,
    SCENARIOS_OF,
    LineEffect,
    Setting,
    ValueKind,
    c_integer,
    c_real,
    decode_conf,
    effective_line,
    is_number,
    is_read,
    lines_of,
    lookup,
    number_of,
    overflows,
    setting_of,
    value_kind,
)
from runs.loadgen.defaults import defaults
from runs.rounds import CURRENT_ROUND, ROUNDS
from runs.wording import printable

SCENARIOS = ("Offline", "Server", "SingleStream", "MultiStream")
LARGEST_INTEGER = 10**12  # 30 years in ms; LoadGen's arithmetic overflows above 9 × 10**12 ms
LARGEST_INT = 2**31 - 1
MAX_PROBLEMS = 20  # maximum number of problems in one message

# Keys that LoadGen reads only from its compiled-in settings, and their values there.
_COMPILED_IN: dict[str, int] = {**asdict(CURRENT_ROUND.seeds), "accuracy_log_probability": 0, "test05": 0}
# Keys of MLCommons' compliance scripts, and seeds of a test that LoadGen has removed.
_OF_SCRIPTS = re.compile(r"test[0-9]{2}_\w+")
# Key in LoadGen's mlperf.conf or published files that LoadGen does not read → intended key.
_NOT_READ = {"performance_sample_count": "performance_sample_count_override", "target_duration": "min_duration"}
# Models of rounds before those in configs/rounds. [mlperf.conf]
_RETIRED = ("ssd-mobilenet", "ssd-resnet34", "mobilenet", "dlrm", "rnnt", "gptj", "gpt-j")


@dataclass(frozen=True)
class Problem:
    """A reason to refuse a file. `line` is None if a line is missing; `setting` is the setting that a faulty line is
    for.
    """

    line: int | None
    text: str
    fix: str
    setting: Setting | None = None


@dataclass(frozen=True)
class IgnoredLine:
    """A line without effect on the run."""

    setting: Setting
    why: str


@dataclass(frozen=True)
class _UnreadLine:
    """A line that LoadGen ignores; its harm depends on the other lines."""

    setting: Setting


@dataclass
class CheckedConf:
    """A configuration file, as LoadGen reads it for one model and scenario."""

    path: Path
    settings: list[Setting] = field(default_factory=list)  # settings for this model, of all scenarios
    ignored: list[IgnoredLine] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def note(self) -> str:
        """Lines without effect, in one sentence; empty if there are none."""
        groups: dict[str, list[int]] = {}
        for line in self.ignored:
            groups.setdefault(line.why, []).append(line.setting.line)
        if not groups:
            return ""
        listed = [f"{_lines(lines)} ({why})" for why, lines in list(groups.items())[:MAX_PROBLEMS]]
        if len(groups) > MAX_PROBLEMS:
            listed.append("and more")
        return f"{self.path}: without effect on this run: {'; '.join(listed)}"

    def refuse(self) -> None:
        """Raise an InputError with all problems, if there are any."""
        if not self.problems:
            return
        shown = sorted(self.problems, key=lambda problem: problem.line or math.inf)[:MAX_PROBLEMS]
        texts = [
            f"{self.path}{'' if problem.line is None else f':{problem.line}'}: {problem.text}\n  fix: {problem.fix}"
            for problem in shown
        ]
        if len(self.problems) > len(shown):
            texts.append(f"{self.path}: {len(self.problems) - len(shown)} more problems\n  fix: {shown[-1].fix}")
        message, _, fix = "\n".join(texts).rpartition("\n  fix: ")
        raise InputError(message, fix)


def _lines(numbers: Sequence[int]) -> str:
    """Return `line 3` or `lines 3, 5 to 9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a} to {b}" for a, b in runs[:MAX_PROBLEMS]]
    more = ", …" if len(runs) > MAX_PROBLEMS else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(shown)}{more}"


# Reading ----------------------------------------------------------------------------------------------------------


def read_conf_text(path: Path, flag: str) -> str:
    """Return the text of a configuration file; `encode_conf` gives the same bytes back.

    Raises:
        InputError: If the file is unreadable, or in an encoding that is not based on ASCII.
    """
    content = read_whole(path, "give a readable file", max_bytes=MIB, option=flag)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or 4 * content.count(0) > len(content):
        encoding = "UTF-32" if 2 * content.count(0) > len(content) else "UTF-16"
        raise InputError(f"{flag} {path}:1: {encoding} text; LoadGen finds no key in it", "save it as UTF-8")
    return decode_conf(content)


def check_conf(text: str, path: Path, benchmark: Benchmark, scenario: Scenario, *, audit: bool = False) -> CheckedConf:
    """Check the lines of a configuration for one run.

    Args:
        text: Text from `read_conf_text`.
        path: Name of the file in messages.
        audit: Whether LoadGen reads it as audit.config, with lines for the model * only.
    """
    return _ConfCheck(CheckedConf(path), benchmark, LOADGEN_SCENARIO[scenario], audit).check(text)


class _ConfCheck:
    def __init__(self, conf: CheckedConf, benchmark: Benchmark, scenario: str, audit: bool) -> None:
        self.conf, self.benchmark, self.scenario, self.audit = conf, benchmark, scenario, audit
        self.key = benchmark.loadgen_key
        self.models = ("*",) if audit else ("*", self.key)

    def check(self, text: str) -> CheckedConf:
        stored: dict[str, Setting] = {}
        unread: list[Setting] = []
        for number, words, effect in lines_of(text):
            match self._line(number, words, effect):
                case Setting() as setting:
                    if earlier := stored.pop(setting.name, None):
                        self.conf.ignored.append(IgnoredLine(earlier, f"{earlier.name} is set again"))
                    stored[setting.name] = setting
                case Problem() as problem:
                    self.conf.problems.append(problem)
                case IgnoredLine() as ignored:
                    self.conf.ignored.append(ignored)
                case _UnreadLine() as unread_setting:
                    unread.append(unread_setting.setting)
        self.conf.settings = list(stored.values())
        for setting in unread:
            self._compare_with_effective(setting)
        for key in KEYS:
            effective = effective_line(self.conf.settings, self.models, self.scenario, key)
            if (
                effective is not None
                and is_read(key, self.scenario)
                and (fault := _out_of_range(effective, self.scenario))
            ):
                self.conf.problems.append(Problem(effective.line, *fault, effective))
        return self.conf

    def _line(
        self, number: int, words: list[str], effect: LineEffect
    ) -> Setting | Problem | IgnoredLine | _UnreadLine | None:
        """Return the effect of a line; None if both LoadGen and the author regard it as a comment."""
        if effect is LineEffect.COMMENT:
            return None
        first = words[0]
        if first.startswith("\ufeff"):
            rest = first.removeprefix("\ufeff")
            if effect is LineEffect.DROPPED and (not rest or rest.startswith("#")):
                return None
            text = "LoadGen does not understand the byte order mark at the beginning of this line"
            return Problem(number, text, "save the file without a byte order mark")
        if first.startswith("#"):
            if effect in (LineEffect.REJECTED, LineEffect.NO_NUMBER):
                text = f"LoadGen reads {printable(first, 40)!r} as a key and rejects the file"
                return Problem(number, text, "put a space after the # sign")
            return None  # stored under a name that LoadGen does not read
        if effect in (LineEffect.REJECTED, LineEffect.DROPPED):
            return Problem(number, *_shape(words, effect))
        setting = setting_of(number, words)
        if odd_sign := _odd_sign(first):
            text = f"LoadGen does not understand {odd_sign} in the key and ignores the line"
            return Problem(number, text, "retype the line without this character", setting)
        name = self._name(setting)
        if effect is LineEffect.NO_NUMBER and not isinstance(name, Problem):
            return Problem(number, *_no_number(setting, words), setting)
        if isinstance(name, Setting) and (problem := _misread(setting, words[2:], self.scenario)):
            return Problem(number, *problem, setting)
        return name

    def _name(self, setting: Setting) -> Setting | Problem | IgnoredLine | _UnreadLine:
        """Return the effect of a line with this name."""
        scenario, key = setting.scenario, setting.key
        if not setting.model:
            shown = printable(".".join(filter(None, (scenario, key))), 60)
            fix = f"write `*.{scenario if scenario in SCENARIOS else self.scenario}.{printable(key, 60)}`"
            text = f"{shown!r} is not `model.scenario.key`; LoadGen ignores the line"
            return Problem(setting.line, text, fix, setting)
        if setting.model not in self.models:
            return self._other_model(setting)
        if scenario not in ("*", *SCENARIOS):
            fix = f"write * or one of {', '.join(SCENARIOS)}"
            if scenario == "Interactive":
                model = next(
                    benchmark.loadgen_key
                    for benchmark in BENCHMARKS.values()
                    if "Interactive" in benchmark.scenarios and benchmark.model is self.benchmark.model
                )
                fix = f"write `{_line(setting, model, 'Server')}`: Interactive is Server with a different model"
            text = f"{_shown(setting)}: LoadGen has no scenario {printable(scenario, 40)!r} and ignores the line"
            return Problem(setting.line, text, fix, setting)
        if _OF_SCRIPTS.fullmatch(key):
            return IgnoredLine(setting, f"only the scripts of MLCommons read {key}")
        if key in _COMPILED_IN or key in _NOT_READ:
            return _UnreadLine(setting)
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            fix = f"write {near[0]}, or remove the line" if near else "remove the line"
            text = f"{_shown(setting)}: LoadGen has no key {printable(key, 60)!r} and ignores the line"
            return Problem(setting.line, text, fix, setting)
        if not is_read(key, scenario):
            return IgnoredLine(setting, f"LoadGen reads {key} only for {' and '.join(SCENARIOS_OF[key])}")
        return setting

    def _other_model(self, setting: Setting) -> Problem | IgnoredLine:
        model, shown = setting.model, _shown(setting)
        if self.audit and model in (self.key, *_directories(self.key)):
            text = f"{shown}: LoadGen reads only lines for the model * from an audit configuration"
            return Problem(setting.line, text, f"write `{_line(setting, '*')}`", setting)
        if model in _directories(self.key):
            text = f"{shown}: LoadGen's name for this benchmark is {self.key}; it ignores the line"
            return Problem(setting.line, text, f"write `{_line(setting, self.key)}`", setting)
        if model in _known_models():
            return IgnoredLine(setting, f"for another benchmark, {model}")
        fix = "use the model name *" if self.audit else f"use the model name * or {self.key}"
        text = f"{shown}: LoadGen has no model {printable(model, 40)!r} and ignores the line"
        return Problem(setting.line, text, fix, setting)

    def _compare_with_effective(self, setting: Setting) -> None:
        """Refuse a line that LoadGen ignores, unless its value equals the effective value."""
        key, applies = setting.key, setting.scenario in ("*", self.scenario)
        read_key = _NOT_READ.get(key)
        effective = _COMPILED_IN[key] if read_key is None else self._effective(read_key)
        real, number = c_real(setting.value)[0], c_integer(setting.value)[0]
        if not applies or (real, number) == (float(effective), int(effective)) or (key, real) == ("target_duration", 0):
            self.conf.ignored.append(IgnoredLine(setting, f"LoadGen does not read {key} here"))
            return
        if read_key is None:
            text, fix = f"LoadGen ignores this key here and uses its built-in value {effective}", "remove the line"
        else:
            text = f"LoadGen has no key {key!r} and uses {read_key} = {effective:.15g}"
            fix = f"write {read_key}, or remove the line"
        self.conf.problems.append(Problem(setting.line, f"{_shown(setting)}: {text}", fix, setting))

    def _effective(self, key: str) -> float:
        setting = lookup(self.conf.settings, self.key, self.scenario, key)
        if setting is None and key == "performance_sample_count_override":
            return self.benchmark.performance_samples
        return defaults(self.benchmark, self.scenario)[key] if setting is None else setting


# Texts of problems ------------------------------------------------------------------------------------------------


def _shown(setting: Setting) -> str:
    return printable(f"{setting.name} = {setting.value}", 100)


def _line(setting: Setting, model: str, scenario: str = "") -> str:
    """Return the line for another model or scenario."""
    return printable(f"{model}.{scenario or setting.scenario}.{setting.key} = {setting.value}", 100)


_EXAMPLE = "write `model.scenario.key = value`, for example `*.Server.target_qps = 10`"


def _shape(words: Sequence[str], effect: LineEffect) -> tuple[str, str]:
    """Return the problem and the fix of a line that is not `key = value`."""
    shown, does = (
        printable(" ".join(words), 60),
        "rejects the file" if effect is LineEffect.REJECTED else "ignores the line",
    )
    if odd_sign := _odd_sign(" ".join(words)):
        return f"LoadGen does not understand {odd_sign} and {does}", "retype the line without this character"
    end = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
    key, sign, value = "".join(words[:end]).partition("=")
    if sign and "=" not in words:
        fix = f"put spaces around the = sign: `{printable(f'{key} = {value}', 80)}`"
    elif effect is LineEffect.DROPPED and sign:
        return f"{shown!r} has no value; LoadGen ignores the line", "write a value, or remove the line"
    else:
        fix = _EXAMPLE
    return f"LoadGen cannot read {shown!r} and {does}", fix


def _no_number(setting: Setting, words: Sequence[str]) -> tuple[str, str]:
    word = next(word for word in words[2:] if not is_number(word))
    shown = printable(f"{setting.name} = {word}", 100)
    if word.startswith("#"):
        fix = "put the comment on a line of its own"
        return f"{shown}: LoadGen reads the comment after the value as a value and rejects the file", fix
    if odd_sign := _odd_sign(word):
        return (
            f"{shown}: LoadGen does not understand {odd_sign} and rejects the file",
            "retype the line without this character",
        )
    fix = (
        "write each setting on a line of its own, with LF or CRLF at its end" if "=" in words[2:] else "write a number"
    )
    return f"{shown}: must be a number; LoadGen rejects the file", fix


def _odd_sign(text: str) -> str:
    """Return the first character that is not ASCII or not printable, as text; empty if all are valid."""
    for sign in text:
        if "\udc80" <= sign <= "\udcff":
            return f"the byte 0x{ord(sign) - 0xDC00:02X}, which is not UTF-8 (Latin-1 text?),"
        if not sign.isascii() or not sign.isprintable():
            return f"the character U+{ord(sign):04X}"
    return ""


def _misread(setting: Setting, values: Sequence[str], run_scenario: str) -> tuple[str, str] | None:
    """Return the problem of a value that LoadGen does not read as the written number."""
    scenario = run_scenario if setting.scenario == "*" else setting.scenario
    if not is_read(setting.key, scenario):
        return None
    real, _ = c_real(setting.value)
    shown = printable(f"{setting.name} = {' '.join(values)}", 100)
    if len({c_real(value)[0] for value in values}) > 1:
        return f"{shown}: LoadGen uses only the last of these values", "write one value"
    if value_kind(setting.key, scenario) is ValueKind.REAL:
        return None if math.isfinite(real) else (f"{shown}: must be a finite number", "write a number like 12.5")
    number, _ = c_integer(setting.value)
    if real == float(number) and not overflows(setting.value):
        return None
    fix = f"write {real:.0f}" if 0 <= real <= LARGEST_INTEGER and real == int(real) else "write a whole number"
    return f"{shown}: LoadGen reads {number}", fix


def _out_of_range(setting: Setting, scenario: str) -> tuple[str, str] | None:
    """Return the problem of a value with which LoadGen would fail."""
    key, number = setting.key, number_of(setting.value, value_kind(setting.key, scenario))
    most: float = LARGEST_INT if key == "max_async_queries" else LARGEST_INTEGER
    if key == "target_qps":
        most = HIGHEST_QPS
    if key == "target_latency_percentile":
        allowed, fix = 0 < number < 100, "write a number above 0 and below 100"
    elif key == "target_qps" or (key == "target_latency" and scenario != "Server"):
        allowed, fix = 0 < number <= most, f"write a number above 0, at most {most:,.0f}"
    else:
        allowed, fix = number <= most or key.endswith("seed"), f"write at most {most:,.0f}"
    return None if allowed else (f"{_shown(setting)}: LoadGen cannot run with this value", fix)


# Models -----------------------------------------------------------------------------------------------------------


@cache
def _known_models() -> frozenset[str]:
    """Return LoadGen's names of all MLPerf models, and the names of their directories in a submission."""
    models = {*BENCHMARKS, *_RETIRED}
    for round_ in ROUNDS.values():
        for name, entry in round_.table.benchmarks.items():
            models |= {name, *entry.aliases, *entry.loadgen_keys.values(), entry.model}
    return frozenset(models)


@cache
def _directories(key: str) -> frozenset[str]:
    """Return the names of the benchmark's directories in submissions. LoadGen does not recognize these names."""
    names = {key.replace("_", ".")} | {BENCHMARKS[key].submission_name}
    loadgen_keys = set(BENCHMARKS)
    for round_ in ROUNDS.values():
        for name, entry in round_.table.benchmarks.items():
            if key in entry.loadgen_keys.values():
                names |= {name, *entry.aliases}
            loadgen_keys |= set(entry.loadgen_keys.values())
    return frozenset(names - loadgen_keys)
