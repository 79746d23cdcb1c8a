"""One leg's logs in a tree: reading them, what is asked of every leg, and what ties the legs of a scenario together."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from compliance.evidence.log_arithmetic import detail_contradictions
from compliance.finding import OURS, Finding, UnknownRuleError, decides, fail
from compliance.signoff.limits import MOST_DAYS_APART
from compliance.submission.check.structure import is_safe
from compliance.submission.check.tree_finding import Findings, is_asked
from compliance.submission.check.tree_reading import is_regular
from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Scenario
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.detail_log import DetailLog, power_time, read_detail
from runs.loadgen.summary_log import cross_check, read_summary
from runs.numbers.numbers import reported_numbers
from runs.record.layout import RunDir
from runs.record.leg import ACCURACY, FinishedLeg
from runs.rounds import ROUNDS, Round

Judged = TypeVar("Judged")

# What one configuration has in common. [loadgen] detail log
_IDENTITY = ("loadgen_version", "loadgen_file_sha1", "sut_name", "qsl_name", "qsl_reported_total_count")

# What a build leaves in LoadGen's folder, which makes its list of files there. [loadgen] version_generator.py
_BUILT = (".whl", ".so", ".o", ".pyc", ".tar.gz")


@dataclass
class ComparedLeg:
    """What other legs are compared with. `name` says which leg of its scenario it is."""

    name: str
    detail: Path
    hashes: dict[Path, str] = field(default_factory=dict)  # SHA-256 of logs that differ from run to run
    window: tuple[str, str] | None = None  # power_begin and power_end, to the millisecond
    identity: dict[str, object] = field(default_factory=dict)
    answers: str = ""  # SHA-256 of the whole accuracy log, where nothing else tells the runs apart
    answers_file: Path | None = None


@decides(
    "tree",
    ("log-missing", "error", "[checker] performance_check.missing_check, REQUIRED_*_FILES", "LoadGen's logs are there",
     "copy LoadGen's own log"),
)  # fmt: skip
def read_log(run: RunDir, findings: Findings) -> DetailLog | None:
    """A leg's detail log; None with findings where it cannot be judged."""
    missing = False
    for path in (run.detail, run.summary):
        if not is_regular(path):
            missing = True
            findings.add("log-missing", path, "there is no such file")
    if missing:
        return None
    if not is_safe(run.root):
        findings.add("log-damaged", run.root, "it holds links, pipes or very large files; its logs are not read")
        return None
    try:
        detail = read_detail(run.detail)
        _ = detail.scenario, detail.mode  # every log has both
    except HarnessError as error:
        findings.add("log-damaged", run.detail, without_root(error.message, run.detail))
        return None
    for key in ("power_begin", "power_end"):
        if power_time(detail.get(key)) is None:
            findings.add(
                "log-damaged", run.detail, f"{key} is {detail.get(key)}", "the time of day, as LoadGen writes it"
            )
    return detail


def make_leg(run: RunDir, detail: DetailLog, scenario: Scenario, benchmark: Benchmark) -> FinishedLeg:
    """The leg as its directory claims it. What a manifest beside it says counts for nothing here."""
    leg = FinishedLeg(run, scenario, benchmark, foreign=True)
    leg.detail = detail  # read once
    return leg


def judged(judge: Callable[[], Judged], run: RunDir, findings: Findings) -> Judged | None:
    """Call one of verify's judges; None with a finding where the files allow no verdict."""
    try:
        return judge()
    except UnknownRuleError:
        raise
    except HarnessError as error:
        findings.add("log-damaged", error.path or run.detail, without_root(error.message, run.detail))
    except Exception as error:  # foreign numbers go through long computations; none may end the other checks
        findings.add("log-damaged", run.detail, f"cannot be judged: {type(error).__name__}: {error}")
    return None


def contradictions(run: RunDir, detail: DetailLog) -> list[Finding]:
    """Numbers of both logs that do not stand together."""
    differ = cross_check(read_summary(run.summary), detail)
    summary = [fail("log-summary", sentence, run.summary, detail.path) for sentence in differ]
    numbers = reported_numbers(detail) if detail.mode != ACCURACY else None
    return [*detail_contradictions(detail, numbers), *summary]


def without_root(sentence: str, path: Path) -> str:
    """A message without the directories in front of a file's name."""
    return sentence.replace(f"{path.parent}/", "")


def note_findings(judged: Iterable[Finding], division: str, run: RunDir, findings: Findings) -> None:
    """What verify found and is asked in this division. A contradiction is told at every file that it is between: any
    of them may be the changed one."""
    for found in judged:
        if found.passed or not is_asked(found.rule, division):
            continue
        said = found.sentence if found.kind == "contradiction" else f"{found.text}: {found.found}"
        for path in found.files if found.kind == "contradiction" else (run.detail,):
            said_here = without_root(said, run.detail)
            findings.add(found.rule, path, said_here, found.required, severity=found.severity)


def check_seeds(detail: DetailLog, in_round: Round, rule_id: str, findings: Findings) -> None:
    """The three seeds in force, each against the round's."""
    for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        found, wanted = detail.effective(name), getattr(in_round.seeds, name)
        if found != wanted:
            other = next((one for one in ROUNDS.values() if getattr(one.seeds, name) == found), None)
            of = f", that of {other}" if other else ""
            findings.add(rule_id, detail.path, f"effective_{name} is {found}{of}", f"{wanted} ({in_round})")


def note_errors(detail: DetailLog, rule_id: str, findings: Findings) -> None:
    """LoadGen logged an error."""
    if detail.error_count:
        first = detail.errors[0]
        said = f"{detail.error_count} error records, the first in line {first.line_number}: {first}"
        findings.add(rule_id, detail.path, said, "none")


def check_scenario_name(detail: DetailLog, scenario: Scenario, rule_id: str, findings: Findings) -> bool:
    """Is the log of the scenario that its directory names?"""
    wanted = LOADGEN_SCENARIO[scenario]
    found = detail.get("effective_scenario", detail.get("requested_scenario"))
    if found == wanted:
        return True
    as_loadgen = f" (LoadGen: {wanted})" if wanted != scenario else ""
    findings.add(rule_id, detail.path, f"the log is of {found}", f"{scenario}{as_loadgen}")
    return False


def facts(name: str, run: RunDir, detail: DetailLog) -> ComparedLeg:
    """What is compared with other legs."""
    known = ComparedLeg(name, run.detail)
    known.hashes[run.detail] = sha256_of(run.detail)
    if detail.has_results:  # an accuracy run's summary is the same every time
        known.hashes[run.summary] = sha256_of(run.summary)
    begin, end = detail.get("power_begin"), detail.get("power_end")
    if isinstance(begin, str) and isinstance(end, str):
        known.window = (begin, end)
    known.identity = {key: detail.get(key) for key in _IDENTITY}
    if files := known.identity["loadgen_file_sha1"]:  # they tell; the revision moves with every change beside LoadGen
        if isinstance(files, dict):
            files = {name: digest for name, digest in files.items() if not name.endswith(_BUILT)}
        known.identity["loadgen_file_sha1"] = files
        known.identity["loadgen_version"] = str(known.identity["loadgen_version"]).partition(" @")[0]
    return known


@decides(
    "tree",
    ("log-config", "error", OURS, "the legs of a scenario come from one configuration",
     "run the legs with one LoadGen, SUT and data set"),
    ("log-dates", "warning", OURS, "the legs of a scenario were made close in time", "run the legs again"),
)  # fmt: skip
def check_one_configuration(legs: list[ComparedLeg], findings: Findings) -> None:
    """Do the legs of a scenario come from one configuration, at about one time?"""
    if not legs:
        return
    for key in _IDENTITY:
        texts = [str(leg.identity.get(key)) for leg in legs]
        counts = Counter(texts)
        most = max(counts.values())
        # The odd one is named; where nothing tells which that is, as of two, each is.
        tied = sum(count == most for count in counts.values()) > 1
        usual = legs[texts.index(counts.most_common(1)[0][0])]
        for leg, text in zip(legs, texts, strict=True):
            others = [one for one, value in zip(legs, texts, strict=True) if value != text]
            if others and (tied or leg.identity.get(key) != usual.identity.get(key)):
                other = others[0] if tied else usual
                mine, theirs = leg.identity.get(key), other.identity.get(key)
                found = f"{key} of the {leg.name} leg is {_short(mine, theirs)}"
                wanted = f"{_short(theirs, mine)}, as in the {other.name} leg"
                findings.add("log-config", leg.detail, found, wanted)
    first = legs[0]
    for leg in legs[1:]:
        days = _days_apart(first, leg)
        if days is not None and abs(days) > MOST_DAYS_APART:
            when = "before" if days < 0 else "after"
            found = f"the {leg.name} leg was run {abs(days)} days {when} the {first.name} leg"
            findings.add("log-dates", leg.detail, found, f"at most {MOST_DAYS_APART} days apart")


def _short(value: object, beside: object) -> str:
    if not isinstance(value, dict) or not isinstance(beside, dict):
        return f"{len(value)} files" if isinstance(value, dict) else str(value)[:80]
    names = sorted(name for name in value.keys() | beside.keys() if value.get(name) != beside.get(name))
    return ", ".join(f"{name} {str(value.get(name, 'not there'))[:12]}" for name in names[:3])


def _days_apart(first: ComparedLeg, other: ComparedLeg) -> int | None:
    begin, later = (power_time(leg.window[0]) if leg.window else None for leg in (first, other))
    return None if begin is None or later is None else (later - begin).days
