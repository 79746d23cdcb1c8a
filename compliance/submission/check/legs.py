"""A result in a tree and its legs: readers of their logs, and the rules for a LoadGen result of any benchmark.

Findings of `verify` on a leg become findings of the tree, with the same rule.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from compliance.evidence.log_arithmetic import log_contradictions, mean_output_tokens
from compliance.evidence.official_rules import tokens_as_in_accuracy
from compliance.evidence.same_system import MOST_DAYS_APART
from compliance.finding import OURS, RERUN, Finding, UnknownRuleError, decides, note_applied
from compliance.submission.check.findings import Findings, is_regular, is_safe, object_or_empty, read_bytes, read_text
from compliance.submission.tree import NOT_IN_OPEN, Place, Tree
from runs.benchmark import LOADGEN_SCENARIO, SCENARIOS, Benchmark, Scenario
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.conf_in_log import Mismatch, mismatches
from runs.loadgen.conf_lines import decode_conf, stored_lines
from runs.loadgen.detail_log import DetailLog, power_time, read_detail
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, PERFORMANCE
from runs.rounds import ROUNDS, RoundBenchmark

# Scenarios of LoadGen's by the name of a directory, in lower case. [checker] constants.SCENARIO_MAPPING
_LOADGEN_SCENARIO = {name.lower(): LOADGEN_SCENARIO[name] for name in SCENARIOS} | {"multistream": "MultiStream"}
# (of the run, of the result), on the edge. [checker] performance_check.inferred_check
INFERRED = frozenset((("SingleStream", "MultiStream"), ("MultiStream", "Offline"), ("SingleStream", "Offline")))
# What one configuration has in common. [loadgen] detail log
_SIZE = "qsl_reported_total_count"
_SIZES = frozenset({"performance_sample_count_override", "accuracy_sample_count_override"})
_SAME_SAMPLES = ("TEST01", "TEST09")  # audits whose runs issue what a performance leg issues
_AUDIT_APART = 0.06  # answers that are sampled vary by 1 or 2 % on average
_IDENTITY = ("loadgen_version", "loadgen_file_sha1", "sut_name", "qsl_name", _SIZE)
# What a build leaves in LoadGen's folder, which makes its list of files there. [loadgen] version_generator.py
_BUILT = (".whl", ".so", ".o", ".pyc", ".tar.gz")
# Rates, of which the first in a log counts; and latencies with the records of their limits. [loadgen] detail log
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
# Latencies that no other run has to the nanosecond. Two groups: a copy may have been edited in one of them.
FINGERPRINTS = tuple(
    tuple(f"result_{name}_latency_ns" for name in names)
    for names in (
        ("min", "mean", "max"),
        [f"{share}_percentile" for share in ("90.00", "95.00", "97.00", "99.00", "99.90")],
    )
)
# What the streams report, and what TEST01 and TEST04 compare of them.
STREAM_LATENCIES = {"SingleStream": "early_stopping_latency_ss", "MultiStream": "early_stopping_latency_ms"}
SHOWN = (*RATES, *(key for keys in LATENCIES.values() for key in keys), *STREAM_LATENCIES.values())
# Rules on a leg that have a rule on trees in their place, and those that need the whole answers, which only `--runs`
# has.
_NOT_TAKEN_OVER = frozenset(
    {
        "perf-benchmark-scenario", "perf-validity", "perf-errors", "perf-seeds", "accuracy-errors", "accuracy-seeds",
        "accuracy-target", "accuracy-count", "accuracy-no-target", "accuracy-scored-again",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One scenario of one system, what its directories claim, and what is found in it."""

    tree: Tree
    place: Place
    findings: Findings
    entry: RoundBenchmark  # what the round requires
    benchmark: Benchmark | None  # None: not one of runs/benchmarks
    scenario: Scenario | None  # None: not one of runs/benchmarks
    details: dict[str, DetailLog] = field(default_factory=dict)  # of the legs that could be read, by name

    @property
    def loadgen_scenario(self) -> str | None:
        return _LOADGEN_SCENARIO.get(self.place.scenario.lower())

    @property
    def scenario_name(self) -> str:
        """The scenario's own name, however the directory spells it."""
        name = self.place.scenario
        return next((one for one in (*SCENARIOS, "MultiStream") if one.lower() == name.lower()), name)

    @property
    def is_open(self) -> bool:
        return self.place.division == "open"

    @property
    def accuracy_samples(self) -> int:
        """Samples of the accuracy leg."""
        return self.benchmark.accuracy_samples if self.benchmark else self.entry.accuracy_samples_of(self.scenario_name)

    @property
    def one_size(self) -> bool:
        """Whether both legs run one data set."""
        return self.entry.accuracy_samples_of(self.scenario_name) == self.entry.data_set


def fingerprints(values: Mapping[str, object]) -> list[tuple[int, ...]]:
    """The latencies of each group that is whole and not of zeros."""
    groups = [tuple(values.get(key) for key in keys) for keys in FINGERPRINTS]
    return [cast("tuple[int, ...]", one) for one in groups if all(type(ns) is int for ns in one) and any(one)]


@dataclass
class ComparedLeg:
    """What a leg is compared with others by. `name`: performance, accuracy, or that of an audit."""

    name: str
    detail: Path
    hashes: dict[Path, str] = field(default_factory=dict)  # SHA-256 of logs that differ from run to run
    window: tuple[str, str] | None = None  # power_begin and power_end, to the millisecond
    latencies: list[tuple[int, ...]] = field(default_factory=list)  # in ns, of each of FINGERPRINTS
    identity: dict[str, object] = field(default_factory=dict)
    tokens: float | None = None  # a sample, on average
    scenario: str = ""  # LoadGen's, of the log
    answers: str = ""  # SHA-256 of the whole accuracy log, as `answers_file` has it
    answers_file: Path | None = None
    cut: bytes = b""  # what the tree has of that log
    long_answers: bool = True  # too long for two systems to give all of them alike
    numbers: dict[str, float] = field(default_factory=dict)  # what a picture shows, by the record's key

    @staticmethod
    def of(name: str, run: RunDir, detail: DetailLog) -> "ComparedLeg":
        """From a leg's logs."""
        known = ComparedLeg(name, run.detail, identity={key: detail.get(key) for key in _IDENTITY})
        known.scenario = detail.scenario
        logs = (
            [run.detail, run.summary] if detail.has_results else [run.detail]
        )  # every accuracy run's summary is alike
        known.hashes = {path: sha256_of(path) for path in logs}
        shown = {key: detail.get(key) for key in SHOWN} if detail.has_results else {}
        known.numbers = {key: float(one) for key, one in shown.items() if type(one) in (int, float)}
        begin, end = detail.get("power_begin"), detail.get("power_end")
        if isinstance(begin, str) and isinstance(end, str):
            known.window = (begin, end)
        known.latencies = fingerprints({key: detail.get(key) for keys in FINGERPRINTS for key in keys})
        with suppress(HarnessError):  # other checks report it
            if detail.has_results and detail.uses_token_latencies:
                known.tokens = mean_output_tokens(detail, reported_numbers(detail))
        if files := known.identity["loadgen_file_sha1"]:  # these decide; the revision also changes with other files
            if isinstance(files, dict):
                files = {name: digest for name, digest in files.items() if not name.endswith(_BUILT)}
            version = str(known.identity["loadgen_version"]).partition(" @")[0]
            known.identity |= {"loadgen_file_sha1": files, "loadgen_version": version}
        return known


@decides(
    "tree",
    ("log-missing", "error", "[checker] performance_check.missing_check, REQUIRED_*_FILES", "LoadGen's logs are there",
     "copy LoadGen's own log"),
    ("log-version", "warning", OURS, "LoadGen version of the log", "judge the log with the tools of its round"),
)  # fmt: skip
def read_log(run: RunDir, findings: Findings) -> DetailLog | None:
    """A leg's detail log; None with findings where it cannot be judged."""
    note_applied("log-damaged", "log-version")
    missing = [path for path in (run.detail, run.summary) if not is_regular(path)]
    for path in missing:
        findings.add("log-missing", path, "there is no such file")
    if missing:
        return None
    if not is_safe(run.root):
        findings.add("log-damaged", run.root, "it has links, pipes or very large files: its logs were not read")
        return None
    try:
        detail = read_detail(run.detail)
        _ = detail.scenario, detail.mode  # every log has both
    except HarnessError as error:
        findings.add("log-damaged", run.detail, _without_root(error.message, run.detail))
        return None
    if detail.unknown_version():
        findings.add("log-version", run.detail, f"{detail.unknown_version()}: the log was not judged")
        return None
    for key in ("power_begin", "power_end"):
        if power_time(detail.get(key)) is None:
            found = f"{key} is {detail.get(key)}"
            findings.add("log-damaged", run.detail, found, "the time of day, as LoadGen writes it")
    return detail


def _without_root(sentence: str, path: Path) -> str:
    """A message without the directories in front of a file's name."""
    return sentence.replace(f"{path.parent}/", "")


def note_judged(judge: Callable[[], Iterable[Finding]], division: str, run: RunDir, findings: Findings) -> None:
    """Add the findings of one of verify's judges that count in this division, or one where the files allow no verdict.

    A contradiction names all its files, since any of them may be the changed one.
    """
    try:
        judged = list(judge())
    except UnknownRuleError:
        raise
    except HarnessError as error:
        findings.add("log-damaged", error.path or run.detail, _without_root(error.message, run.detail))
        return
    except Exception as error:  # untrusted numbers must not end the other checks
        findings.add("log-damaged", run.detail, f"cannot be judged: {type(error).__name__}: {error}")
        return
    for found in judged:
        if found.passed or not counts_in(found.rule, division):
            continue
        contradicts = found.kind == "contradiction"
        text = _without_root(found.sentence if contradicts else f"{found.text}: {found.found}", run.detail)
        first, *others = found.files if contradicts else (run.detail,)
        findings.add(found.rule, first, text, found.required, severity=found.severity, others=others, line=found.line)


def counts_in(rule_id: str, division: str) -> bool:
    """Whether a finding of verify counts in a tree of this division."""
    return rule_id not in _NOT_TAKEN_OVER and not (division == "open" and rule_id in NOT_IN_OPEN)


def note_contradictions(result: Result, run: RunDir, detail: DetailLog) -> None:
    """Add contradictions between numbers of a leg's two logs."""
    note_judged(lambda: log_contradictions(run, detail), result.place.division, run, result.findings)


@decides(
    "tree",
    ("perf-mode", "error", "[rules] performance mode", "a performance log comes from a performance run", RERUN),
    ("perf-scenario", "error", "[checker] performance_check.inferred_check", "the log is of the directory's scenario",
     "put the log where it belongs"),
    ("accuracy-mode", "error", "[rules] accuracy mode", "an accuracy log comes from an accuracy run", RERUN),
    ("accuracy-scenario", "error", "[rules] accuracy of each scenario", "the log is of the directory's scenario",
     "put the log where it belongs"),
)  # fmt: skip
def check_kind(result: Result, name: str, detail: DetailLog) -> bool:
    """Check seeds, mode and scenario of a leg. Returns False where the other rules of its kind do not apply to it."""
    kind, mode = ("perf", PERFORMANCE) if name == "performance" else ("accuracy", ACCURACY)
    found = _in_force(detail, "test_mode")
    if found != mode:
        result.findings.add(f"{kind}-mode", detail.path, f"effective_test_mode is {found}", mode)
    if result.benchmark is not None or not result.is_open:
        check_seeds(result, f"{kind}-seeds", detail)
    same = check_scenario_name(result, f"{kind}-scenario", detail)
    return found == mode and (same or result.benchmark is None)


def _in_force(detail: DetailLog, name: str) -> object:
    return detail.get(f"effective_{name}", detail.get(f"requested_{name}"))


def check_seeds(result: Result, rule_id: str, detail: DetailLog) -> None:
    """Compare the three seeds in force with the round's."""
    note_applied(rule_id)
    wanted = vars(result.tree.round.seeds)
    found = {name: detail.effective(name) for name in wanted}
    if wrong := {name: value for name, value in found.items() if value != wanted[name]}:
        other = next((f", those of {one}" for one in ROUNDS.values() if vars(one.seeds) == found), "")
        text = ", ".join(f"effective_{name} is {value}" for name, value in wrong.items()) + other
        required = ", ".join(str(wanted[name]) for name in wrong)
        result.findings.add(rule_id, detail.path, text, f"{required} ({result.tree.round})")


def check_scenario_name(result: Result, rule_id: str, detail: DetailLog) -> bool:
    """Compare a log's scenario with its directory's, which on the edge may be inferred from another."""
    wanted, found = result.loadgen_scenario, _in_force(detail, "scenario")
    if wanted is None or found == wanted:
        return True
    if result.benchmark is None and (found, wanted) in INFERRED:
        place = result.place
        system = object_or_empty(result.tree.system(place.division, place.organisation, place.system))
        if "edge" in str(system.get("system_type", "")).lower():
            return True
    claimed = result.scenario or wanted
    as_loadgen = f" (LoadGen: {wanted})" if wanted != claimed else ""
    result.findings.add(rule_id, detail.path, f"the log is of {found}", f"{claimed}{as_loadgen}")
    return False


def note_errors(result: Result, rule_id: str, detail: DetailLog) -> None:
    """Report errors that LoadGen logged."""
    note_applied(rule_id)
    if detail.error_count:
        first = detail.errors[0]
        found = f"{detail.error_count} error records, first {first}"
        result.findings.add(rule_id, detail.path, found, "none", line=first.line_number)


@decides(
    "tree",
    ("user-conf-differs", "error", OURS,
     "user.conf gives the settings in the log", "submit the user.conf that the run was made with"),
    ("user-conf-accuracy", "warning", OURS,
     "user.conf is the performance leg's", "also submit the settings of the performance leg"),
    ("user-conf-absent", "warning", OURS,
     "user.conf sets the target in the log", "submit the user.conf that the run was made with"),
)  # fmt: skip
def check_user_conf(result: Result, detail: DetailLog, accuracy: DetailLog | None) -> None:
    """Compare the lines of user.conf that LoadGen reads with the performance log, and else with the accuracy log.

    Where LoadGen's name of the model is not known, lines for all models count only for keys that have no line of a
    named model.
    """
    path, benchmark = result.tree.user_conf(result.place), result.benchmark
    if not is_regular(path):
        return  # scenario-file
    content = read_bytes(path, result.findings, "scenario-file")
    if content is None:
        return
    lines = stored_lines(decode_conf(content))
    models = (*result.entry.keys_of(result.scenario_name), *result.tree.round.table.names_of(result.entry))
    models += (result.place.benchmark,)
    named = set() if benchmark else {line.key for line in lines if line.model not in ("*", *models)}
    # One file for two legs, which by the rules may be of two sizes.
    sizes = () if result.one_size else (result.accuracy_samples, result.entry.performance_samples)
    of_accuracy: list[Mismatch] = []
    differ_in_both = {found.key for found in mismatches(lines, models, accuracy, named)} if accuracy else None
    for found in mismatches(lines, models, detail, named):
        if found.line is None:
            shown = f"no line sets {detail.scenario} {found.key}"
            result.findings.add("user-conf-absent", path, shown, _logged(found))
        elif found.key in _SIZES and found.given in sizes:
            continue  # of the other leg
        elif differ_in_both is not None and found.key not in differ_in_both:
            of_accuracy.append(found)
        else:
            shown = f"{found.line.name} = {found.line.value}"
            result.findings.add("user-conf-differs", path, shown, _logged(found), line=found.line.line)
    if of_accuracy:
        theirs = [found.line for found in of_accuracy if found.line is not None]
        shown = ", ".join(f"{line.name} = {line.value}" for line in theirs) + ", as in the accuracy leg"
        wanted = ", ".join(map(_logged, of_accuracy))
        result.findings.add("user-conf-accuracy", path, shown, wanted, line=theirs[0].line)


def _logged(found: Mismatch) -> str:
    return f"{found.logged:.10g}, as {found.record} of the performance log has it"


@decides(
    "tree",
    ("log-config", "error", OURS, "the legs of a scenario come from one configuration",
     "run the legs with one LoadGen, SUT and data set"),
    ("log-dates", "warning", OURS, "the legs of a scenario were made close in time", "run the legs again"),
)  # fmt: skip
def check_one_configuration(legs: list[ComparedLeg], findings: Findings, one_size: bool = True) -> None:
    """Compare the configurations of a scenario's legs, and their dates.

    Args:
        one_size: whether both run one data set.
    """
    keys = [key for key in _IDENTITY if one_size or key != _SIZE]
    texts = [str([leg.identity.get(key) for key in keys]) for leg in legs]
    # The leg that differs from most is named; of two, the later one.
    usual = Counter(texts).most_common(1)[0][0] if texts else ""
    for leg, text in zip(legs, texts, strict=True):
        if text == usual:
            continue
        other = legs[texts.index(usual)]
        different = [key for key in keys if leg.identity.get(key) != other.identity.get(key)]
        found, wanted = (
            "; ".join(f"{key} {_short(one.identity.get(key), two.identity.get(key))}" for key in different)
            for one, two in ((leg, other), (other, leg))
        )
        shown = f"in the {leg.name} leg {found}"
        findings.add("log-config", leg.detail, shown, f"{wanted}, as in the {other.name} leg", others=[other.detail])
    for leg in legs[1:]:
        begin, later = (power_time(one.window[0]) if one.window else None for one in (legs[0], leg))
        days = 0 if begin is None or later is None else (later - begin).days
        if abs(days) > MOST_DAYS_APART:
            when = "before" if days < 0 else "after"
            found = f"the {leg.name} leg was run {abs(days)} days {when} the {legs[0].name} leg"
            findings.add("log-dates", leg.detail, found, f"at most {MOST_DAYS_APART} days apart")


@decides(
    "tree",
    ("audit-tokens", "error", OURS, "an audit's run has the output tokens a sample of the performance leg",
     "run the audit on the system that made the performance leg"),
)  # fmt: skip
def check_tokens(result: Result, legs: list[ComparedLeg]) -> None:
    """Compare output tokens a sample, by tokens/s and samples/s, with accuracy.txt and with the audits' runs."""
    text, performance = result.tree.accuracy(result.place).accuracy_text, legs[0] if legs else None
    if performance is None or performance.name != "performance" or not (tokens := performance.tokens):
        return
    run = RunDir(performance.detail.parent)
    content = read_text(text, Findings(text.parent), "tree-unreadable")  # other checks report it
    if content and result.one_size:
        judge = lambda: tokens_as_in_accuracy(tokens, run.detail, content, text.name)  # noqa: E731
        note_judged(judge, result.place.division, run, result.findings)
    for audit in legs:
        if audit.name in _SAME_SAMPLES and audit.tokens and abs(audit.tokens / tokens - 1) > _AUDIT_APART:
            found, wanted = f"{audit.tokens:.2f} output tokens a sample", f"{tokens:.2f}, within 6 %"
            result.findings.add("audit-tokens", audit.detail, found, wanted, others=[run.detail])


def _short(value: object, other: object) -> str:
    if not isinstance(value, dict) or not isinstance(other, dict):
        return f"{len(value)} files" if isinstance(value, dict) else str(value)[:80]
    names = sorted(name for name in value.keys() | other.keys() if value.get(name) != other.get(name))
    return ", ".join(f"{name} {str(value.get(name, 'not there'))[:12]}" for name in names[:3])
