"""The verification document: numbers with their support, rules with files and lines, and questions to the submitter.

The layout is document.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from compliance.judge.rule import Rule, RuleKind, all_rules
from compliance.judge.verdict import Finding, Verdict, not_applied
from compliance.results.details import ResultVerdict, RunVerdict, part_of
from runs.errors import HarnessError
from runs.files.reading import DETAIL_LOG, bounded_lines
from runs.files.writing import sha256_of
from runs.harness import HARNESS_VERSION, harness_facts
from runs.loadgen.detail_log import PREFIX
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.wording import printable

KINDS: dict[RuleKind, str] = {
    "result": "Rules on every result",
    "official": "Rules of the benchmark",
    "plausible": "Rules on plausible values",
    "contradiction": "Contradictions between files",
}
# Kinds of rules that other commands apply.
ELSEWHERE: dict[RuleKind, str] = {
    "signoff": "main.py signoff",
    "audit": "main.py audit",
    "tree": "main.py check",
    "submit": "main.py submit",
    "gate": "main.py gate",
}

# What to request if a file is missing or truncated, by the beginning of the reason why rules were not applied.
REQUESTS = {
    "mlperf_log_accuracy.json": "the complete mlperf_log_accuracy.json, which a tree has only truncated",
    "requests.jsonl": "requests.jsonl, or the issue, first token and completion time and the tokens of each request",
    "manifest.json": "manifest.json, or the model revision, dataset hash and engine options of the run",
    "accuracy.txt": "accuracy.txt",
}

_KEY = re.compile(re.escape(PREFIX) + rb'\s*\{"key": "([^"]+)"')


def document_markdown(verdicts: Sequence[ResultVerdict], when: str) -> str:
    """Return the document as Markdown.

    Args:
        when: Date and time of the verification.
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
        support=_support,
        passed=_passed,
        not_checked=_not_checked,
        questions=_questions,
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _escaped(value: Any) -> str:
    """Return a value as one line with escaped Markdown. The output of template macros is not escaped."""
    if isinstance(value, Markup):
        return value
    return re.sub(r"([\\<>*\[\]|])", r"\\\1", printable(" ".join(str(value).split())))


def _run_outcome(verdict: ResultVerdict, mode: str) -> str:
    part = part_of(verdict, mode)
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
    """Return the line number of each key's first log record; empty if the detail log cannot be read."""
    numbers: dict[str, int] = {}
    try:
        for number, line in bounded_lines(RunDir(Path(part.details.directory)).detail, DETAIL_LOG, ""):
            if key := _KEY.match(line):
                numbers.setdefault(key[1].decode(errors="replace"), number)
    except HarnessError:
        return {}
    return numbers


def _files_of(part: RunVerdict) -> list[Path]:
    try:
        return sorted(
            path for path in Path(part.details.directory).iterdir() if path.is_file() and not path.is_symlink()
        )
    except OSError:
        return []


def _support(verdict: ResultVerdict) -> Iterator[tuple[str, str, str, str]]:
    """Yield each reported number with its value, whether the logs support it, and the evidence or what is missing."""
    for part in verdict.parts:
        contradictions = (
            finding for finding in verdict.findings if finding.kind == "contradiction" and finding.violated
        )
        contradicting = dict.fromkeys(finding.rule for finding in (*part.contradictions, *contradictions))
        if contradicting:
            status = "contradicted", f"see {', '.join(contradicting)} below"
        elif part.details.mode == "accuracy" and part.details.scored_again:
            status = "supported", f"rescored from {part.details.values['scores_from']}"
        elif part.details.mode == "accuracy":
            status = "not checkable", f"read from {part.details.values.get('scores_from')}; missing: {_missing(part)}"
        elif part.details.values.get("derived"):
            source = "mlperf_log_trace.json" if part.details.values["derived_from"] == "trace" else "requests.jsonl"
            status = "supported", f"recomputed from {source}"
        else:
            status = "not checkable", f"LoadGen's numbers agree with each other; missing: {_missing(part)}"
        for line in part.details.lines:
            name, value = line.split(None, 1)
            if name != "reference:":
                yield f"{part.details.mode}: {name}", value.partition(", required")[0], *status


def _missing(part: RunVerdict) -> str:
    name = "requests.jsonl" if part.details.mode == "performance" else "mlperf_log_accuracy.json"
    is_missing = any(entry.why.startswith(name) for entry in not_applied(part))
    return REQUESTS[name] if is_missing else "the dataset and the model (--dataset-path, --model-path)"


def _passed(verdict: ResultVerdict) -> Iterator[str]:
    rules = all_rules()
    for part in verdict.parts:
        violated = {finding.rule for finding in part.findings}
        met = [rules[rule] for rule in sorted(part.applied - violated)]
        yield f"{part.details.mode}: {'; '.join(f'{rule.id} ({rule.summary})' for rule in met) or 'none'}"


def _not_checked(verdict: ResultVerdict) -> Iterator[str]:
    rules = all_rules()
    for part in verdict.parts:
        yield from (f"{part.details.mode}: {text}" for text in _left(part, rules))
    for mode in ("performance", "accuracy"):
        if part_of(verdict, mode) is None:
            yield f"all rules on {mode} runs: the {mode} run is missing or unreadable"
    yield from (f"both runs: {text}" for text in _left(verdict, rules))
    for kind, command in ELSEWHERE.items():
        if count := sum(rule.kind == kind for rule in rules.values()):
            yield f"the {count} rules of `{command}`"


def _left(verdict: Verdict[Any], rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield the rules that were not applied, with reasons."""
    for entry in not_applied(verdict):
        if entry.lacks_input:
            yield from (f"{rule}: {rules[rule].summary}: {entry.why}" for rule in entry.rules)
        else:
            yield f"{', '.join(entry.rules)}: {entry.what or 'not applicable'}: {entry.why}"


def _questions(verdict: ResultVerdict) -> Iterator[str]:
    for part in verdict.parts:
        for finding in part.findings:
            if finding.severity in ("error", "warning"):
                fix = finding.fix or finding.definition.fix
                yield f"{part.details.mode}: {finding.sentence}. What is the cause?{f' Fix: {fix}.' if fix else ''}"
        for entry in not_applied(part):
            if entry.lacks_input:
                wanted = next((text for name, text in REQUESTS.items() if entry.why.startswith(name)), "")
                question = f"Please provide {wanted}" if wanted else "What is the reason?"
                question += f". Rules not applied: {', '.join(entry.rules)}."
                yield f"{part.details.mode}: {entry.why}. {question}".replace("?.", "?")
        path = RunDir(Path(part.details.directory)).manifest
        if not path.is_file():
            continue  # the manifest is missing in runs of other harnesses
        try:
            manifest = read_manifest(path)
        except HarnessError:
            continue
        if manifest.observed.harness.git_changed:
            commit = manifest.observed.harness.git_commit
            yield f"{part.details.mode}: how did the harness differ from commit {commit}?"
        if not manifest.plan.enable_log_trace:
            question = "does a run with --enable-log-trace, which has LoadGen's own times, give equal numbers?"
            yield f"{part.details.mode}: {question}"
    modes = {part.details.mode for part in verdict.parts}
    if modes == {"performance"}:
        yield "Which accuracy does the model have in this configuration? Verify the accuracy run with this run."
    if modes == {"accuracy"}:
        yield "Which performance run belongs to these scores? Verify both runs together."
    if verdict.outcome == "PASS":
        yield "Does an independent check agree? `main.py signoff` recomputes all numbers from the raw files."
