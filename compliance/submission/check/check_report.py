"""The outcome of `check`: for people, and as a record."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from compliance.finding import Finding, Severity
from compliance.submission.check.check_tree import Checked
from compliance.submission.check.findings import in_order, place_of, shortened
from compliance.submission.check.official_checker import OfficialResult
from runs.errors import ExitCode
from runs.wording import counted

SHOWN_MESSAGES = 30
MOST_PRINTED = 2000  # findings, errors first; to print takes longer than to find
MOST_ROWS = 200  # of the table
_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow"}


def print_report(checked: Checked, console: Console, *, strict: bool) -> None:
    """A compact list: what is wrong, by where it lies."""
    shown = checked.findings
    if len(shown) > MOST_PRINTED:
        shown = in_order(sorted(shown, key=lambda finding: finding.severity != "error")[:MOST_PRINTED])
    for where, findings in groupby(shown, key=lambda finding: _heading(place_of(finding))):
        _line(console, where or ".", "bold")
        for finding in findings:
            _print_finding(console, finding, where)
    if unshown := len(checked.findings) - len(shown):
        _line(console, f"{counted(unshown, 'more finding')}: --json has all")
    systems = {(place.division, place.organisation, place.system) for place in checked.places}
    errors, warnings = len(checked.of("error")), len(checked.of("warning"))
    said = (
        f"{counted(len(checked.places), 'scenario')} of {counted(len(systems), 'system')}, round {checked.tree.round}"
    )
    _line(console, f"{said}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    if checked.not_judged:
        text = f"{counted(len(checked.not_judged), 'scenario')} not judged by every rule"
        _line(console, f"{text}: no finding does not mean clean; --json names what was not judged of each")
        reasons = Counter(reason for several in checked.not_judged.values() for reason in several)
        for reason, count in reasons.most_common():
            _line(console, f"  {counted(count, 'scenario')}: {shortened(reason)}")
    if len({place.organisation for place in checked.places}) > 1:
        _print_table(checked, console)
    for text in (*_sign_off_lines(checked), *_official_lines(checked.official, checked.tree.root)):
        _line(console, text)
    clean = checked.exit_code(strict=strict) is ExitCode.OK
    _line(console, "clean" if clean else "not clean", "green" if clean else "red")


def _print_table(checked: Checked, console: Console) -> None:
    """How many findings of which rule each organisation has: the gravest first, then the most frequent."""
    counts = Counter((finding.severity, _organisation(place_of(finding)), finding.rule) for finding in checked.findings)
    _line(console, "by organisation and rule:", "bold")
    rows = sorted(counts.items(), key=lambda row: (row[0][0] != "error", -row[1], row[0]))
    for (severity, organisation, rule_id), count in rows[:MOST_ROWS]:
        _line(console, f"  {count:>5}  {severity:<8}{organisation:<32}  {rule_id}")


def _organisation(file: str) -> str:
    parts = file.split("/")
    return parts[1] if len(parts) > 1 else "."


def _heading(file: str) -> str:
    """The scenario's directory of a file, or the directory of the submitter."""
    parts = file.split("/")
    return "/".join(parts[:6]) if len(parts) > 6 else "/".join(parts[:2])


def _print_finding(console: Console, finding: Finding, where: str) -> None:
    inside = place_of(finding).removeprefix(where).lstrip("/")
    told = replace(finding, files=(Path(inside),) if inside else ())
    text = Text(f"  {told.line_with_place}")
    text.stylize(_COLOURS[finding.severity], 0, text.plain.index(finding.rule))
    console.print(text, soft_wrap=True, highlight=False)
    _line(console, f"    fix: {finding.fix} ({finding.known.source})", "dim")


def _sign_off_lines(checked: Checked) -> Iterator[str]:
    if checked.signed is None:
        yield "sign-off: not asked (name the runs that the tree was made of with --runs)"
    for signed in checked.signed or ():
        yield f"sign-off of {shortened(signed.system)}: {shortened(signed.headline)}"


def _official_lines(official: OfficialResult | None, root: Path) -> Iterator[str]:
    if official is None:
        yield "official checker: not run (name a checkout of mlcommons/inference with --official)"
        return
    verdict = {"ok": "accepts the tree", "errors": "refuses the tree", "crashed": "crashed on the tree"}
    yield f"official checker ({official.checkout}): {verdict[official.outcome]}: {shortened(official.summary)}"
    # The checker says of every passed-over check that it was passed over, as a warning.
    telling = [message for message in official.messages if message.rule or message.level != "WARNING"]
    for message in telling[:SHOWN_MESSAGES]:
        rule = f" (our rule: {message.rule})" if message.rule else ""
        yield f"  {message.level}: {shortened(message.text.replace(f'{root}/', ''))}{rule}"
    if len(official.messages) > len(telling[:SHOWN_MESSAGES]):
        yield f"  {counted(len(official.messages), 'message')} in all, with --json in the record"
    for row in official.results:
        names = ("Platform", "Model", "Scenario", "Result", "Units")
        yield "  result: " + " ".join(shortened(str(row.get(name, ""))) for name in names)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style or None, highlight=False, soft_wrap=True, markup=False)
