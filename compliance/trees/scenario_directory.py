"""The directory of a scenario in a tree: its claim, its runs, and the values that identify the runs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self, cast

from compliance.accuracy.accuracy_text import FIX, stated_hash, stated_score
from compliance.judge.rule import OURS, Need, decides
from compliance.judge.verdict import Finding, Subject, compared
from compliance.results.log_numbers import mean_output_tokens
from compliance.results.run_claim import RunClaim, official_scenario, required_ms
from compliance.results.run_evidence import MODE_NAMES, RunEvidence
from compliance.trees.descriptions import mapped_benchmark
from compliance.trees.findings import UNSAFE, Reads, is_folder, is_regular, is_safe, read_all, read_tree_text
from compliance.trees.layout import AUDIT_FOLDERS
from compliance.trees.logged_samples import LoggedSamples, read_logged_samples
from compliance.trees.tree import Place, Tree
from runs.benchmark import Benchmark
from runs.benchmarks import BENCHMARKS
from runs.errors import HarnessError
from runs.files.writing import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.detail_log import DetailLog, power_time, read_detail
from runs.loadgen.replay import expected_samples
from runs.numbers.numbers import reported_numbers
from runs.record.finished_run import ACCURACY, PERFORMANCE
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.rounds import RoundBenchmark, RoundTable

_, DETAIL, RESPONSES, _ = LOADGEN_LOGS
_LOG = f"accuracy/{RESPONSES}"
WHOLE_LOG = f"the complete accuracy/{RESPONSES}, which is truncated in a tree"
OF_POWER = {"power", "ranging"}  # names of directories next to run_1
POWER_LOG = "spl.txt"  # name of the log in run_1 and ranging
# (scenario of the run, scenario of the inferred result) on edge systems. [checker] performance_check.inferred_check
INFERRED = frozenset((("SingleStream", "MultiStream"), ("MultiStream", "Offline"), ("SingleStream", "Offline")))
# Keys with equal values in all runs of one configuration. [loadgen] detail log
SIZE = "qsl_reported_total_count"
SIZES = frozenset({"performance_sample_count_override", "accuracy_sample_count_override"})
SAME_SAMPLES = ("TEST01", "TEST09")  # audits whose runs issue the samples of a performance run
AUDIT_APART = 0.06  # allowed relative difference of mean tokens per sample; sampled responses vary by 1% or 2%
IDENTITY = ("loadgen_version", "loadgen_file_sha1", "sut_name", "qsl_name", SIZE)
# Suffixes of build files in LoadGen's directory, which its file list includes. [loadgen] version_generator.py
_BUILT = (".whl", ".so", ".o", ".pyc", ".tar.gz")
# Rates, of which the first in a log counts, and latencies with the keys of their limits. [loadgen] detail log
RATES = {
    "result_tokens_per_second": "tokens/s",
    "result_completed_tokens_per_second": "tokens/s",
    "result_samples_per_second": "samples/s",
    "result_completed_samples_per_sec": "samples/s",
}
LATENCIES = {
    "p99 TTFT": ("result_first_token_99.00_percentile_latency_ns", "requested_server_ttft_latency"),
    "p99 TPOT": ("result_time_per_output_token_99.00_percentile_ns", "requested_server_tpot_latency"),
    "p99 latency": ("result_99.00_percentile_latency_ns", "requested_server_target_latency_ns"),
}
# Latencies in ns that identify a run. They form two groups: a copy may have been edited in one of them.
FINGERPRINTS = tuple(
    tuple(f"result_{name}_latency_ns" for name in names)
    for names in (
        ("min", "mean", "max"),
        [f"{share}_percentile" for share in ("90.00", "95.00", "97.00", "99.00", "99.90")],
    )
)
# Latencies that SingleStream and MultiStream report, and that TEST01 and TEST04 compare.
STREAM_LATENCIES = {"SingleStream": "early_stopping_latency_ss", "MultiStream": "early_stopping_latency_ms"}
SHOWN = (*RATES, *(key for keys in LATENCIES.values() for key in keys), *STREAM_LATENCIES.values())


@dataclass(eq=False)
class ScenarioDirectory(Subject):
    """The directory of one scenario of one system: what it claims, its two runs, and its audits."""

    tree: Tree
    place: Place
    identities: list["RunIdentity"] = field(default_factory=list)  # identities of the runs that were read
    logged: dict[Path, LoggedSamples] = field(default_factory=dict)  # accuracy logs that were read

    @property
    def kind(self) -> str:
        return "result" if self.is_known else "unknown result"

    @property
    def name(self) -> str:
        return str(self.place)

    @property
    def parts(self) -> "Sequence[TreeRun]":
        return (self.performance, self.accuracy) if self.is_known else ()

    @cached_property
    def benchmark_name(self) -> str | None:
        """The name of the benchmark in the table of the round; None if its directory has another name."""
        return mapped_benchmark(self.tree, self.place)

    @property
    def is_known(self) -> bool:
        """False if the round has no such benchmark or, outside the open division, no such scenario."""
        if self.benchmark_name is None:
            return False
        claim = self.claim
        return claim.loadgen_scenario is None or claim.is_open or claim.scenario in claim.entry.scenarios

    @cached_property
    def claim(self) -> RunClaim:
        """What the names of the directories claim. The directory of an unknown benchmark claims nothing."""
        assert self.benchmark_name is not None  # see `kind`
        in_round, scenario = self.tree.round, official_scenario(self.place.scenario)
        entry = in_round.table.benchmarks[self.benchmark_name]
        benchmark = _benchmark_like(entry, in_round.table, scenario) if scenario in entry.scenarios else None
        min_duration_ms = required_ms(in_round, entry)
        return RunClaim(scenario, benchmark, entry, (in_round.name,), min_duration_ms, self.place.division)

    @cached_property
    def performance(self) -> "TreeRun":
        return TreeRun.of_directory(self, PERFORMANCE, self.tree.performance(self.place))

    @cached_property
    def accuracy(self) -> "TreeRun":
        return TreeRun.of_directory(self, ACCURACY, self.tree.accuracy(self.place))

    def audit(self, test: str) -> Path:
        """Return the directory of an audit; it may be missing."""
        return self.tree.audit(self.place, test)

    @cached_property
    def audits(self) -> list[str]:
        """The audits whose directories exist."""
        return [test for test in sorted(AUDIT_FOLDERS) if is_folder(self.audit(test))]

    @cached_property
    def text_read(self) -> tuple[list[Finding], tuple[bool, str]]:
        """Findings on accuracy.txt, whether all its scores are readable, and the hash of the accuracy log in it."""
        return read_all(check_text(self.accuracy.dir.accuracy_text, self.claim))

    @property
    def scores_readable(self) -> bool:
        return self.text_read[1][0]

    def absent(self, need: Need) -> str:
        match need:
            case "log":
                return "" if self.performance.is_readable else f"performance/run_1/{DETAIL}"
            case "conf":
                return "" if is_regular(self.tree.user_conf(self.place)) else "user.conf"
            case "text":
                return "" if is_regular(self.accuracy.dir.accuracy_text) else "accuracy/accuracy.txt"
            case "power":
                run = self.performance.dir.root
                of_power = is_regular(run / POWER_LOG) or any(is_folder(run.parent / name) for name in OF_POWER)
                return "" if of_power else f"performance/power or performance/ranging or performance/run_1/{POWER_LOG}"
            case "audit":
                return "" if self.audits else "the directory of an audit"
        return super().absent(need)

    def logged_samples(self, path: Path) -> LoggedSamples:
        """Return the content of an accuracy log, which is read once.

        Raises:
            InputError: If the file cannot be read.
        """
        if path not in self.logged:
            self.logged[path] = read_logged_samples(path)
        return self.logged[path]


def fingerprints(values: Mapping[str, object]) -> list[tuple[int, ...]]:
    """Return the latencies of each group of FINGERPRINTS, except groups that are incomplete or all zero."""
    groups = [tuple(values.get(key) for key in keys) for keys in FINGERPRINTS]
    return [cast("tuple[int, ...]", group) for group in groups if all(type(ns) is int for ns in group) and any(group)]


def _all_logged(detail: DetailLog) -> int | None:
    """Return the number of issued samples if the run logs each response, otherwise None. [loadgen] loadgen.cc"""
    issued = expected_samples(detail) or 0
    expected = detail.number("effective_target_qps") * detail.integer("effective_min_duration_ms") / 1000
    return issued if detail.integer("effective_accuracy_log_sampling_target") >= max(issued, expected) else None


@dataclass
class RunIdentity:
    """The values that identify a run. `name` is performance, accuracy, or the name of an audit."""

    name: str
    detail: Path
    hashes: dict[Path, str] = field(default_factory=dict)  # log → SHA-256, for logs that differ between any two runs
    window: tuple[str, str] | None = None  # power_begin and power_end, in milliseconds
    latencies: list[tuple[int, ...]] = field(default_factory=list)  # latencies in ns of each group of FINGERPRINTS
    identity: dict[str, object] = field(default_factory=dict)  # values of IDENTITY
    tokens: float | None = None  # mean tokens per sample
    scenario: str = ""  # scenario in the log
    responses: str = ""  # SHA-256 of the complete accuracy log, from `responses_file`
    responses_file: Path | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # score → number in `responses_file`
    cut: bytes = b""  # truncated accuracy log
    long_responses: bool = True  # True if responses are too long to be equal on two systems
    numbers: dict[str, float] = field(default_factory=dict)  # key of a log record → value, for plots
    validity: str | None = None  # VALID or INVALID
    logged: int | None = None  # number of issued samples; None: the run did not log all responses

    @staticmethod
    def of(name: str, run: RunDir, detail: DetailLog) -> "RunIdentity":
        """Read the values that identify a run from its logs."""
        identity = RunIdentity(name, run.detail, identity={key: detail.get(key) for key in IDENTITY})
        identity.scenario, identity.validity = detail.scenario, detail.validity
        with suppress(HarnessError):  # other checks report the error
            identity.logged = _all_logged(detail)
        # The summaries of all accuracy runs are equal.
        logs = [run.detail, run.summary] if detail.has_results else [run.detail]
        identity.hashes = {path: sha256_of(path) for path in logs}
        shown = {key: detail.get(key) for key in SHOWN} if detail.has_results else {}
        identity.numbers = {key: float(number) for key, number in shown.items() if type(number) in (int, float)}
        begin, end = detail.get("power_begin"), detail.get("power_end")
        if isinstance(begin, str) and isinstance(end, str):
            identity.window = (begin, end)
        identity.latencies = fingerprints({key: detail.get(key) for keys in FINGERPRINTS for key in keys})
        with suppress(HarnessError):  # other checks report the error
            if detail.has_results and detail.uses_token_latencies:
                identity.tokens = mean_output_tokens(detail, reported_numbers(detail))
        # The hashes of LoadGen's files count, because its revision also changes with files outside LoadGen.
        if files := identity.identity["loadgen_file_sha1"]:
            if isinstance(files, dict):
                files = {name: digest for name, digest in files.items() if not name.endswith(_BUILT)}
            version = str(identity.identity["loadgen_version"]).partition(" @")[0]
            identity.identity |= {"loadgen_file_sha1": files, "loadgen_version": version}
        return identity


@dataclass(eq=False)
class TreeRun(RunEvidence):
    """A run in a tree. It has only LoadGen's files. If this harness cannot run its benchmark, only logs are checked."""

    directory: ScenarioDirectory = None  # type: ignore[assignment]  # `of_directory` sets it

    @classmethod
    def of_directory(cls, directory: ScenarioDirectory, mode: str, run_dir: RunDir) -> Self:
        """Return the run whose directory claims a mode."""
        scenario, benchmark = directory.claim.harness_scenario, directory.claim.benchmark
        return cls(run_dir, scenario, benchmark, foreign=True, directory_mode=mode, directory=directory)

    @property
    def kind(self) -> str:
        name = MODE_NAMES[self.claimed_mode]
        return name if self.claim.benchmark is not None else f"{name} of another benchmark"

    @cached_property
    def claim(self) -> RunClaim:
        return self.directory.claim

    @cached_property
    def log_read(self) -> tuple[list[Finding], DetailLog | None]:
        """Findings on the readability of the logs, and the detail log."""
        return read_all(read_log(self.dir))

    @property
    def is_readable(self) -> bool:
        return self.log_read[1] is not None

    @cached_property
    def detail(self) -> DetailLog:
        detail = self.log_read[1]
        assert detail is not None  # see `is_readable`
        return detail

    def absent(self, need: Need) -> str:
        match need:
            case "log" if not self.is_readable:
                return f"performance/run_1/{DETAIL}" if self.claimed_mode == PERFORMANCE else f"accuracy/{DETAIL}"
            case "record" | "manifest":
                return "requests.jsonl and manifest.json, which no tree has"
            case "scores":  # other rules report missing files
                is_read = self.directory.scores_readable and is_regular(self.dir.accuracy_log)
                return "" if is_read else f"accuracy/{self.dir.accuracy_text.name} with all scores, and {_LOG}"
            case "responses":
                # A complete log is checked like a truncated log if this harness cannot run its benchmark.
                cut = self.claim.benchmark is None or super().absent(need) or not is_regular(self.dir.accuracy_log)
                return WHOLE_LOG if cut else ""
        return super().absent(need)

    @cached_property
    def entries(self) -> list[AccuracyEntry]:
        return self.directory.logged_samples(self.dir.accuracy_log).entries

    @property
    def logged_issue(self) -> list[tuple[int, int]]:
        return self.directory.logged_samples(self.dir.accuracy_log).issued

    @property
    def invalid_because(self) -> list[str]:
        if self.detail.validity == "VALID":
            return []
        reason = " ".join(str(self.detail.get("result_invalid_reason") or "").split())
        return [f"result_validity is {self.detail.validity} {reason}".strip()]


@decides(
    "tree",
    ("log-missing", "error", "[checker] performance_check.missing_check, REQUIRED_*_FILES", "LoadGen log",
     "copy LoadGen's own log"),
    ("log-version", "warning", OURS, "LoadGen version of the log",
     "check the tree with --official, the checker of its round"),
    also=("log-damaged",),
)  # fmt: skip
def read_log(run: RunDir) -> Reads[DetailLog | None]:
    """Read the detail log of a run. Return None and yield findings if it cannot be checked."""
    missing = [path for path in (run.detail, run.summary) if not is_regular(path)]
    for path in missing:
        yield compared("log-missing", False, f"{path.name} does not exist", "a regular file", path)
    if missing:
        return None
    if not is_safe(run.root):
        yield compared("log-damaged", False, UNSAFE, "", run.root)
        return None
    try:
        detail = read_detail(run.detail)
        _ = detail.scenario, detail.mode  # raises an error if the log has no scenario or mode
    except HarnessError as error:
        yield compared("log-damaged", False, without_root(error.message, run.detail), "", run.detail, line=error.line)
        return None
    if detail.unknown_version():
        yield compared("log-version", False, f"{detail.unknown_version()}; the log was not checked", "", run.detail)
        return None
    for key in ("power_begin", "power_end"):
        if power_time(detail.get(key)) is None:
            value = f"{key} is {detail.get(key)}"
            yield compared(
                "log-damaged", False, value, "a time of day in LoadGen's format", run.detail, decided_by=[key]
            )
    return detail


def without_root(sentence: str, path: Path) -> str:
    """Return a message with file names in place of paths."""
    return sentence.replace(f"{path.parent}/", "")


def _benchmark_like(entry: RoundBenchmark, table: RoundTable, scenario: str) -> Benchmark | None:
    """Return the benchmark of this harness with this model, with the accuracy targets of the given entry."""
    for benchmark in BENCHMARKS.values():
        benchmark_entry = table.benchmarks.get(benchmark.submission_name)
        if benchmark_entry is not None and benchmark_entry.model == entry.model and scenario in benchmark.scenarios:
            if benchmark_entry is entry:
                return benchmark
            limits_of = {score.lower(): limits for score, limits in entry.targets_of(benchmark.scenarios[0]).items()}
            targets = {
                name: replace(target, low_share=limits.low / target.reference)
                if (limits := limits_of.get(name.lower())) and limits.low is not None
                else target
                for name, target in benchmark.targets.items()
            }
            return replace(benchmark, targets=targets)
    return None


@decides(
    "tree",
    ("accuracy-text", "error", "[checker] accuracy_check.accuracy_result_check",
     "scores in accuracy.txt", FIX),
    also=("accuracy-target", "accuracy-samples"),
)  # fmt: skip
def check_text(path: Path, claim: RunClaim) -> Reads[tuple[bool, str]]:
    """Read accuracy.txt as the official checker does."""
    text = yield from read_tree_text(path, "accuracy-text")
    if text is None:
        return False, ""
    lines = text.splitlines()
    readable = True
    for score, limits in claim.targets.items():
        # The official checker accepts multiple numbers for one score if each of them meets the target.
        stated = stated_score(lines, score, is_single=claim.benchmark is not None)
        unread = stated.problem if stated.numbers or limits.low is not None else ""
        readable = readable and not unread
        # A result of the open division may have a different score.
        if unread and (claim.benchmark is not None or not claim.is_open):
            wanted = f"one number for {stated.name}"
            yield compared("accuracy-text", False, unread, wanted, path, line=stated.line)
        for value in () if claim.is_open else stated.values:
            low, high = limits.low, limits.high
            if (low is not None and value < low) or (high is not None and value > high):
                required = f"at least {low:.10g}" if high is None else f"{low or 0:.10g} to {high:.10g}"
                required += claim.limit_in_rules(f"accuracy-target {score}")
                yield compared("accuracy-target", False, f"{score} is {value:.10g}", required, path)
    counts = stated_score(lines, "gen_num")
    if counts.numbers and counts.values != [claim.accuracy_samples]:
        stated_count = f"gen_num is {', '.join(counts.numbers)}"
        yield compared("accuracy-samples", False, stated_count, f"{claim.accuracy_samples}", path)
    return readable, (yield from check_hash(path, text))


@decides(
    "tree",
    ("accuracy-hash", "error", "[checker] accuracy_check.accuracy_result_check", "hash in accuracy.txt",
     "truncate the accuracy log with tools/submission/truncate_accuracy_log.py, which appends the hash"),
)  # fmt: skip
def check_hash(path: Path, text: str) -> Reads[str]:
    """Return the hash in accuracy.txt. If it is missing or not unique, yield a finding and return an empty text."""
    digest, problem = stated_hash(text)
    if not digest:
        state, wanted = problem or "no line `hash=…`", "one line `hash=` with the SHA-256 of the complete log"
        yield compared("accuracy-hash", False, state, wanted, path)
    return digest
