"""The verification document: each claim with its rule, file, line and result; what was not checked; and questions for
the submitter. Its layout is document.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.evidence.run_verdict import RunVerdict
from compliance.judge.check import WITHOUT_INPUT
from compliance.judge.finding import Finding
from compliance.judge.rule import Kind, Rule, all_rules
from compliance.judge.verdict import Verdict
from compliance.verify.result_verdict import ResultVerdict
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
    "official": "It meets the rules of the benchmark",
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

_KEY = re.compile(re.escape(PREFIX) + rb'\s*\{"key": "([^"]+)"')


def as_markdown(verdicts: Sequence[ResultVerdict], when: str) -> str:
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
        run_outcome=_run_outcome,
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


def _run_outcome(verdict: ResultVerdict, mode: str) -> str:
    part = verdict.part(mode)
    if part is None:
        return "not given"
    return "contradicts itself" if part.contradictions else "fails" if part.failures else "passes"


def _where(finding: Finding, lines: dict[str, int]) -> str:
    if finding.line is not None or not finding.files:
        return finding.where
    names = " and ".join(path.name for path in finding.files)
    places = [str(lines[key]) for key in finding.decided_by if key in lines]
    return f"{names}:{','.join(places)}" if places and len(finding.files) == 1 else names


def _record_lines(part: RunVerdict) -> dict[str, int]:
    """The line of each key's first record in the detail log; empty if the log cannot be read."""
    found: dict[str, int] = {}
    try:
        for number, line in bounded_lines(RunDir(Path(part.directory)).detail, DETAIL_LOG, ""):
            if key := _KEY.match(line):
                found.setdefault(key[1].decode(errors="replace"), number)
    except HarnessError:
        return {}
    return found


def _files_of(part: RunVerdict) -> list[Path]:
    try:
        return sorted(path for path in Path(part.directory).iterdir() if path.is_file() and not path.is_symlink())
    except OSError:
        return []


def _not_checked(verdict: ResultVerdict) -> Iterator[str]:
    rules = all_rules()
    for part in verdict.parts:
        found = {finding.rule for finding in part.findings}
        met = [rules[one] for one in sorted(part.applied - found)]
        if looked := "; ".join(f"{rule.id} ({rule.summary})" for rule in met):
            yield f"{part.mode}: looked for and not found: {looked}"
        yield from (f"{part.mode}: {text}" for text in _left(part, rules))
    for mode in ("performance", "accuracy"):
        if verdict.part(mode) is None:
            yield f"all rules on {mode}: no {mode} run was given or could be read"
    yield from (f"both runs: {text}" for text in _left(verdict, rules))
    for kind, command in ELSEWHERE.items():
        if count := sum(rule.kind == kind for rule in rules.values()):
            yield f"the {count} rules of `{command}`"


def _left(verdict: Verdict, rules: Mapping[str, Rule]) -> Iterator[str]:
    """The rules that were not applied, by reason."""
    for one in verdict.not_judged:
        if one.what == WITHOUT_INPUT:
            yield from (f"{rule}: {rules[rule].summary}: {one.why}" for rule in one.rules)
        else:
            yield f"{', '.join(one.rules)}: {one.what}: {one.why}"


def _questions(verdict: ResultVerdict) -> Iterator[str]:
    for part in verdict.parts:
        for finding in part.findings:
            if finding.severity in ("error", "warning"):
                yield f"{part.mode}: {finding.sentence}. Why? Fix: {finding.fix or finding.known.fix}."
        path = RunDir(Path(part.directory)).manifest
        if not path.is_file():
            continue  # the run is not of this harness
        for one in part.not_judged:
            if one.what == WITHOUT_INPUT:
                yield f"{part.mode}: {one.why}. Why? Not applied without it: {', '.join(one.rules)}."
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
        yield "Is the model as accurate in this configuration? Verify the accuracy run together with this one."
    if modes == {"accuracy"}:
        yield "Which performance result do these scores belong to? Verify both runs together."
    if verdict.outcome == "PASS":
        yield "Does another reading of the raw files agree? `main.py signoff` derives everything again."
