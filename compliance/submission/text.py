"""The text of `submit`: the refusals, grouped by cause, or the tree that was built."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from compliance.judge.verdict import Finding
from compliance.signoff.signoff_verdict import headline
from compliance.submission.refusal_causes import by_cause
from runs.harness import PROGRAM
from runs.rounds import CURRENT_ROUND
from runs.wording import counted

if TYPE_CHECKING:
    from compliance.submission.build import SubmissionDetails


def refusal_lines(findings: Sequence[Finding], *, with_place: bool = False) -> Iterator[str]:
    """Yield the refusals by cause, each cause with its fix. Facts that no further run changes come first.

    Args:
        with_place: True to print each finding with its files; otherwise only the first finding of a cause.
    """
    groups = by_cause(findings)
    yield f"REFUSED: {counted(len(findings), 'finding')} with {counted(len(groups), 'cause')}, no tree was built"
    never = [group for group in groups if any(finding.rule == "submit/not-official" for finding in group)]
    if never:
        yield f"these runs can never be submitted, also with more runs, for {counted(len(never), 'cause')}:"
    never.sort(key=lambda group: group[0].rule != "submit/not-official")
    for number, group in enumerate([*never, *(group for group in groups if group not in never)]):
        if never and number == len(never):
            yield "further causes:"
        first, *remaining = group
        if with_place:
            yield from (f"  {finding.line_with_place}" for finding in group)
        else:
            yield f"  {first}"
            rules, places = ({getattr(finding, name): None for finding in remaining} for name in ("rule", "text"))
            if remaining:
                yield f"    also: {', '.join(rules)} in {', '.join(places)}"
        yield f"    fix: {first.fix or first.definition.fix}"


def built_lines(details: "SubmissionDetails") -> Iterator[str]:
    """Yield the tree that was built, with its results, the source of each field of its system, and the next command."""
    request, description, sizes = details.request, details.description, details.built
    assert description is not None
    assert sizes is not None
    megabytes = sum(sizes.values()) / 1e6
    yield f"built {request.output}: {counted(len(sizes), 'file')}, {megabytes:.1f} MB, round {request.round}"
    for judged in details.judged:
        yield f"  {judged.name}: {judged.verdict.outcome}, audits: {', '.join(judged.audits) or 'none'}"
    if details.signed is not None:
        yield f"sign-off: {headline(details.signed)}"
    yield "system description:"
    for origin, names in description.from_where():
        shown = [f"{name}: {description.values[name]}" for name in names if description.values[name]]
        yield from (f"  {origin}", *(f"    {line}" for line in shown)) if shown else ()
    yield from (f"note: {note}" for note in details.notes)
    if details.rehearsal:
        yield "REHEARSAL tree, not for upload:"
        yield from (f"  {reason}" for reason in details.rehearsal)
    rounds = "" if request.round == CURRENT_ROUND else f" --round {request.round}"
    paths: list[tuple[str, Path | None]] = [("--runs", path) for path in request.results]
    paths += [("--source", request.source), ("--dataset-path", request.sources.dataset_path)]
    options = "".join(f" {option} {quote(str(path))}" for option, path in paths if path is not None)
    yield f"next: {PROGRAM} check {quote(str(request.output))}{rounds}{options}"
