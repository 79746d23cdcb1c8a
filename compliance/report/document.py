"""The verification document: each claim with its rule, file, line and result; what was not checked; and questions for
the submitter. Its layout is document.md.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.evidence.official_rules import DECIDED_BY
from compliance.finding import Finding, Kind, LegVerdict, all_rules
from compliance.verify.result_verdict import Verification
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.harness import HARNESS_VERSION, harness_facts
from runs.loadgen.detail_log import PREFIX
from runs.reading import DETAIL_LOG, bounded_lines
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.wording import printable

KINDS: dict[Kind, str] = {
    "result": "It is a result",
    "official": "It keeps the rules of the benchmark",
    "plausible": "It is plausible",
    "contradiction": "Its files agree with each other",
}
# Rules of these kinds are applied by other commands.
ELSEWHERE: dict[Kind, str] = {
    "signoff": "main.py signoff",
    "audit": "main.py audit",
    "tree": "main.py check",
    "submit": "main.py submit",
    "gate": "main.py gate",
}

# The records of LoadGen's detail log that decide a rule.
_DECIDED_BY = {
    **DECIDED_BY,
    "perf-validity": ("result_validity",),
    "perf-audit-settings": ("effective_performance_issue_same", "effective_performance_issue_unique"),
    "perf-cut-short": ("effective_max_duration_ms", "effective_max_query_count"),
    "accuracy-errors": ("num_errors",),
}
_OF_BOTH_LEGS = frozenset({"one-system", "perf-tokens-accuracy"})
_KEY = re.compile(re.escape(PREFIX) + rb'\s*\{"key": "([^"]+)"')

# The files that contradictions need.
_NEEDS = {
    "log-records": "requests.jsonl",
    "record-answers": "requests.jsonl",
    "record-hash": "manifest.json",
    "attested": "seal.json",
    "accuracy-text-differs": "accuracy.txt",
}


def as_markdown(verdicts: Sequence[Verification], when: str) -> str:
    """The document.

    Args:
        when: date and time of the verification.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_escaped,
    )
    text = environment.get_template("document.md").render(
        verdicts=verdicts,
        when=when,
        version=HARNESS_VERSION,
        harness=harness_facts(),
        kinds=KINDS,
        sha256_of=sha256_of,
        leg_outcome=_leg_outcome,
        where=_where,
        record_lines=_record_lines,
        files_of=_files_of,
        not_checked=_not_checked,
        questions=_questions,
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _escaped(value: Any) -> str:
    """A value as one line of text, with Markdown escaped, except in what a macro of the template made."""
    if isinstance(value, Markup):
        return value
    return re.sub(r"([\\<>*\[\]|])", r"\\\1", printable(" ".join(str(value).split())))


def _leg_outcome(verdict: Verification, mode: str) -> str:
    part = next((part for part in verdict.parts if part.mode == mode), None)
    if part is None:
        return "not given"
    return (
        "contradicts itself" if part.contradictions else "fails" if part.failures(verdict.official_asked) else "passes"
    )


def _where(finding: Finding, lines: dict[str, int]) -> str:
    if finding.line is not None or not finding.files:
        return finding.where
    names = " and ".join(path.name for path in finding.files)
    places = [str(lines[key]) for key in _DECIDED_BY.get(finding.rule, ()) if key in lines]
    return f"{names}:{','.join(places)}" if places and len(finding.files) == 1 else names


def _record_lines(part: LegVerdict) -> dict[str, int]:
    """The line of each key's first record in the detail log; empty if the log cannot be read."""
    found: dict[str, int] = {}
    try:
        for number, line in bounded_lines(RunDir(Path(part.directory)).detail, DETAIL_LOG, ""):
            if key := _KEY.match(line):
                found.setdefault(key[1].decode(errors="replace"), number)
    except HarnessError:
        return {}
    return found


def _files_of(part: LegVerdict) -> list[Path]:
    try:
        return sorted(path for path in Path(part.directory).iterdir() if path.is_file() and not path.is_symlink())
    except OSError:
        return []


def _not_checked(verdict: Verification) -> Iterator[str]:
    rules = all_rules().values()
    for part in verdict.parts:
        # Rules for the other kind of leg, or for another client, have its name.
        other = ("perf-" if part.mode == "accuracy" else "accuracy-", "endpoints-")
        silent, found = [], {finding.rule for finding in part.findings}
        missing = _missing_files(part)
        for rule in rules:
            if rule.kind not in KINDS or rule.id.startswith(other) or rule.id in _OF_BOTH_LEGS:
                continue
            if _NEEDS.get(rule.id) in missing:
                yield f"{part.mode}: {rule.id}: {rule.summary}: there is no {_NEEDS[rule.id]}"
            elif rule.id not in found:
                silent.append(rule)
        if looked := "; ".join(f"{rule.id} ({rule.summary})" for rule in silent if rule.kind == "contradiction"):
            yield f"{part.mode}: looked for and not found: {looked}"
        if others := ", ".join(rule.id for rule in silent if rule.kind != "contradiction"):
            yield f"{part.mode}: not applicable, or kept by rules that are reported only if broken: {others}"
    for mode in ("performance", "accuracy"):
        if all(part.mode != mode for part in verdict.parts):
            yield f"all rules on {mode}: no {mode} leg was given or could be read"
    why = "nothing to compare" if len(verdict.parts) == 2 else "it needs both legs"
    for rule_id in sorted(_OF_BOTH_LEGS - {finding.rule for finding in verdict.findings}):
        yield f"both legs: {rule_id}: {all_rules()[rule_id].summary}: {why}"
    for kind, command in ELSEWHERE.items():
        if count := sum(rule.kind == kind for rule in rules):
            yield f"the {count} rules of `{command}`"


def _missing_files(part: LegVerdict) -> set[str]:
    """Files that rules need, and that are not in the leg's directory."""
    return {name for name in _NEEDS.values() if not (Path(part.directory) / name).is_file()}


def _questions(verdict: Verification) -> Iterator[str]:
    for part in verdict.parts:
        for finding in part.findings:
            if finding.severity in ("error", "warning"):
                yield f"{part.mode}: {finding.sentence}. Why? Fix: {finding.fix or finding.known.fix}."
        path = RunDir(Path(part.directory)).manifest
        if not path.is_file():
            continue  # the leg is not of this harness
        wanted = {name for rule, name in _NEEDS.items() if part.mode == "accuracy" or not rule.startswith("accuracy-")}
        for name in sorted(wanted & _missing_files(part)):
            yield f"{part.mode}: where is {name}? Rules that need it were not applied."
        try:
            manifest = read_manifest(path)
        except HarnessError:
            continue
        if manifest.observed.harness.git_changed:
            commit = manifest.observed.harness.git_commit
            yield f"{part.mode}: which changes did the harness have that commit {commit} does not have?"
        if not manifest.plan.enable_log_trace:
            yield f"{part.mode}: is there a run with --enable-log-trace, whose times are LoadGen's own?"
    modes = {part.mode for part in verdict.parts}
    if modes == {"performance"}:
        yield "Is the model as accurate in this configuration? Verify the accuracy leg together with this one."
    if modes == {"accuracy"}:
        yield "Which performance result do these scores belong to? Verify both legs together."
    if verdict.outcome == "PASS":
        yield "Does another reading of the raw files agree? `main.py signoff` derives everything again."
