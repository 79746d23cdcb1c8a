"""What run folders lack to be a submission to MLPerf Endpoints, and the verdict of its own checker.

A submission is a curve: a point for each run folder, laid out as results/<system>/<model>/r<concurrency>/. The client
writes two of a point's files; the others are the submitter's. The checker is the package endpoints-submission-cli; it
reads summaries alone, and it is the authority on a tree.
"""

import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from compliance.endpoints.find_folders import points, run_folders
from compliance.endpoints.rules import ACCURACY, NEWEST, round_rules
from compliance.endpoints.verdict import judge_folder
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.text import finding_lines, not_judged_lines
from compliance.judge.verdict import Outcome, Verdict
from runs.child import run_program
from runs.endpoints.folder import EndpointsRun
from runs.endpoints.layout import CONFIG, SUMMARY
from runs.errors import ExecutionError, InputError
from runs.record.fingerprint import differences
from runs.temporary import temporary_folder
from runs.wording import counted, printable, shortened_list

PROGRAM = "endpoints-submission-cli"
TIMEOUT_S = 600
MAX_MESSAGES = 500
# A point's files in a submission: where the client's folder has them, or who makes them.
POINT_FILES = {
    CONFIG: CONFIG,
    "result_summary.json": SUMMARY,
    "accuracy_results.json": ACCURACY,
    "point.yaml": "point.yaml",
    "system_desc.json": "system_desc.json",
}
# Of the whole submission; listed as lacking, since no run folder has them.
TREE_FILES = ("src/<implementation>/README.md", "docs/", "results/<system>/system_power.json")


@dataclass
class FoldersChecked(Verdict):
    """Run folders, held to a round and to what a submission of them needs."""

    schema_version = 2

    root: Path
    runs: list[EndpointsRun] = field(default_factory=list)  # those that can be read
    verdicts: dict[str, Outcome] = field(default_factory=dict)  # of `verify --official`, by folder
    official: dict[str, Any] | None = None  # what endpoints-submission-cli reports: program, outcome, messages

    @property
    def outcome(self) -> Outcome:
        """A refusal of the official checker counts as an error does."""
        return "FAIL" if self.official and self.official["outcome"] != "ok" else super().outcome

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        return super().record(strict=strict) | {
            "tree": str(self.root),
            "round": NEWEST,
            "folders": list(self.verdicts),
            "verdicts": self.verdicts,
            "official": {"run": self.official is not None, **(self.official or {})},
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{counted(len(self.verdicts), 'run folder')} of MLPerf Endpoints, round {NEWEST}: {self.outcome}"
        yield from (f"  {folder}: {outcome} by its events" for folder, outcome in self.verdicts.items())
        if self.error is not None:
            yield f"  {self.error}"
        yield from finding_lines(self, self.of("error", "warning", "note"), with_place=True)
        yield from not_judged_lines(self)
        if self.official is None:
            yield f"official checker: not run (on a submission: install {PROGRAM}, or name it with --official)"
            return
        response = "accepts the tree" if self.official["outcome"] == "ok" else "refuses the tree"
        yield f"official checker ({self.official['program']}): {response}"
        for one in self.official["messages"]:
            if one["severity"] != "info":
                yield printable(f"  {one['severity']} {one['rule']}: {one['text']}")


def check_folders(
    folders: Sequence[Path], dataset_path: Path | None = None, *, model_path: str | None = None
) -> FoldersChecked:
    """Judge run folders as `verify --official` does, and what they lack to be submitted."""
    checked = FoldersChecked(folders[0])
    for folder in (found for named in folders for found in run_folders(named)):
        verdict = judge_folder(folder, official=True, model_path=model_path, dataset_path=dataset_path)
        checked.verdicts[str(folder)] = verdict.outcome
        checked.findings += verdict.findings
        checked.not_judged += (replace(one, results=(str(folder),)) for one in verdict.not_judged)
        checked.error = checked.error or verdict.error
        checked.runs += [] if verdict.run is None else [verdict.run]
    checked.findings += _lacking(folders[0], checked.runs, round_rules()["points"]) if checked.runs else ()
    return checked


@decides(
    "submit",
    ("endpoints-file", "warning", "[endpoints] §8.1", "a point's file is there", "write it by §8 of the rules"),
    ("endpoints-tree", "note", "[endpoints] §8.1", "what a submission has besides its points", "write it"),
    ("endpoints-points", "warning", "[endpoints] §5.3", "a curve has enough points, not too many", "run more points"),
    ("endpoints-regions", "warning", "[endpoints] §5.4", "a curve has a point in each region", "run a point there"),
    ("endpoints-offline", "warning", "[endpoints] §5.7", "a curve has one Offline point",
     "run one with max_throughput, or elect the point of the highest concurrency"),
    ("endpoints-one-system", "error", "[endpoints] §5.1", "a curve has one model, sampling, dataset and seeds",
     "give the run folders of one curve"),
)  # fmt: skip
def _lacking(root: Path, runs: Sequence[EndpointsRun], limits: dict[str, int]) -> Iterator[Finding]:
    """What each point lacks, and all of them together."""
    for run in runs:
        lacks = [name for name, file in POINT_FILES.items() if not run.has(file) and name != "accuracy_results.json"]
        if lacks:
            found = f"no {shortened_list(lacks, len(lacks))}"
            yield compared("endpoints-file", "", False, found, "all of them", run.root)
    patterns = [run.config.settings.load_pattern for run in runs if run.config is not None]
    levels = sorted(
        {one.target_concurrency for one in patterns if one.type == "concurrency" and one.target_concurrency}
    )
    offline = sum(one.type == "max_throughput" for one in patterns)
    least = limits["least_with_offline"] if offline else limits["least"]
    right = least <= len(levels) + offline <= limits["most"]
    found = f"{len(levels)} concurrencies and {counted(offline, 'Offline point')}"
    yield compared("endpoints-points", "", right, found, f"{least} to {limits['most']} points", root)
    yield compared("endpoints-offline", "", offline <= 1, f"{offline}", "at most 1, or an elected point", root)
    yield from one_system(root, runs)
    for name, (low, high) in regions(levels, limits["ultra_low"]).items():
        there = [level for level in levels if low <= level <= high]
        text = f"points of {name}, concurrency {low} to {high}"
        yield compared("endpoints-regions", text, bool(there), f"{len(there)}", "at least 1", root)
    yield compared("endpoints-tree", "", False, "not in run folders", ", ".join(TREE_FILES), root)


def one_system(root: Path, runs: Sequence[EndpointsRun]) -> Iterator[Finding]:
    """What the configurations of several folders differ in; streaming, load and server addresses may."""
    asked = []
    for run in runs:
        model, settings = run.raw_config.get("model_params"), run.config.settings if run.config else None
        seeds = settings and (settings.runtime.scheduler_random_seed, settings.runtime.dataloader_random_seed)
        facts = model if isinstance(model, dict) else {}
        facts = facts | {"datasets": run.datasets(measured=True), "seeds": seeds}
        asked.append({name: value for name, value in facts.items() if name != "streaming"})
    differ = sorted({name for one in asked for name in differences(asked[0], one)})
    found = ", ".join(differ) or "nothing"
    yield compared("endpoints-one-system", "what the configurations differ in", not differ, found, "nothing", root)


def regions(levels: Sequence[int], ultra_low: int) -> dict[str, tuple[int, int]]:
    """Bounds of the regions between the lowest and the highest concurrency of a curve. [endpoints] §5.5"""
    if not levels or levels[-1] <= ultra_low:
        return {"ultra low": (1, ultra_low)}
    lowest, highest = min(levels[0], ultra_low), levels[-1]
    step = math.log2(highest - lowest) / 3
    ends = [lowest, round(lowest + 2**step), round(lowest + 2 ** (2 * step)), highest]
    named = zip(("low", "medium", "high"), pairwise(ends), strict=True)
    return {"ultra low": (1, ultra_low)} | {name: (low + 1, high) for name, (low, high) in named}


def find_checker(named: Path | None, root: Path) -> str | None:
    """The program that was named, or for a submission the one that is installed.

    Raises:
        InputError: the named one is no program.
    """
    if named is None:
        return shutil.which(PROGRAM) if any(True for _ in points(root)) else None
    found = shutil.which(str(named.resolve()))
    if found is None:
        raise InputError(f"--official {named} is no program", f"name {PROGRAM} of the environment that has it")
    return found


def run_checker(program: str, root: Path) -> dict[str, Any]:
    """Run it in a working directory of its own; the tree is not written to. Its outcome is ok or errors.

    Raises:
        ExecutionError: it does not start, does not end, or has no output that can be read.
    """
    command = [program, "check-submission", "--json", "--no-annotate", str(root.resolve())]
    with temporary_folder("endpoints-check-") as folder:
        try:
            done = run_program(command, cwd=folder, timeout_s=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExecutionError(f"{program} could not be run: {error}", "run it by hand to see why") from error
    try:
        results = orjson.loads(done.stdout[done.stdout.index(b"{") :])["results"]
        fields = {"severity": "severity", "rule": "rule", "text": "message"}
        messages = [{name: str(one[key]) for name, key in fields.items()} for one in results if not one["passed"]]
    except (ValueError, KeyError, TypeError) as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ExecutionError(
            f"{program} printed nothing that can be read (exit code {done.returncode}): {last[:300]}",
            "use version 1.5 of the package, which has --json",
        ) from error
    outcome = "ok" if done.returncode == 0 else "errors"
    messages = messages[:MAX_MESSAGES]
    return {"program": program, "outcome": outcome, "exit_code": done.returncode, "messages": messages}
