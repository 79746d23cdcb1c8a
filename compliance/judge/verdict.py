"""Findings, rules that were not applied, and the verdict that a policy reaches on a subject and its parts.

A subject is a run, a result, a tree or another thing that rules are about. Its `absent` method reports missing inputs.
A check is not applied if its input is missing or its rules do not apply to the subject; the verdict keeps the reason.
Programs read the `rule`, `severity` and `numbers` of a finding, but not its texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from compliance.judge.rule import Check, Need, Rule, RuleKind, UnknownRuleError, find_rule
from runs.errors import ExecutionError, ExitCode, HarnessError, SetupError

# FAIL: at least one error. FLAG: at least one warning. ERROR: no verdict was reached.
Outcome = Literal["PASS", "FLAG", "FAIL", "ERROR"]
# error: violated. warning: violated, but no result fails by it alone. note: information for the reader. pass: met.
Severity = Literal["error", "warning", "note", "pass"]
_WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "warning", "note": "note", "pass": "pass"}


@dataclass(frozen=True)
class Finding:
    """The result of applying one rule to one file or run."""

    rule: str  # rule ID
    severity: Severity  # usually the severity that the rule has
    text: str  # name of the compared value; a whole sentence if `found` is empty
    # files or directories that the finding is about
    files: tuple[Path, ...] = ()
    # Values that decided the finding, for programs.
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # `found` and `required` are texts with units
    found: str = ""
    required: str = ""
    fix: str = ""  # empty: the fix of the rule counts
    line: int | None = None  # line number in the first file, from 1
    decided_by: tuple[str, ...] = ()  # keys of the log records that decided the finding; reports show their lines
    origin: str = ""  # source that differs from the source of the rule
    is_statement: bool = False  # True: `text` is a whole sentence, which has the values `found` and `required` in it

    def __post_init__(self) -> None:
        find_rule(self.rule)

    @property
    def definition(self) -> Rule:
        """Definition of the rule."""
        return find_rule(self.rule)

    @property
    def source(self) -> str:
        """Source of the violated requirement, as a mark and a section."""
        return self.origin or self.definition.source

    @property
    def kind(self) -> RuleKind:
        return self.definition.kind

    @property
    def passed(self) -> bool:
        return self.severity == "pass"

    @property
    def violated(self) -> bool:
        """True if the rule is violated. A note is not a violation."""
        return self.severity in ("error", "warning")

    @property
    def slug(self) -> str:
        """The last part of a rule ID, such as `same_process` of P-5/same_process."""
        return self.rule.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The files, with the line numbers in the first file if they are known."""
        return place_text([str(path) for path in self.files], self.line, self.numbers)

    @property
    def sentence(self) -> str:
        """What was compared, found and required, for people. No code parses it."""
        if self.is_statement or not self.found:
            return self.text
        comparison = f"{self.text}: {self.found}" if self.text else self.found
        return comparison + (f", required: {self.required}" if self.required else "")

    def __str__(self) -> str:
        return f"{_WORDS[self.severity]} {self.rule}: {self.sentence}"

    @property
    def line_with_place(self) -> str:
        """The finding as a line of text: severity, rule ID, sentence and files."""
        return f"{self} [{self.where}]" if self.files else str(self)


def place_text(files: Sequence[str], line: int | None, numbers: Mapping[str, Any]) -> str:
    """Return the files of a finding, with the line numbers in the first file if they are known."""
    lines = numbers.get("lines", {}).values() or ([] if line is None else [line])
    first = (files[0] if files else "") + (f":{','.join(map(str, lines))}" if lines else "")
    return " and ".join((first, *files[1:]))


def compared(
    rule: str,
    passed: bool,
    found: str,
    required: str,
    *files: Path,
    text: str = "",
    severity: Severity | None = None,
    fix: str = "",
    line: int | None = None,
    decided_by: Sequence[str] = (),
    origin: str = "",
    **numbers: Any,
) -> Finding:
    """Return a comparison of a value with the required value.

    Args:
        text: Name of the value. Default: the summary of the rule.
        severity: Severity if the rule is violated. Default: the severity of the rule.
    """
    definition = find_rule(rule)
    return Finding(
        rule, "pass" if passed else severity or definition.severity, text or definition.summary, files, numbers, found,
        required, fix, line, tuple(decided_by), origin,
    )  # fmt: skip


def stated(
    rule: str,
    text: str = "",
    *files: Path,
    found: str = "",
    required: str = "",
    severity: Severity | None = None,
    fix: str = "",
    line: int | None = None,
    decided_by: Sequence[str] = (),
    **numbers: Any,
) -> Finding:
    """Return a whole sentence, and the values in it for programs.

    Args:
        text: The sentence. Default: "FOUND, but REQUIRED".
        found: Value that the sentence states. Default: the sentence, if it states a violation.
        required: Value that the sentence states as required.
        severity: Default: the severity of the rule.
    """
    severity = severity or find_rule(rule).severity
    text = text or (f"{found}, but {required}" if required else found)
    if severity in ("error", "warning"):
        found = found or text
    return Finding(
        rule, severity, text, files, numbers, found, required, fix, line, tuple(decided_by), is_statement=True
    )  # fmt: skip


# What was not applied ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NotApplied:
    """Rules, or a part of a rule (`what`), that were not applied to a subject."""

    why: str
    rules: tuple[str, ...] = ()
    what: str = ""
    lacks_input: bool = False  # True: an input is missing. False: the rules do not apply


def not_applied(*verdicts: "Verdict[Any]") -> list[NotApplied]:
    """Return the parts of rules, then the rules that were applied to none of the subjects, grouped by reason.

    If a rule was not applied to several subjects, a missing input counts more than a rule that does not apply.
    """
    reasons: dict[str, NotApplied] = {}
    for verdict in verdicts:
        of_verdict = {rule: entry for entry in verdict.not_applied if not entry.what for rule in entry.rules}
        for rule, entry in of_verdict.items():
            earlier = reasons.get(rule)
            if earlier is None or earlier.lacks_input < entry.lacks_input:
                reasons[rule] = entry
            elif earlier.lacks_input == entry.lacks_input and entry.why not in (
                earlier.why,
                *earlier.why.split(" or "),
            ):
                reasons[rule] = NotApplied(f"{earlier.why} or {entry.why}", lacks_input=entry.lacks_input)
    applied = {rule for verdict in verdicts for rule in verdict.applied}
    rules_of: dict[tuple[bool, str], list[str]] = {}
    for rule in sorted(reasons.keys() - applied):
        rules_of.setdefault((reasons[rule].lacks_input, reasons[rule].why), []).append(rule)
    parts = [entry for verdict in verdicts for entry in verdict.not_applied if entry.what]
    return parts + [NotApplied(why, tuple(ids), lacks_input=lacks) for (lacks, why), ids in rules_of.items()]


# Verdicts -------------------------------------------------------------------------------------------------------------


class Details(Protocol):
    """What a command adds to a verdict: plain values."""

    def as_json(self, verdict: "Verdict[Any]", common: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON of a verdict, from the fields that every verdict has."""


DetailsT = TypeVar("DetailsT")


@dataclass
class Verdict(Generic[DetailsT]):
    """Findings on a subject and its parts, and their combined outcome. It refers to neither subject nor policy.

    Attributes:
        name: Name of a part, the prefix of its reasons in the verdict on the whole.
        kind: Kind of the subject.
        applied: Rules, met or violated.
        declared: Reasons in the subject's manifest why it is not eligible for submission.
        counts_official: Whether official rules count. Otherwise they are only shown.
        contradictions_end: Whether files that contradict each other cause ERROR (exit code 4).
        warnings_flag: Whether a warning causes FLAG.
        error: Error that caused the outcome ERROR.
        refused_by: Programs besides the rules that refuse the subject. Each of them counts as an error.
    """

    findings: list[Finding] = field(default_factory=list)
    name: str = ""
    kind: str = ""
    applied: set[str] = field(default_factory=set, repr=False)
    not_applied: list[NotApplied] = field(default_factory=list)
    parts: "list[Verdict[Any]]" = field(default_factory=list)
    declared: Sequence[str] = ()
    counts_official: bool = True
    contradictions_end: bool = False
    warnings_flag: bool = True
    error: HarnessError | None = None
    refused_by: list[str] = field(default_factory=list)
    details: DetailsT = None  # type: ignore[assignment]  # `judge` sets it if the policy has details for this kind

    @property
    def all_verdicts(self) -> "Iterator[Verdict[Any]]":
        """The verdicts on all parts, then this verdict."""
        for part in self.parts:
            yield from part.all_verdicts
        yield self

    @property
    def all_findings(self) -> list[Finding]:
        """The findings on all parts, then those on the whole."""
        return [finding for verdict in self.all_verdicts for finding in verdict.findings]

    def of(self, *severities: Severity) -> list[Finding]:
        """Return the findings of these severities on the subject and its parts, in the order of the severities."""
        findings = self.all_findings
        return [finding for severity in severities for finding in findings if finding.severity == severity]

    def counts(self, finding: Finding) -> bool:
        """Return True if a finding counts for the outcome."""
        return self.counts_official or finding.kind != "official"

    def _contradicts(self, finding: Finding) -> bool:
        return self.contradictions_end and finding.kind == "contradiction" and finding.severity == "error"

    @property
    def contradictions(self) -> list[Finding]:
        """Findings on files that contradict each other; empty if the policy counts them like other errors."""
        return [
            finding for verdict in self.all_verdicts for finding in verdict.findings if verdict._contradicts(finding)
        ]

    @property
    def violated(self) -> list[Finding]:
        """Errors on the subject itself, except contradictions. Errors that do not count are included."""
        return [finding for finding in self.findings if finding.severity == "error" and not self._contradicts(finding)]

    @property
    def failures(self) -> list[str]:
        """Reasons for FAIL, as sentences."""
        sentences = [f"{part.prefix}{text}" for part in self.parts for text in part.failures]
        sentences += [finding.sentence for finding in self.violated if self.counts(finding)]
        return [*sentences, *self.refused_by, *(self.declared if self.counts_official else ())]

    @property
    def prefix(self) -> str:
        """The name of a part before its reasons."""
        return f"{self.name}: " if self.name else ""

    @property
    def outcome(self) -> Outcome:
        """The outcome. The most severe finding that counts decides it."""
        verdicts = list(self.all_verdicts)
        if any(verdict.refused_by for verdict in verdicts):
            return "FAIL"
        if self.contradictions or any(verdict.error is not None for verdict in verdicts):
            return "ERROR"
        if self.failures:
            return "FAIL"
        flagged = any(
            finding.severity == "warning" and part.counts(finding) for part in verdicts for finding in part.findings
        )
        return "FLAG" if flagged and self.warnings_flag else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Return the exit code. With `strict`, warnings count as failures."""
        no_verdict = self.error is None or isinstance(self.error, SetupError)  # other errors: a damaged file
        if no_verdict and self.contradictions:
            return ExitCode.FAILED
        if self.error is not None:
            return self.error.exit_code
        negative = self.outcome == "FAIL" or (strict and self.outcome == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    @property
    def reasons(self) -> list[str]:
        """Reasons why the outcome is not PASS, most severe first."""
        reasons = [] if self.error is None else [self.error.message]
        reasons += (
            f"the files contradict each other: {verdict.prefix}{finding.sentence}"
            for verdict in self.all_verdicts
            for finding in verdict.findings
            if verdict._contradicts(finding)
        )
        return reasons + self.failures

    @property
    def unofficial(self) -> list[str]:
        """Reasons why the subject is not eligible for submission, each once; empty if such reasons cause FAIL."""
        reasons = [
            text
            for verdict in self.all_verdicts
            if not verdict.counts_official
            for text in (
                *verdict.declared,
                *(finding.sentence for finding in verdict.violated if not verdict.counts(finding)),
            )
        ]
        return list(dict.fromkeys(reasons))


# Judging --------------------------------------------------------------------------------------------------------------


class Subject:
    """What a verdict is about. It reads each file once, on first use."""

    @property
    def kind(self) -> str:
        """Key of the checks of a policy, such as "performance"."""
        return ""

    @property
    def name(self) -> str:
        """Prefix of its reasons in the verdict on the whole."""
        return ""

    @property
    def parts(self) -> "Sequence[Subject]":
        """Subjects that this subject consists of."""
        return ()

    @property
    def claims_official(self) -> bool:
        """False if the subject does not claim to be eligible for submission."""
        return True

    @property
    def unofficial_reasons(self) -> Sequence[str]:
        """Reasons in the manifest why the subject is not eligible for submission."""
        return ()

    @property
    def error(self) -> HarnessError | None:
        """The error because of which the subject cannot be checked."""
        return None

    def absent(self, need: Need) -> str:
        """Return the reason why an input is missing; empty if it is available."""
        raise ValueError(f"{type(self).__name__} has no input {need!r}")


Each = Callable[[Sequence[Subject], "Policy"], "Iterable[Verdict[Any]]"]


def _nothing(_: Any) -> tuple[NotApplied, ...]:
    return ()


def _raised(subject: Any, check: Check, error: Exception) -> Finding | None:
    raise error


def _unchanged(_: Any, findings: list[Finding]) -> list[Finding]:
    return findings


@dataclass(frozen=True)
class Policy:
    """What a command applies to a subject and its parts, and how findings combine.

    Attributes:
        checks: Checks by kind of subject, in the order of findings.
        claims: Checks that are applied before. If one of them is violated or raises an error, no other check follows.
        on_error: Checks that are applied instead if the subject or a part cannot be checked.
        exempt: Returns the rules that do not count for a subject, with the reasons.
        damage: Returns the finding for an exception in a check, or None, or raises it. A raised HarnessError or OSError
            becomes the error of the verdict.
        keeps_damaged_parts: True if checks follow after an error in a part.
        present: Returns the findings on a subject as the command shows them.
        details: Functions that compute the details of a verdict, by kind of subject.
        official: True if official rules count even if a subject does not claim to be eligible for submission.
        contradictions_end, warnings_flag: See `Verdict`.
    """

    checks: Mapping[str, tuple[Check, ...]]
    claims: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    on_error: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    exempt: Callable[[Any], Iterable[NotApplied]] = _nothing
    damage: Callable[[Any, Check, Exception], Finding | None] = _raised
    keeps_damaged_parts: bool = False
    present: Callable[[Any, list[Finding]], list[Finding]] = _unchanged
    details: Mapping[str, Callable[[Any, "Verdict[Any]"], Any]] = field(default_factory=dict)
    official: bool = False
    contradictions_end: bool = False
    warnings_flag: bool = True

    @property
    def rules(self) -> frozenset[str]:
        """The rules of all checks."""
        groups = (*self.claims.values(), *self.checks.values())
        return frozenset(rule for checks in groups for check in checks for rule in check.rules)


def in_turn(parts: Sequence[Subject], policy: Policy) -> "Iterator[Verdict[Any]]":
    """Yield the verdict on each part."""
    return (judge(part, policy) for part in parts)


def judge(subject: Subject, policy: Policy, each: Each = in_turn) -> Verdict[Any]:
    """Apply a policy to the parts of a subject, then to the subject.

    Args:
        each: Function that applies the policy to the parts.
    """
    verdict: Verdict[Any] = Verdict(
        name=subject.name,
        kind=subject.kind,
        declared=subject.unofficial_reasons,
        counts_official=policy.official or subject.claims_official,
        contradictions_end=policy.contradictions_end,
        warnings_flag=policy.warnings_flag,
        error=subject.error,
    )
    is_complete = False
    with _errors_kept(verdict):
        is_complete = verdict.error is None and _judge_parts(subject, policy, each, verdict)
    groups = (policy.claims, policy.checks) if is_complete else (policy.on_error,)
    exempt = list(policy.exempt(subject))
    for checks in groups:
        for check in checks.get(subject.kind, ()):
            _apply(check, subject, policy, verdict, {rule for entry in exempt for rule in entry.rules})
        decisive = {rule for check in checks.get(subject.kind, ()) if check.is_decisive for rule in check.rules}
        is_refuted = any(finding.violated and finding.rule in decisive for finding in verdict.findings)
        if checks is policy.claims and (is_refuted or (verdict.error is not None and not policy.keeps_damaged_parts)):
            break
    verdict.not_applied += exempt
    verdict.findings = policy.present(subject, verdict.findings)
    if subject.kind in policy.details:
        with _errors_kept(verdict):
            verdict.details = policy.details[subject.kind](subject, verdict)
    return verdict


def _judge_parts(subject: Subject, policy: Policy, each: Each, verdict: Verdict[Any]) -> bool:
    """Add the verdicts on the parts. Return False if an error in a part ends the verdict on the subject."""
    for part in each(subject.parts, policy):
        verdict.error = verdict.error or part.error
        if part.error is not None and not policy.keeps_damaged_parts:
            return False
        verdict.parts.append(part)
    return True


def _apply(check: Check, subject: Subject, policy: Policy, verdict: Verdict[Any], exempt: set[str]) -> None:
    """Apply a check, and add its findings and the rules that it did not apply to the verdict."""
    ran = {*check.silent}
    try:
        if why := next(filter(None, map(subject.absent, check.needs)), ""):
            verdict.not_applied.append(NotApplied(why, check.rules, lacks_input=True))
            return
        if why := check.applies(subject):
            verdict.not_applied.append(NotApplied(why, check.rules))
            return
        nothing = NotApplied("the subject has nothing that these rules are about", check.rules)
        verdict.not_applied.append(nothing)
        inputs = (subject, verdict.parts) if check.over_parts else (subject,)
        for entry in check.decide(*inputs) or ():
            if isinstance(entry, NotApplied):
                verdict.not_applied.append(entry)
                ran.difference_update(entry.rules)
            elif entry.rule not in exempt:
                verdict.findings.append(entry)
                ran.add(entry.rule)
    except UnknownRuleError:
        raise
    except Exception as error:
        reason = error.message if isinstance(error, HarnessError) else str(error)
        reason = reason if isinstance(error, SetupError) else f"damaged input: {reason}"
        verdict.not_applied.append(NotApplied(reason, check.rules, lacks_input=True))
        with _errors_kept(verdict):
            finding = policy.damage(subject, check, error)
            verdict.findings += [] if finding is None else [finding]
    else:
        verdict.applied |= ran - exempt


@contextmanager
def _errors_kept(verdict: Verdict[Any]) -> Iterator[None]:
    """Keep the first error of the block as the error of the verdict."""
    try:
        yield
    except HarnessError as error:
        verdict.error = verdict.error or error
    except OSError as error:
        verdict.error = verdict.error or ExecutionError(f"{error.filename}: {error.strerror}")
