"""The `submit` command, which builds a submission tree."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from compliance.trees.tree import DIVISIONS
from runs.errors import ExitCode, InputError
from runs.harness import PROGRAM
from runs.rounds import CURRENT_ROUND, ROUNDS
from runs.wording import counted
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, refuse_given, write_record
from scenarios.command_line.options import round_option, score_sources, seed_sets_option
from scenarios.command_line.tree_options import system_file, tree_options
from scenarios.console import say

if TYPE_CHECKING:
    from compliance.judge.verdict import Finding
    from compliance.submission.build import Submission

EXAMPLES = (
    "submit the runs of a campaign: submit output/campaign --organization ORG --system-name NAME --system system.yaml "
    "--output tree",
    "submit a result in the open division: submit RESULT --division open --organization ORG --system-name NAME "
    "--output tree",
    "build a tree from runs that are not eligible: submit output/campaign --rehearsal --organization ORG "
    "--system-name NAME --output tree",
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--organization", "--system-name", "--output", "--division", "--round", "--system", "--rehearsal"),
)
@click.argument("results", metavar="RESULT...", type=PATH, nargs=-1, required=True)
@click.option(
    "--organization",
    "--organisation",
    "organization",
    required=True,
    metavar="ORG",
    help="Name of the submitter and of its directory in the tree.",
)
@click.option(
    "--system-name", required=True, metavar="NAME", help="Name of the system and of its directory in the tree."
)
@click.option(
    "--division",
    type=click.Choice(DIVISIONS),
    default="closed",
    show_default=True,
    help="Division of the tree. The open division allows other models and options, and requires no particular "
    "scenarios or audits. The network division has the rules of the closed division; LoadGen and the servers run on "
    "different machines (docs/servers.md).",
)
@round_option("Round whose layout and seeds apply.")
@click.option("--output", required=True, type=PATH, metavar="TREE", help="Directory to create for the tree.")
@click.option(
    "--documentation",
    type=PATH,
    metavar="DIR",
    help="Directory with files for documentation/ in the tree. The network division requires a system diagram.",
)
@click.option(
    "--rehearsal",
    is_flag=True,
    help="Accept results that are not eligible for submission. The tree is marked as not for upload. Such results may "
    "come from the dummy engine, another model or synthetic data. Duration, seeds and accuracy must still meet the "
    "rules.",
)
@seed_sets_option()
@tree_options("Default: this repository, at the commit that the manifests state.")
@click.option("--json", type=PATH, metavar="[FILE]", help="Also write the output of the command to FILE, as JSON.")
def submit(
    results: tuple[Path, ...],
    round: str,
    system: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    json: Path | None,
    seed_sets: Path | None,
    **options: Any,
) -> ExitCode:
    """Build a submission tree from runs.

    RESULT is the directory of a campaign, of a result (performance/run_1, accuracy, audit/TEST06), of a run or of an
    audit. The command verifies every result and every required audit from its files, under the official rules. The runs
    of a result must have equal configurations. Except in the open division, they must also pass `signoff --scope
    bundle`. If a rule is violated, the command prints all reasons and writes no tree. It overwrites no file.

    RESULT can also be an MLPerf Endpoints run folder (a point of a curve), or a directory that contains run folders.
    The command checks each folder as `check` does, and writes the submission files that it can derive from the folders
    (docs/mlperf-endpoints.md). It also writes the fields of a point.yaml in the folder. A rehearsal of such runs
    requires only that all samples have a response.

    Exit codes: 0 built, 1 a result, an audit or the sign-off failed, 2 bad input or missing facts of the system,
    3 the tree cannot be written or its source is missing, 4 a run did not finish or its files changed.
    """
    from compliance.mlperf_endpoints.find_folders import is_for_endpoints

    if any(map(is_for_endpoints, results)):
        return _submit_folders(results, dataset_path, model_path, json, seed_sets, **options)
    if seed_sets is not None:
        raise InputError("--seed-sets: only for run folders of MLPerf Endpoints", "remove --seed-sets")
    from compliance.judge.record import record
    from compliance.submission.build import build_submission
    from compliance.submission.candidate import SubmitRequest
    from compliance.submission.system import SystemFile
    from compliance.submission.this_machine import detected_for
    from scenarios.terminal import Terminal

    console = Terminal()
    request = SubmitRequest(
        results=list(results),
        round=ROUNDS[round],
        given=system_file(system, results) or SystemFile({}, {}),
        detect_here=detected_for,
        sources=score_sources(dataset_path, model_path),
        **options,
    )
    with console.status("") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                say(console, text)

        verdict = build_submission(request, tell)
    content = record(verdict)
    command_output.put(**content)
    write_record("--json", json, content)
    for text in _refusals(verdict.all_findings) if verdict.all_findings else _built(verdict):
        say(console, text)
    return verdict.exit_code()


def _submit_folders(
    folders: tuple[Path, ...],
    dataset_path: Path | None,
    model_path: str | None,
    json: Path | None,
    seed_sets: Path | None,
    *,
    output: Path,
    system_name: str,
    rehearsal: bool,
    **_others: Any,
) -> ExitCode:
    unused = ("source", "documentation", "division", "round", "system")
    refuse_given(click.get_current_context(), "MLPerf Endpoints run folders", unused)
    from compliance.judge.record import record
    from compliance.judge.verdict import Finding
    from compliance.mlperf_endpoints.find_folders import point_folders
    from compliance.mlperf_endpoints.submission import check_folders
    from compliance.mlperf_endpoints.tree import judge_tree
    from compliance.submission.build_points import build_points, refusals, waivers
    from scenarios.terminal import Terminal

    console = Terminal()
    with console.status("verifying"):
        checked = check_folders(folders, dataset_path, model_path=model_path, seed_file=seed_sets)
    if checked.error is not None:
        raise checked.error
    refused = refusals(checked, rehearsal=rehearsal)
    files = [] if refused else build_points(checked, output, system_name, rehearsal=rehearsal)
    content = record(checked) | {"verdict": "REFUSED" if refused else "BUILT", "files": [str(path) for path in files]}
    command_output.put(**content)
    write_record("--json", json, content)
    if refused:
        for text in _refusals(sorted(refused, key=lambda one: one.sentence), with_place=True):
            say(console, text)
        return ExitCode.NEGATIVE
    say(console, f"built {output}: {counted(len(files), 'file')}")
    if rehearsal:
        say(console, "REHEARSAL tree, not for upload")
    # The check of the tree, which follows, repeats these three rules with more detail.
    repeated = ("endpoints-file", "endpoints-points", "endpoints-tree")
    of_runs = [*(waivers(checked) if rehearsal else ()), *(checked.of("warning"))]
    places = sorted(point_folders(output))
    of_tree = [one for one in judge_tree(places, checked.details.tables) if isinstance(one, Finding) and one.violated]
    for finding in (*(one for one in of_runs if one.rule not in repeated), *of_tree):
        say(console, f"  {finding.line_with_place}")
    fix = "add the missing files and fields to the run directories or to the tree, then " if of_tree else ""
    say(console, f"next: {fix}{PROGRAM} check {quote(str(output))}")
    return ExitCode.OK


def _refusals(findings: "Sequence[Finding]", *, with_place: bool = False) -> list[str]:
    from compliance.submission.refusal_causes import by_cause

    groups = by_cause(findings)
    lines = [f"REFUSED: {counted(len(findings), 'finding')} with {counted(len(groups), 'cause')}, no tree was built"]
    never = [group for group in groups if any(one.rule == "submit/not-official" for one in group)]
    if never:
        lines.append(f"these runs can never be submitted, also with more runs, for {counted(len(never), 'cause')}:")
    never.sort(key=lambda group: group[0].rule != "submit/not-official")
    for number, group in enumerate([*never, *(group for group in groups if group not in never)]):
        if never and number == len(never):
            lines.append("further causes:")
        first, *remaining = group
        if with_place:
            lines += [f"  {one.line_with_place}" for one in group]
        else:
            lines.append(f"  {first}")
            rules, places = ({getattr(one, name): None for one in remaining} for name in ("rule", "text"))
            lines += [f"    also: {', '.join(rules)} in {', '.join(places)}"] if remaining else []
        lines.append(f"    fix: {first.fix or first.definition.fix}")
    return lines


def _built(verdict: "Submission") -> list[str]:
    from compliance.signoff.signoff_verdict import headline

    details = verdict.details
    request, description, sizes = details.request, details.description, details.built
    assert description is not None
    assert sizes is not None
    lines = [
        f"built {request.output}: {counted(len(sizes), 'file')}, {sum(sizes.values()) / 1e6:.1f} MB, "
        f"round {request.round}"
    ]
    for judged in details.judged:
        audits = ", ".join(judged.audits) or "none"
        lines.append(f"  {judged.name}: {judged.verdict.outcome}, audits: {audits}")
    if details.signed is not None:
        lines.append(f"sign-off: {headline(details.signed)}")
    lines.append("system description:")
    for words, names in description.from_where():
        shown = [f"{name}: {description.values[name]}" for name in names if description.values[name]]
        lines += [f"  {words}", *(f"    {text}" for text in shown)] if shown else []
    lines += [f"note: {note}" for note in details.notes]
    if details.rehearsal:
        lines.append("REHEARSAL tree, not for upload:")
        lines += [f"  {reason}" for reason in details.rehearsal]
    rounds = "" if request.round == CURRENT_ROUND else f" --round {request.round}"
    paths: list[tuple[str, Path | None]] = [("--runs", path) for path in request.results]
    paths += [("--source", request.source), ("--dataset-path", request.sources.dataset_path)]
    same = "".join(f" {option} {quote(str(path))}" for option, path in paths if path is not None)
    lines.append(f"next: {PROGRAM} check {quote(str(request.output))}{rounds}{same}")
    return lines
