"""Files and points missing for a submission to MLPerf Endpoints, and the verdict of the official checker.

A submission is a curve. Each run directory is a point in results/<system>/<model>/r<concurrency>/. The client writes
two files of a point; the submitter writes the others. The official checker is the package endpoints-submission-cli; it
decides about a tree, and reads summaries only.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from compliance.judge.record import not_applied_record
from compliance.judge.rule import Check, decides
from compliance.judge.text import TextLayout, not_applied_lines
from compliance.judge.verdict import Finding, NotApplied, Outcome, Subject, Verdict, compared, judge, not_applied
from compliance.mlperf_endpoints.curve_rules import AGENTIC, ELECTED, region_bounds
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.point_rules import ACCURACY
from compliance.mlperf_endpoints.points import judge_points
from compliance.mlperf_endpoints.round_tables import (
    NEWEST,
    SEED_SETS_VARIABLE,
    RoundTables,
    day_text,
    judge_tables,
    round_tables,
)
from compliance.mlperf_endpoints.tree import declared_point, judge_tree
from compliance.mlperf_endpoints.verdict import OFFICIAL, client_run
from compliance.sources import Case, VerdictRequest
from runs.errors import ExecutionError, InputError
from runs.files.temporary import temporary_folder
from runs.mlperf_endpoints.find_folders import point_folders, run_folders
from runs.mlperf_endpoints.folder import EndpointsRun
from runs.mlperf_endpoints.layout import CONFIG, SUMMARY
from runs.processes.child import run_program
from runs.record.fingerprint import differences
from runs.wording import counted, printable, shortened_list

BUILD_POINTS = "compliance.submission.build_points"  # only --runs needs this module
PROGRAM = "endpoints-submission-cli"
TIMEOUT_S = 600
MAX_MESSAGES = 500  # messages of the official checker that are kept
# File of a point in a submission → its path in the run directory.
POINT_FILES = {
    CONFIG: CONFIG,
    "result_summary.json": SUMMARY,
    "accuracy_results.json": ACCURACY,
    "point.yaml": "point.yaml",
    "system_desc.json": "system_desc.json",
}
# Rules that the official checker decides, with its rules; it must accept the last one, and refuse none.
_OFFICIAL_RULES = {
    "endpoints-tree-seeds": ("seed-set-consistency", "seed-set-membership", "seed-runtime-match"),
    "endpoints-tree-cohort": ("target-cohort", "seed-set-adoption"),
    "endpoints-tree-drafter": ("approved-drafter", "drafter-approval-lead-time"),
}
_TABLE_OF = {
    "endpoints-tree-seeds": "seed_sets", "endpoints-tree-cohort": "cohorts", "endpoints-tree-drafter": "drafters",
}  # fmt: skip
# Files of the whole submission, which no run directory has.
TREE_FILES = ("src/<implementation>/README.md", "docs/", "results/<system>/system_power.json")


@dataclass(eq=False)
class Curve(Subject):
    """Run directories of one curve, or a submission of them."""

    root: Path
    runs: list[EndpointsEvidence]
    tables: RoundTables

    kind = "curve"

    @property
    def parts(self) -> Sequence[EndpointsEvidence]:
        return self.runs

    @cached_property
    def points(self) -> list[Path]:
        """The points of a submission."""
        return sorted(point_folders(self.root))


@dataclass
class CurveDetails:
    """What `check` states of a curve besides the findings."""

    root: Path
    runs: list[EndpointsRun]  # readable run directories
    point_folders: list[str]  # points of a submission tree
    verdicts: dict[str, Outcome]  # directory → verdict of `verify --official`
    tables: RoundTables
    official: dict[str, Any] | None = None  # program, outcome and messages of endpoints-submission-cli

    def as_json(self, verdict: "CurveVerdict", common: dict[str, Any]) -> dict[str, Any]:
        entries = [(entry, part.details.directory) for part in verdict.parts for entry in not_applied(part)]
        return common | {
            "schema_version": 2,
            "not_judged": [not_applied_record(entry, folder) for entry, folder in entries] + common["not_judged"],
            "tree": str(self.root),
            "round": NEWEST,
            "tables": self.tables.record(),
            "folders": list(self.verdicts),
            "verdicts": self.verdicts,
            "official": {"run": self.official is not None, **(self.official or {})},
        }


CurveVerdict = Verdict[CurveDetails]


def add_official_checker(verdict: CurveVerdict, program: str | None, seed_file: Path | None = None) -> None:
    """Run the official checker, if it is known. Its refusal counts as an error."""
    if program is not None:
        verdict.details.official = run_checker(program, verdict.details.root, seed_file)
        for part in verdict.all_verdicts:
            part.findings = decided_by_official(part.findings, verdict.details)
        if verdict.details.official["outcome"] != "ok":
            verdict.refused_by.append(PROGRAM)


def _head(verdict: CurveVerdict) -> Iterator[str]:
    details = verdict.details
    count = len(details.point_folders) or len(details.verdicts)
    yield f"{counted(count, 'point')} of MLPerf Endpoints, round {NEWEST}: {verdict.outcome}"
    yield from (f"  {folder}: {outcome}" for folder, outcome in details.verdicts.items())
    if verdict.error is not None:
        yield f"  {verdict.error}"


def _tail(verdict: CurveVerdict) -> Iterator[str]:
    for part in verdict.parts:
        yield from not_applied_lines(part, f"{part.details.directory}: ")
    yield from not_applied_lines(verdict)
    yield from (f"  {line}" for line in verdict.details.tables.lines())
    official = verdict.details.official
    if official is None:
        yield f"official check: not run (to check the content of all files, install {PROGRAM} or give --official)"
        return
    response = "accepts the tree" if official["outcome"] == "ok" else "refuses the tree"
    yield f"official checker ({official['program']} {official['version']}".rstrip() + f"): {response}"
    for message in official["messages"]:
        if message["severity"] != "info":
            yield f"  {message['severity']} {message['rule']}: {printable(message['text'])}"


CURVE = TextLayout(
    _head,
    shown=lambda verdict: verdict.of("error", "warning", "note"),
    with_place=True,
    with_not_applied=False,
    tail=_tail,
)


def _curve(folders: Sequence[Path], dataset_path: Path | None, model_path: str | None, seed_file: Path | None) -> Curve:
    """Return the run directories in folders as one curve."""
    tables, paths = round_tables(seed_file), [path for folder in folders for path in run_folders(folder)]
    return Curve(folders[0], [client_run(path, model_path, dataset_path, tables) for path in paths], tables)


def check_folders(
    folders: Sequence[Path],
    dataset_path: Path | None = None,
    *,
    model_path: str | None = None,
    seed_file: Path | None = None,
) -> CurveVerdict:
    """Check run directories as `verify --official` does, and report what a submission of them lacks.

    Args:
        seed_file: A newer seedset.yaml.
    """
    return judge(_curve(folders, dataset_path, model_path, seed_file), CHECK)


def curve_cases(paths: Sequence[Path], request: VerdictRequest) -> list[Case]:
    """Return the curve of run directories, or of a submission of them, for `check`.

    Raises:
        InputError: If there are too many run directories, or the official checker is not a program.
    """
    program, scores, seed_file = find_checker(request.checker, paths[0]), request.scores, request.seed_sets
    curve = _curve(paths, scores.dataset_path, scores.model_path, seed_file)

    def complete(verdict: CurveVerdict) -> None:
        if request.runs:
            against = check_folders(
                request.runs, scores.dataset_path, model_path=scores.model_path, seed_file=seed_file
            )
            verdict.findings += import_module(BUILD_POINTS).compare_points_with_runs(verdict, against)
            verdict.error = verdict.error or against.error
        add_official_checker(verdict, program, seed_file)

    return [Case(curve, CHECK, CURVE, complete=complete, home=curve.root)]


def _details(curve: Curve, verdict: CurveVerdict) -> CurveDetails:
    parts = [part.details for part in verdict.parts]
    runs = [details.run for details in parts if details.run is not None]
    # As in `verify`, contradictions decide the verdict on a single run.
    verdicts = {part.details.directory: replace(part, contradictions_end=True).outcome for part in verdict.parts}
    return CurveDetails(curve.root, runs, [str(point) for point in curve.points], verdicts, curve.tables)


def _tree_rules(curve: Curve) -> Iterator[Finding | NotApplied]:
    yield from judge_tables(curve.tables)
    if curve.points:
        yield from judge_tree(curve.points, curve.tables)
        yield from judge_points(curve.root, curve.points)


def _missing_parts(curve: Curve) -> Iterator[Finding]:
    if runs := [run.run for run in curve.runs if run.error is None]:
        yield from _lacking(curve.root, runs, curve.tables)


# The age of the tables is reported once for the curve.
_RUN = tuple(check for check in OFFICIAL.checks["client run"] if "endpoints-tables" not in check.rules)
CHECK = replace(
    OFFICIAL,
    checks={**OFFICIAL.checks, "client run": _RUN, "curve": (Check(_tree_rules, ()), Check(_missing_parts, ()))},
    details={**OFFICIAL.details, "curve": _details},
    contradictions_end=False,
)


@decides(
    "submit",
    ("endpoints-file", "warning", "[endpoints] §8.1", "missing files of a point",
     "add the files that §8 of the rules describes"),
    ("endpoints-tree", "note", "[endpoints] §8.1", "files of a submission besides its points",
     "add the files that §8 of the rules describes"),
    ("endpoints-points", "warning", "[endpoints] §5.3", "points of the curve", "run more points, or submit fewer"),
    ("endpoints-regions", "warning", "[endpoints] §5.4", "points in a region of the curve",
     "run a point with a concurrency of this region"),
    ("endpoints-offline", "warning", "[endpoints] §5.7", "Offline points of the curve",
     "run one point with load_pattern max_throughput, or elect the point with the highest concurrency"),
    ("endpoints-one-system", "error", "[endpoints] §5.1", "differences between the points of the curve",
     "give the run directories of one curve"),
)  # fmt: skip
def _lacking(root: Path, runs: Sequence[EndpointsRun], tables: RoundTables) -> Iterator[Finding]:
    """Report the missing files of each point, and the missing points of the curve."""
    for run in runs:
        missing = [name for name, file in POINT_FILES.items() if not run.has(file) and name != "accuracy_results.json"]
        if missing:
            names = shortened_list(missing, len(missing))
            yield compared("endpoints-file", False, names, "none", run.root)
    patterns = [run.config.settings.load_pattern for run in runs if run.config is not None]
    levels = sorted(
        {
            pattern.target_concurrency
            for pattern in patterns
            if pattern.type == "concurrency" and pattern.target_concurrency
        }
    )
    offline = sum(pattern.type == "max_throughput" for pattern in patterns)
    least, most = tables.point_limits(is_dedicated=offline > 0)
    right = least <= len(levels) + offline <= most
    names = f"{len(levels)} concurrencies and {counted(offline, 'Offline point')}"
    yield compared("endpoints-points", right, names, f"{least} to {most} points", root)
    if any(pattern.type != AGENTIC for pattern in patterns):
        chosen = [run.config.settings.load_pattern for run in runs if run.config is not None and _is_elected(run)]
        right = offline + len(chosen) == 1 and all(
            pattern.target_concurrency == levels[-1] for pattern in chosen if levels
        )
        value, wanted = f"{offline}, and {len(chosen)} elected", "1, or the elected point of the highest concurrency"
        yield compared("endpoints-offline", right, value, wanted, root)
    yield from same_configuration(root, runs)
    for name, (low, high) in regions(levels, tables.points["ultra_low"]).items():
        inside = [level for level in levels if low <= level <= high]
        text = f"points of {name}, concurrency {low} to {high}"
        yield compared("endpoints-regions", bool(inside), f"{len(inside)}", "at least 1", root, text=text)
    yield compared("endpoints-tree", False, "none in run directories", ", ".join(TREE_FILES), root)


def _is_elected(run: EndpointsRun) -> bool:
    return declared_point(run.root).get("offline") == ELECTED


def same_configuration(root: Path, runs: Sequence[EndpointsRun]) -> Iterator[Finding]:
    """Compare the configurations of several run directories; streaming, load and server addresses may differ."""
    configured = []
    for run in runs:
        model, settings = run.raw_config.get("model_params"), run.config.settings if run.config else None
        seeds = settings and (settings.runtime.scheduler_random_seed, settings.runtime.dataloader_random_seed)
        facts = model if isinstance(model, dict) else {}
        facts = facts | {"datasets": run.datasets(measured=True), "seeds": seeds}
        configured.append({name: value for name, value in facts.items() if name != "streaming"})
    differ = sorted({name for configuration in configured for name in differences(configured[0], configuration)})
    fields = ", ".join(differ) or "none"
    yield compared("endpoints-one-system", not differ, fields, "none", root)


def regions(levels: Sequence[int], ultra_low: int) -> dict[str, tuple[int, int]]:
    """Return the bounds of the regions between the lowest and highest concurrency of a curve. [endpoints] §5.5"""
    if not levels or levels[-1] <= ultra_low:
        return {"ultra low": (1, ultra_low)}
    lowest, highest = min(levels[0], ultra_low), levels[-1]
    return region_bounds(lowest, highest, ultra_low)


def find_checker(named: Path | None, root: Path) -> str | None:
    """Return the given checker program, or for a submission the installed one.

    Raises:
        InputError: If the given path is not a program.
    """
    if named is None:
        return shutil.which(PROGRAM) if any(True for _ in point_folders(root)) else None
    program = shutil.which(str(named.resolve()))
    if program is None:
        raise InputError(f"--official {named}: program not found", f"give the path of the {PROGRAM} program")
    return program


def decided_by_official(of_verdict: Sequence[Finding], details: CurveDetails) -> list[Finding]:
    """Return the findings, in which the official checker decides about seeds, cohorts and drafters.

    It has newer tables than this version, or older ones. An error that it contradicts becomes a note with both dates.
    """
    official, findings = details.official or {"accepted": [], "version": "", "messages": []}, []
    refused = {message["rule"] for message in official["messages"]}
    for finding in of_verdict:
        rules = _OFFICIAL_RULES.get(finding.rule, ())
        if finding.severity == "error" and rules and rules[-1] in official["accepted"] and not refused & set(rules):
            as_of = day_text(details.tables.tables[_TABLE_OF[finding.rule]].as_of)
            text = f"{finding.sentence} by the table as of {as_of}; {PROGRAM} {official['version']} accepts it".strip()
            finding = replace(finding, severity="note", text=text, found="", required="", is_statement=True)
        findings.append(finding)
    return findings


def _version_of(program: str, folder: Path) -> str:
    try:
        done = run_program([program, "--version"], cwd=folder, timeout_s=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"version (\d[\w.+-]{0,40})\s*$", done.stdout.decode(errors="replace"))
    return match[1] if match else ""


def run_checker(program: str, root: Path, seed_file: Path | None = None) -> dict[str, Any]:
    """Run the official checker in a separate working directory, without writing to the tree.

    Args:
        seed_file: A newer seedset.yaml for the checker.

    Raises:
        ExecutionError: If it does not start, does not end, or prints no readable result.
    """
    command = [program, "check-submission", "--json", "--no-annotate", str(root.resolve())]
    with temporary_folder("endpoints-check-") as folder:
        try:
            env = None if seed_file is None else os.environ | {SEED_SETS_VARIABLE: str(seed_file.resolve())}
            done = run_program(command, cwd=folder, timeout_s=TIMEOUT_S, env=env)
            version = _version_of(program, folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            fix = f"run `{' '.join(command)}` in a shell"
            raise ExecutionError(f"--official {program}: could not run: {error}", fix) from error
    try:
        results = orjson.loads(done.stdout[done.stdout.index(b"{") :])["results"]
        fields = {"severity": "severity", "rule": "rule", "text": "message"}
        messages = [
            {name: str(result[key]) for name, key in fields.items()} for result in results if not result["passed"]
        ]
        passed, refused = (
            {str(result["rule"]) for result in results if bool(result["passed"]) is state} for state in (True, False)
        )
    except (ValueError, KeyError, TypeError) as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ExecutionError(
            f"--official {program}: no JSON in its output (exit code {done.returncode}): {last[:300]}",
            f"install version 1.5 of {PROGRAM}",
        ) from error
    outcome = "ok" if done.returncode == 0 else "errors"
    messages = messages[:MAX_MESSAGES]
    return {
        "program": program, "version": version, "outcome": outcome, "exit_code": done.returncode, "messages": messages,
        "accepted": sorted(passed - refused),
    }  # fmt: skip
