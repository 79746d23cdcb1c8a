"""The report of `check` on a tree as text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from compliance.judge.text import StyledLine, TextLayout
from compliance.judge.verdict import Finding, Severity
from compliance.trees.causes import RANKS, SELECTION, Cause, CausedFinding, is_joint
from compliance.trees.check_tree import SystemSignOff, TreeReport, TreeVerdict, catalog, tree_report
from compliance.trees.findings import file_text, in_order, message_text
from compliance.trees.official_checker import OfficialResult
from runs.errors import ExitCode
from runs.rounds import ROUNDS
from runs.wording import counted

SHOWN_MESSAGES = 30
MAX_PRINTED = 2000  # maximum number of printed findings; errors come first
MAX_REPEATED = 3  # findings with one text that are printed in their directories
MAX_HEAD_LINES = 30  # maximum number of lines before the single findings
MAX_EXAMPLE_CHARS = 160  # maximum length of the file name and of the sentence of an example, in characters
MAX_REASONS = 12  # maximum number of reasons why rules were not applied
MAX_LISTED = 12  # maximum number of causes of one rank that are listed by name only
_COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow"}


def report_lines(verdict: TreeVerdict) -> Iterator[str]:
    """Yield the causes, then the findings grouped by directory."""
    checked = tree_report(verdict)
    yield from head(checked)
    shown, also = _folded([caused_finding for caused_finding in checked.caused if caused_finding.cause != SELECTION])
    folded = len(checked.findings) - len(shown)
    if len(shown) > MAX_PRINTED:
        shown = in_order(sorted(shown, key=lambda finding: finding.severity != "error")[:MAX_PRINTED])
    shown, repeated = _repeated(shown)
    for where, findings in groupby(shown, key=lambda finding: _heading(file_text(finding))):
        yield StyledLine(where or ".", "bold")
        for finding in findings:
            yield from _finding_lines(finding, where, also.get(finding, ()))
    for same in repeated:
        first = same[0]
        yield StyledLine(f"the same finding in {len(same)} places:", "bold")
        yield from _finding_lines(replace(first, files=()), "")
        yield from (f"    {finding.where}" for finding in same)
    if unshown := len(checked.findings) - folded - len(shown) - sum(map(len, repeated)):
        yield f"{counted(unshown, 'more finding')}; --json lists all findings"
    yield from unapplied_rule_lines(checked)
    if len({place.organization for place in checked.places}) > 1:
        yield from _table_lines(checked)
    yield from _sign_off_lines(verdict.details.signed)
    yield from _official_lines(verdict.details.official, checked.tree.root)
    clean = verdict.exit_code(strict=verdict.details.strict) is ExitCode.OK
    yield StyledLine("clean", "green") if clean else StyledLine("not clean", "red")


TREE = TextLayout(report_lines, shown=lambda _: (), with_not_applied=False)


def _folded(caused: list[CausedFinding]) -> tuple[list[Finding], dict[Finding, list[str]]]:
    """Return one finding for each fault of a result, with the further rules that the fault violates."""
    first: dict[tuple[tuple[str, ...], str], Finding] = {}
    shown: list[Finding] = []
    also: dict[Finding, list[str]] = {}
    for caused_finding in caused:
        leader = (
            first.setdefault((caused_finding.subject, caused_finding.cause), caused_finding.finding)
            if is_joint(caused_finding.cause)
            else caused_finding.finding
        )
        if leader is caused_finding.finding:
            shown.append(leader)
        elif caused_finding.finding.rule != leader.rule:
            also.setdefault(leader, []).append(caused_finding.finding.rule)
    return shown, {leader: list(dict.fromkeys(rules)) for leader, rules in also.items()}


def _repeated(shown: list[Finding]) -> tuple[list[Finding], list[list[Finding]]]:
    """Return the findings without those that repeat one text in many places, and these by text."""
    by_text: dict[tuple[str, str], list[Finding]] = {}
    for finding in shown:
        by_text.setdefault((str(finding), finding.fix), []).append(finding)
    repeated = [same for same in by_text.values() if len(same) > MAX_REPEATED]
    return [
        caused_finding
        for caused_finding in shown
        if len(by_text[str(caused_finding), caused_finding.fix]) <= MAX_REPEATED
    ], repeated


def summary_text(scenarios: Iterable[str], in_round: str, errors: int, warnings: int) -> str:
    """Return the size of a tree and its number of findings as one sentence.

    Args:
        scenarios: Directories of scenarios, as DIVISION/SUBMITTER/SYSTEM/BENCHMARK/SCENARIO.
    """
    places = [scenario.split("/") for scenario in scenarios]
    systems = {tuple(place[:3]) for place in places}
    size = [counted(len(places), "result"), counted(len(systems), "system")]
    size.append(counted(len({submitter for _, submitter, *_ in places}), "submitter"))
    return f"{' of '.join(size)}, round {in_round}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"


def head(checked: TreeReport) -> Iterator[str]:
    """Yield the first lines: the checked tree, then the causes by rank, each with an example."""
    errors, warnings = checked.count("error"), checked.count("warning")
    yield StyledLine(summary_text(map(str, checked.places), checked.tree.round.name, errors, warnings), "bold")
    other_seeds = (finding.numbers for finding in checked.findings if finding.rule in ("perf-seeds", "accuracy-seeds"))
    rounds = Counter(str(numbers["value"]) for numbers in other_seeds if numbers.get("value") in ROUNDS)
    for name, count in rounds.most_common():
        hint = f"{counted(count, 'log')} with the seeds of round {name}; to apply the rules of {name}: --round {name}"
        yield StyledLine(hint, "yellow")
    shown = [cause for cause in checked.causes if cause.name != SELECTION]
    for cause in checked.causes:
        if cause.name == SELECTION:
            rules = ", ".join(f"{rule} {count}" for rule, count in cause.rules.most_common())
            yield f"this tree is a part of a round, because all source code is missing; only --json lists: {rules}"
    by_rank = [[cause for cause in shown if cause.rank == rank] for rank in range(len(RANKS))]
    for (rank, causes_of_rank), most in zip(enumerate(by_rank), _lines_by_rank(by_rank), strict=True):
        if causes_of_rank:
            yield StyledLine(f"{RANKS[rank]}:", "bold")
        for cause in causes_of_rank[:most]:
            line = f"  {cause.extent}: {', '.join(sorted(cause.rules))}: {cause.summary}"
            yield StyledLine(line, "red" if cause.is_error else "yellow")
            example = cause.example
            place = file_text(example) + (f":{example.line}" if example.line is not None else "")
            yield f"    e.g. {_short(place)}: {_short(example.sentence)}"
        if rest := causes_of_rank[most:]:
            listed = [f"{cause.name} ({len(cause.results or cause.caused)})" for cause in rest[:MAX_LISTED]]
            more = f", {len(rest) - MAX_LISTED} more" if len(rest) > MAX_LISTED else ""
            yield f"  also {', '.join(listed)}{more}"


def unapplied_rule_lines(checked: TreeReport) -> Iterator[str]:
    """Yield the number of rules applied, and the most frequent reasons why rules were not applied."""
    if not checked.rules_not_applied:
        return
    lacking = [sum(len(entry.rules) for entry in several) for several in checked.rules_not_applied.values()]
    rules = len(catalog())
    yield f"{rules - max(lacking)} to {rules - min(lacking)} of {rules} rules were applied to each result; not applied:"
    reasons: dict[tuple[bool, str], list[int]] = {}
    for entries in checked.rules_not_applied.values():
        for entry in entries:
            reasons.setdefault((entry.lacks_input, entry.why), []).append(len(entry.rules))
    for (lacks_input, why), counts in sorted(reasons.items(), key=lambda item: -len(item[1]))[:MAX_REASONS]:
        shown = f"{min(counts)} to {max(counts)} rules" if min(counts) < max(counts) else counted(max(counts), "rule")
        what = "without input" if lacks_input else "not applicable"
        yield f"  {shown} of {counted(len(counts), 'result')}: {what}: {message_text(why)}"
    yield "  A result without findings may still violate these rules. --json lists them for each result."


def _lines_by_rank(by_rank: list[list[Cause]]) -> list[int]:
    """Return the number of causes of each rank that are printed with an example.

    Each rank gets one. The remaining lines go to the three most severe ranks in turn, then to the others.
    """
    most = [min(1, len(of_rank)) for of_rank in by_rank]
    free = MAX_HEAD_LINES - 2 - sum(2 * bool(of_rank) for of_rank in by_rank) - 2 * sum(most)
    for ranks in (range(3), range(3, len(RANKS))):
        for rank in (rank for _ in range(free) for rank in ranks):
            if free >= 2 and most[rank] < len(by_rank[rank]):
                most[rank] += 1
                free -= 2
    return most


def _short(text: str) -> str:
    return text if len(text) <= MAX_EXAMPLE_CHARS else text[:MAX_EXAMPLE_CHARS] + "..."


def _table_lines(checked: TreeReport) -> Iterator[str]:
    """Yield the number of findings by submitter and rank."""
    counts = Counter(
        (caused_finding.subject[1], checked.ranks[caused_finding.cause])
        for caused_finding in checked.caused
        if len(caused_finding.subject) > 1
    )
    yield StyledLine("findings by submitter: " + ", ".join(f"{n} {name}" for n, name in enumerate(RANKS, 1)), "bold")
    for organization in sorted({organization for organization, _ in counts}):
        cells = (counts[organization, rank] or "" for rank in range(len(RANKS)))
        yield f"  {organization:<32}" + "".join(f"{cell:>6}" for cell in cells)


def _heading(file: str) -> str:
    """Return the directory of the scenario or the submitter to which a file belongs."""
    parts = file.split("/")
    return "/".join(parts[:6]) if len(parts) > 6 else "/".join(parts[:2])


def _finding_lines(finding: Finding, where: str, also: Sequence[str] = ()) -> Iterator[str]:
    inside = [file.as_posix().removeprefix(where).lstrip("/") for file in finding.files]
    shown = replace(finding, files=tuple(map(Path, inside)) if inside and inside[0] else ())
    line = f"  {shown.line_with_place}"
    yield StyledLine(line, _COLORS[finding.severity], line.index(finding.rule))
    if also:
        yield StyledLine(f"    also: {', '.join(also)}", "dim")
    yield StyledLine(f"    fix: {finding.fix} ({finding.source})", "dim")


def _sign_off_lines(signed: Sequence[SystemSignOff] | None) -> Iterator[str]:
    if signed is None:
        yield "sign-off: not done (to sign off, give the runs of the tree with --runs)"
    for system in signed or ():
        yield f"sign-off of {message_text(system.system)}: {message_text(system.headline)}"


def _official_lines(official: OfficialResult | None, root: Path) -> Iterator[str]:
    if official is None:
        yield "official checker: not run (to run it, give a clone of mlcommons/inference with --official)"
        return
    verdict = {"ok": "accepts the tree", "errors": "refuses the tree", "crashed": "crashed on the tree"}
    yield f"official checker ({official.checkout}): {verdict[official.outcome]}: {message_text(official.summary)}"
    # Warnings come last, because the checker prints a warning for every check that it skips.
    messages = sorted(official.messages, key=lambda message: message.level == "WARNING")
    for message in messages[:SHOWN_MESSAGES]:
        yield f"  {message.level}: {message_text(message.text.replace(f'{root}/', ''))}"
    if len(messages) > SHOWN_MESSAGES:
        yield f"  {counted(len(official.messages), 'message')} in all; --json lists them"
    for row in official.results:
        names = ("Platform", "Model", "Scenario", "Result", "Units")
        yield "  result: " + " ".join(message_text(str(row.get(name, ""))) for name in names)
