"""The submission to MLPerf Endpoints, with a directory for each run directory of its client.

config.yaml, result_summary.json and accuracy_results.json are copies of the client's files. point.yaml is computed from
the run directories (rules §8.3). A point.yaml there provides the fields that only the submitter knows.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from compliance.judge.record import record
from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Verdict, compared
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.point_rules import ACCURACY, model_rules, published_names, seeds_of
from compliance.mlperf_endpoints.submission import POINT_FILES, CurveVerdict, check_folders
from compliance.mlperf_endpoints.summary_comparison import reported_differences
from compliance.mlperf_endpoints.tree import POINT, SYSTEM, declared_point, judge_tree
from compliance.submission.build import refuse_used_directory
from compliance.submission.candidate import SubmitRequest
from compliance.submission.text import refusal_lines
from compliance.trees.tree import REHEARSAL_MARK
from runs.errors import InputError
from runs.files.reading import read_record
from runs.files.writing import write_atomic
from runs.files.yaml_file import read_yaml
from runs.harness import PROGRAM
from runs.mlperf_endpoints.find_folders import point_folders
from runs.mlperf_endpoints.folder import EndpointsRun
from runs.what_is import REHEARSAL_FILE
from runs.wording import counted

_POINTS_ONLY = "give only the run directories of points: load_pattern concurrency or max_throughput"
_FIX = "restore the file in the run directory as the client wrote it"


# Rules that the check of the built tree repeats with more detail.
_REPEATED = ("endpoints-file", "endpoints-points", "endpoints-tree")


@dataclass
class PointsDetails:
    """What `submit` states of run directories of the client besides the findings, which are its refusals."""

    request: SubmitRequest
    checked: CurveVerdict
    files: list[Path]  # written files

    def as_json(self, verdict: "PointsVerdict", _: dict[str, Any]) -> dict[str, Any]:
        state = "REFUSED" if verdict.findings else "BUILT"
        return record(self.checked) | {"verdict": state, "files": [str(path) for path in self.files]}

    def lines(self, verdict: "PointsVerdict") -> Iterator[str]:
        """Yield the text of the verdict."""
        if verdict.findings:
            yield from refusal_lines(sorted(verdict.findings, key=lambda finding: finding.sentence), with_place=True)
            return
        output, is_rehearsal = self.request.output, self.request.rehearsal
        yield f"built {output}: {counted(len(self.files), 'file')}"
        if is_rehearsal:
            yield "REHEARSAL tree, not for upload"
        on_runs = [*(waivers(self.checked) if is_rehearsal else ()), *self.checked.of("warning")]
        entries = judge_tree(sorted(point_folders(output)), self.checked.details.tables)
        on_tree = [entry for entry in entries if isinstance(entry, Finding) and entry.violated]
        for finding in (*(finding for finding in on_runs if finding.rule not in _REPEATED), *on_tree):
            yield f"  {finding.line_with_place}"
        fix = "add the missing files and fields to the run directories or to the tree, then " if on_tree else ""
        yield f"next: {fix}{PROGRAM} check {quote(str(output))}"


PointsVerdict = Verdict[PointsDetails]


def submit_points(request: SubmitRequest, _: Callable[[str], None]) -> PointsVerdict:
    """Check run directories of the client, and build a tree of their points, or refuse them.

    Raises:
        HarnessError: If a run directory cannot be read, or the tree cannot be built.
    """
    scores = request.sources
    checked = check_folders(
        request.results, scores.dataset_path, model_path=scores.model_path, seed_file=request.seed_sets
    )
    if checked.error is not None:
        raise checked.error
    is_rehearsal = request.rehearsal
    files, refused = [], refusals(checked, rehearsal=is_rehearsal)
    if not refused:
        files = build_points(checked, request.output, request.system_name, rehearsal=is_rehearsal)
    return Verdict(refused, details=PointsDetails(request, checked, files))


def refusals(checked: CurveVerdict, *, rehearsal: bool) -> list[Finding]:
    """Return the findings that prevent building a tree; in a rehearsal, without most rules of the round.

    `verify` only warns of samples that never completed, if the run was interrupted.
    """
    waived = waivers(checked) if rehearsal else []
    interrupted = [finding for finding in checked.of("warning") if finding.numbers.get("left")]
    return [finding for finding in checked.of("error") if finding not in waived] + interrupted


def waivers(checked: CurveVerdict) -> list[Finding]:
    """Return the violated rules of the round that do not prevent a rehearsal: all except failed samples."""
    return [
        finding
        for finding in checked.of("error")
        if finding.kind == "official" and finding.rule != "endpoints-rule-failures"
    ]


def build_points(checked: CurveVerdict, output: Path, system_name: str, *, rehearsal: bool) -> list[Path]:
    """Write a submission directory for each run directory, and return the written files.

    Raises:
        InputError: If two folders are the same point, or a file of a folder is wrong.
        SetupError: If the output exists.
    """
    refuse_used_directory(output)
    cases = [
        EndpointsEvidence(run, tables=checked.details.tables) for run in checked.details.runs if not run.only_audit
    ]
    points = [point_of(case) for case in cases]
    highest = max((point["concurrency"] for point in points if "offline" not in point), default=None)
    files: dict[Path, bytes | str] = {}
    for case, point in zip(cases, points, strict=True):
        if highest is not None:
            point.setdefault("max_supported_concurrency", highest)
        folder = output / "results" / system_name / point["model_name"] / f"r{point['concurrency']}"
        if folder / POINT in files:
            raise InputError(f"{case.run.root}: {folder} already has this point", "keep one directory per point")
        files |= {folder / name: content for name, content in _copies(case.run).items()}
        files[folder / POINT] = yaml.safe_dump(point, sort_keys=False)
    if rehearsal:
        files[output / REHEARSAL_FILE] = REHEARSAL_MARK + "\n"
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return list(files)


def _copies(run: EndpointsRun) -> dict[str, bytes]:
    return {name: read_record(run.path(file), _FIX) for name, file in POINT_FILES.items() if run.has(file)}


@decides(
    "tree",
    ("endpoints-runs", "error", OURS, "files and fields that differ from the run",
     "build the tree again with `submit`"),
)  # fmt: skip
def compare_points_with_runs(checked: CurveVerdict, runs: CurveVerdict) -> Iterator[Finding]:
    """Compare each point of a tree with the run directory that it was built from, which `submit` must accept.

    Raises:
        InputError: If the tree has no point, or there is no run.
    """
    if not checked.details.point_folders or not runs.details.runs:
        raise InputError(
            f"--runs: nothing to compare with {checked.details.root}", "give a submission and its run directories"
        )
    yield from refusals(runs, rehearsal=False)
    cases = [EndpointsEvidence(run, tables=runs.details.tables) for run in runs.details.runs if not run.only_audit]
    points = [(point_of(case), _copies(case.run)) for case in cases]
    missing = [f"no run with this concurrency among {counted(len(runs.details.runs), 'run')}"]
    for place in map(Path, checked.details.point_folders):
        of_place = [(point, files) for point, files in points if f"r{point['concurrency']}" == place.name]
        differ = min(([*_differing(place, files, point)] for point, files in of_place), key=len, default=missing)
        yield compared("endpoints-runs", not differ, ", ".join(differ) or "none", "none", place)


def _differing(place: Path, files: dict[str, bytes], point: dict[str, Any]) -> Iterator[str]:
    for name in POINT_FILES:
        path = place / name
        if name not in (POINT, SYSTEM) and (read_record(path, _FIX) if path.is_file() else None) != files.get(name):
            yield name
    yield from (f"{POINT}: {name}" for name, _, _ in reported_differences(declared_point(place), point))


def _merged(fields: dict[str, Any], point: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the fields of both.

    Raises:
        InputError: If the given fields contradict the run.
    """
    merged = point | {name: value for name, value in fields.items() if name not in point}
    for name in fields.keys() & point.keys():
        measured, stated = point[name], fields[name]
        if isinstance(measured, dict) and isinstance(stated, dict):
            merged[name] = _merged(stated, measured, f"{place}: {name}")
        elif measured != stated:
            raise InputError(f"{place}: {name} is {stated!r}, the run has {measured!r}", f"remove {name} from {POINT}")
    return merged


def point_of(case: EndpointsEvidence) -> dict[str, Any]:
    """Return the fields of point.yaml: those that the run determines, and those of a point.yaml in the folder.

    Raises:
        InputError: If the folder has no measured phase, its load is not a point of a curve, or its point.yaml
            contradicts the run.
    """
    load = case.load
    if load is None:
        raise InputError(f"{case.run.root}: no measured phase found", _POINTS_ONLY)
    config, settings, events = load.config, load.config.settings, load.events
    pattern, salt = settings.load_pattern, settings.warmup.salt
    least_ms = case.run.time_settings.min_duration_ms
    offline = pattern.type == "max_throughput"
    concurrency = (load.size[0] or len(load.rows)) if offline else pattern.target_concurrency
    if not concurrency:
        raise InputError(f"{case.run.root}: {pattern.text} is not a point of a curve", _POINTS_ONLY)
    dataset = next((str(entry.get("name")) for entry in case.run.datasets(measured=True)), "")
    client_settings = case.run.raw_config.get("settings")
    client = client_settings.get("client") if isinstance(client_settings, dict) else None
    before = events.issued_ns < load.start_ns  # these requests are the warm-up
    first_ns, warmed = int(events.issued_ns[before].min(initial=load.start_ns)), int(before.sum())
    seeds = published_names(seeds_of(config))
    published = case.tables.set_with(seeds)
    point = {
        "concurrency": concurrency,
        "model_name": model_rules(case)[0] or re.sub(r"[^\w-]+", "_", Path(config.model_params.name).name)[:64],
        "dataset": dataset,
        "dataset_name": dataset,
        "dataset_type": "Accuracy + Performance" if case.run.has(ACCURACY) else "Performance",
        "runtime_settings": {
            "load_pattern": pattern.type,
            **({} if least_ms is None else {"min_duration_ms": int(least_ms)}),
            "stream_all_chunks": bool(isinstance(client, dict) and client.get("stream_all_chunks")),
            "runtime": seeds,
            "warmup": {"salt": salt},
        },
        "warmup": {
            "duration_s": (load.start_ns - first_ns) / 1e9,
            "requests_issued": warmed,
            "requests_completed": int((before & events.completed & ~events.failed).sum()),
            "data_source": "the performance dataset" + (", salted" if salt else ""),
            "concurrency": (pattern.target_concurrency or warmed) if warmed else 0,
        },
        **({"offline": "dedicated"} if offline else {}),
        **({} if published is None else {"seed_set": published.name}),
    }
    path = case.run.path(POINT)
    # JSON makes plain strings of the keys, which carry their line numbers.
    client_settings = json.loads(json.dumps(read_yaml(path, ""), default=str)) if case.run.has(POINT) else {}
    return _merged(client_settings, point, str(path))
