"""The verification document: each claim with what was checked, by which rule, from which file and line, with what
result; what was not checked; and what a reviewer would ask next.

Made from findings, the catalogue of rules and the files that are there. Nothing in it is typed by anybody.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compliance.evidence.official_rules import DECIDED_BY
from compliance.finding import Finding, Kind, LegVerdict, Rule, all_rules
from compliance.verify.result_verdict import Verification
from runs.environment import HARNESS_VERSION, harness_facts
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.loadgen.detail_log import MAX_LINE_BYTES, PREFIX
from runs.reading import bounded_lines
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.wording import printable

KINDS: dict[Kind, str] = {
    "result": "It is a result at all",
    "official": "It keeps the rules of the benchmark",
    "plausible": "It is what an honest system does",
    "contradiction": "Its files agree with each other",
}
# Told by other commands, for which these rules are.
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

# Contradictions that are looked for only where there is such a file.
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
    harness = harness_facts()
    commit = str(harness.get("git_commit") or "unknown") + (", changed" if harness.get("git_changed") else "")
    blocks = [
        "# Verification",
        _plain(
            f"Made {when} by mlperf-llama-vllm {HARNESS_VERSION} (commit {commit}) from the files named below alone."
        ),
        _table(
            ("result", "outcome", "performance", "accuracy"),
            [
                (", ".join(one.directories), one.outcome, _judged(one, "performance"), _judged(one, "accuracy"))
                for one in verdicts
            ],
        ),
    ]
    for number, verdict in enumerate(verdicts, start=1):
        blocks += _result(verdict, f"Result {number}" if len(verdicts) > 1 else "The result")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _plain(text: str) -> str:
    return re.sub(r"([\\<>*\[\]])", r"\\\1", printable(" ".join(text.split())))


def _points(points: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(point)}" for point in points)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, *rows]
    cells = [[_plain(cell).replace("|", "\\|") for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _judged(verdict: Verification, mode: str) -> str:
    part = next((part for part in verdict.parts if part.mode == mode), None)
    if part is None:
        return "not given"
    return (
        "contradicts itself" if part.contradictions else "fails" if part.failures(verdict.official_asked) else "passes"
    )


def _result(verdict: Verification, title: str) -> Iterator[str]:
    """Blocks of Markdown; empty ones are left out."""
    yield f"## {_plain(title)}: {verdict.outcome}"
    if verdict.error is not None:
        yield _plain(f"Nothing could be judged: {verdict.error.message} Fix: {verdict.error.fix}")
    if verdict.unofficial:
        yield _plain("It is not official, for these reasons: " + "; ".join(verdict.unofficial) + ".")
    yield _points(verdict.reasons)
    for part in verdict.parts:
        yield from _part(part, verdict)
    if verdict.findings:
        yield "### Both legs together"
        yield _claims(verdict.findings, {})
    yield "### What was not checked"
    yield from _not_checked(verdict)
    yield "### What a reviewer would ask next"
    yield _points(_questions(verdict)) or _points(["nothing follows from these files"])


def _part(part: LegVerdict, verdict: Verification) -> Iterator[str]:
    yield "### " + _plain(
        f"{part.mode.capitalize()}: {part.scenario}, {part.loadgen_key}, LoadGen {part.loadgen_version}"
    )
    yield _plain(f"The verdict rests on this: {part.rule}.")
    yield (
        "Held to the official rules."
        if verdict.official_asked or part.claims_official
        else "Its own record says that it is not official; breaches of official rules are told and do not fail it."
    )
    if part.lines:
        yield _table(("number", ""), [(*line.split(None, 1), "")[:2] for line in part.lines])
    yield _points(part.notes)
    lines = _record_lines(RunDir(Path(part.directory)).detail)
    for kind, claim in KINDS.items():
        found = [finding for finding in part.findings if finding.kind == kind]
        if found:
            yield f"#### {claim}"
            yield _claims(found, lines)
    yield "#### Files"
    yield _files(Path(part.directory))


def _claims(findings: Iterable[Finding], lines: dict[str, int]) -> str:
    rows = [
        (
            finding.known.summary + (f" ({finding.numbers['metric']})" if "metric" in finding.numbers else ""),
            f"{finding.rule} {finding.known.source}",
            _where(finding, lines),
            finding.found or finding.text,
            finding.required,
            "kept" if finding.passed else {"error": "BROKEN", "warning": "doubtful"}.get(finding.severity, "note"),
        )
        for finding in findings
    ]
    return _table(("claim", "rule", "from", "found", "required", "result"), rows)


def _where(finding: Finding, lines: dict[str, int]) -> str:
    if finding.line is not None or not finding.files:
        return finding.where
    names = " and ".join(path.name for path in finding.files)
    places = [str(lines[key]) for key in _DECIDED_BY.get(finding.rule, ()) if key in lines]
    return f"{names}:{','.join(places)}" if places and len(finding.files) == 1 else names


def _record_lines(detail: Path) -> dict[str, int]:
    """The line of each key's first record; nothing of a log that cannot be read, which the verdict tells of."""
    found: dict[str, int] = {}
    try:
        for number, line in bounded_lines(detail, MAX_LINE_BYTES, ""):
            if key := _KEY.match(line):
                found.setdefault(key[1].decode(errors="replace"), number)
    except HarnessError:
        return {}
    return found


def _files(folder: Path) -> str:
    """What was there to be read, by name, so that a reader can tell whether he has the same."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    except OSError:
        paths = []
    return _table(("file", "bytes", "SHA-256"), [(p.name, f"{p.stat().st_size:,}", sha256_of(p)) for p in paths])


# What was not checked -----------------------------------------------------------------------------------------------


def _not_checked(verdict: Verification) -> Iterator[str]:
    points = []
    for part in verdict.parts:
        lacking = _lacking(part)
        points += [f"{part.mode}: {rule.id}: {rule.summary}: there is no {name}" for rule, name in lacking.items()]
        seen = {finding.rule for finding in part.findings}
        silent = [rule for rule in _rules_of(part) if rule.id not in seen and rule not in lacking]
        looked = "; ".join(f"{rule.id} ({rule.summary})" for rule in silent if rule.kind == "contradiction")
        if looked:
            yield _plain(f"{part.mode.capitalize()}: looked for and not found, told only when found: {looked}.")
        others = ", ".join(rule.id for rule in silent if rule.kind != "contradiction")
        if others:
            yield _plain(f"{part.mode.capitalize()}: nothing to compare, or told only when broken: {others}.")
    for mode in ("performance", "accuracy"):
        if all(part.mode != mode for part in verdict.parts):
            points.append(f"all rules on {mode}: no {mode} leg was given or could be read")
    told, both = {finding.rule for finding in verdict.findings}, len(verdict.parts) == 2
    for rule_id in sorted(_OF_BOTH_LEGS - told):
        why = "nothing to compare" if both else "it needs both legs"
        points.append(f"both legs: {rule_id}: {all_rules()[rule_id].summary}: {why}")
    for kind, command in ELSEWHERE.items():
        if count := sum(rule.kind == kind for rule in all_rules().values()):
            points.append(f"the {count} rules of `{command}`")
    yield _points(points)


def _rules_of(part: LegVerdict) -> list[Rule]:
    """Rules that may be asked of such a leg: those of the other kind of leg, or of another client, bear its name."""
    other = ("perf-" if part.mode == "accuracy" else "accuracy-", "endpoints-")
    return [
        rule
        for rule in all_rules().values()
        if rule.kind in KINDS and not rule.id.startswith(other) and rule.id not in _OF_BOTH_LEGS
    ]


def _lacking(part: LegVerdict) -> dict[Rule, str]:
    """Rules on files that this leg has not."""
    folder = Path(part.directory)
    return {
        rule: _NEEDS[rule.id]
        for rule in _rules_of(part)
        if rule.id in _NEEDS and not (folder / _NEEDS[rule.id]).is_file()
    }


# Questions ----------------------------------------------------------------------------------------------------------


def _questions(verdict: Verification) -> Iterator[str]:
    for part in verdict.parts:
        for finding in part.findings:
            if not finding.passed and finding.severity != "note":
                fix = finding.fix or finding.known.fix
                yield f"{part.mode}: {finding.sentence}. Why? Fix: {fix}."
        ours = RunDir(Path(part.directory)).manifest.is_file()  # else no harness of ours left a record
        for name in sorted(set(_lacking(part).values())) if ours else ():
            yield f"{part.mode}: where is {name}? Rules rest on it that were not applied."
        yield from _about_the_record(part)
    given = {part.mode for part in verdict.parts}
    if given == {"performance"}:
        yield "Is the model as accurate in this configuration? Verify the accuracy leg together with this one."
    if given == {"accuracy"}:
        yield "Which performance result do these scores belong to? Verify both legs together."
    if verdict.outcome == "PASS":
        yield "Does another reading of the raw files agree? `main.py signoff` re-derives everything once more."


def _about_the_record(part: LegVerdict) -> Iterator[str]:
    path = RunDir(Path(part.directory)).manifest
    if not path.is_file():
        return
    try:
        manifest = read_manifest(path)
    except HarnessError:
        return
    if manifest.observed.harness.git_changed:
        commit = manifest.observed.harness.git_commit
        yield f"{part.mode}: which changes did the harness have that commit {commit} has not?"
    if not manifest.plan.enable_log_trace:
        yield f"{part.mode}: is there a run with --enable-log-trace, whose times are LoadGen's own?"
