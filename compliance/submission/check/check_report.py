"""The outcome of `check`: for people, and as a record."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from compliance.finding import Finding, Severity
from compliance.submission.check.causes import SELECTION, WEIGHTS, Cause
from compliance.submission.check.check_tree import Checked
from compliance.submission.check.findings import in_order, place_of, shortened
from compliance.submission.check.judged import catalogue
from compliance.submission.check.official_checker import OfficialResult
from runs.errors import ExitCode
from runs.wording import counted

SHOWN_MESSAGES = 30
MOST_PRINTED = 2000  # findings, errors first; to print takes longer than to find
MOST_HEAD = 30  # lines before the details
MOST_EXAMPLE = 160  # characters of a place, and of a sentence
MOST_REASONS = 12  # why something was not judged
MOST_LISTED = 12  # further causes of one weight, by name
_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow"}


def print_report(checked: Checked, console: Console, *, strict: bool) -> None:
    """What matters first, then what is wrong by where it lies."""
    for text, style in head(checked):
        _line(console, text, style)
    shown = [one.finding for one in checked.told if one.cause != SELECTION]
    folded = len(checked.findings) - len(shown)
    if len(shown) > MOST_PRINTED:
        shown = in_order(sorted(shown, key=lambda finding: finding.severity != "error")[:MOST_PRINTED])
    for where, findings in groupby(shown, key=lambda finding: _heading(place_of(finding))):
        _line(console, where or ".", "bold")
        for finding in findings:
            _print_finding(console, finding, where)
    if unshown := len(checked.findings) - folded - len(shown):
        _line(console, f"{counted(unshown, 'more finding')}: --json has all")
    for text in not_judged_lines(checked):
        _line(console, text)
    if len({place.organisation for place in checked.places}) > 1:
        _print_table(checked, console)
    for text in (*_sign_off_lines(checked), *_official_lines(checked.official, checked.tree.root)):
        _line(console, text)
    clean = checked.exit_code(strict=strict) is ExitCode.OK
    _line(console, "clean" if clean else "not clean", "green" if clean else "red")


def head(checked: Checked) -> Iterator[tuple[str, str]]:
    """At most MOST_HEAD lines, each with its style: what was judged, then causes by weight, each with an example."""
    systems = {(place.division, place.organisation, place.system) for place in checked.places}
    said = [counted(len(checked.places), "result"), counted(len(systems), "system")]
    said.append(counted(len({place.organisation for place in checked.places}), "submitter"))
    errors, warnings = (counted(len(checked.of(kind)), kind) for kind in ("error", "warning"))
    yield f"{' of '.join(said)}, round {checked.tree.round}: {errors}, {warnings}", "bold"
    told = [cause for cause in checked.causes if cause.name != SELECTION]
    for cause in checked.causes:
        if cause.name == SELECTION:
            rules = ", ".join(f"{rule} {count}" for rule, count in cause.rules.most_common())
            yield f"looks like a selection: no submitter has any code; folded, --json has them: {rules}", ""
    by_weight = [[cause for cause in told if cause.weight == weight] for weight in range(len(WEIGHTS))]
    for (weight, found), most in zip(enumerate(by_weight), _room(by_weight), strict=True):
        if found:
            yield f"{WEIGHTS[weight]}:", "bold"
        for cause in found[:most]:
            yield f"  {cause.extent}: {cause.name}: {cause.summary}", "red" if cause.is_error else "yellow"
            example = cause.example
            told_why = example.found if example.required == example.known.summary else example.sentence
            place = place_of(example) + (f":{example.line}" if example.line is not None else "")
            yield f"    e.g. {_short(place)}: {_short(told_why)}", ""
        if rest := found[most:]:
            listed = [f"{cause.name} ({len(cause.results or cause.told)})" for cause in rest[:MOST_LISTED]]
            more = f", {len(rest) - MOST_LISTED} more" if len(rest) > MOST_LISTED else ""
            yield f"  also {', '.join(listed)}{more}", ""


def not_judged_lines(checked: Checked) -> Iterator[str]:
    """To how many rules results were held, and what the others lack: the most frequent."""
    if not checked.judged:
        return
    lacking = [sum(len(one.rules) for one in several) for several in checked.judged.values()]
    rules = len(catalogue())
    yield f"of {rules} rules each result was held to {rules - max(lacking)} to {rules - min(lacking)}; not judged are:"
    reasons: dict[tuple[str, str], list[int]] = {}
    for several in checked.judged.values():
        for one in several:
            reasons.setdefault((one.what, one.why), []).append(len(one.rules))
    for (what, why), counts in sorted(reasons.items(), key=lambda item: -len(item[1]))[:MOST_REASONS]:
        of = f"{min(counts)} to {max(counts)} rules" if min(counts) < max(counts) else counted(max(counts), "rule")
        yield f"  {of} of {counted(len(counts), 'result')}: {what}: {shortened(why)}"
    yield "  no finding does not mean clean; --json names the rules of each result"


def _room(by_weight: list[list[Cause]]) -> list[int]:
    """How many causes of each weight are told with an example: one, and more as long as there are lines: in turns of
    the three gravest weights, then of the others."""
    most = [min(1, len(found)) for found in by_weight]
    free = MOST_HEAD - 2 - sum(2 * bool(found) for found in by_weight) - 2 * sum(most)
    for weights in (range(3), range(3, len(WEIGHTS))):
        for weight in (weight for _ in range(free) for weight in weights):
            if free >= 2 and most[weight] < len(by_weight[weight]):
                most[weight] += 1
                free -= 2
    return most


def _short(text: str) -> str:
    return text if len(text) <= MOST_EXAMPLE else text[:MOST_EXAMPLE] + "..."


def _print_table(checked: Checked, console: Console) -> None:
    """How many findings of which weight each submitter has."""
    counts = Counter((one.subject[1], checked.weights[one.cause]) for one in checked.told if len(one.subject) > 1)
    _line(console, "findings by submitter: " + ", ".join(f"{n} {name}" for n, name in enumerate(WEIGHTS, 1)), "bold")
    for organisation in sorted({organisation for organisation, _ in counts}):
        cells = (counts[organisation, weight] or "" for weight in range(len(WEIGHTS)))
        _line(console, f"  {organisation:<32}" + "".join(f"{cell:>6}" for cell in cells))


def _heading(file: str) -> str:
    """The scenario's directory of a file, or the directory of the submitter."""
    parts = file.split("/")
    return "/".join(parts[:6]) if len(parts) > 6 else "/".join(parts[:2])


def _print_finding(console: Console, finding: Finding, where: str) -> None:
    inside = [file.as_posix().removeprefix(where).lstrip("/") for file in finding.files]
    told = replace(finding, files=tuple(map(Path, inside)) if inside[0] else ())
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
