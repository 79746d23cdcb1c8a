"""The submission tree of a curve: the files of each point, the tree, and its checks."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from compliance.judge.text import text
from compliance.judge.verdict import Finding
from compliance.mlperf_endpoints.curve_rules import DEDICATED, REGIONS
from compliance.mlperf_endpoints.submission import (
    CURVE,
    PROGRAM,
    CurveVerdict,
    add_official_checker,
    check_folders,
    find_checker,
)
from compliance.mlperf_endpoints.tree import POINT, POWER, SYSTEM
from compliance.submission.build_points import build_points, compare_points_with_runs, refusals
from runs.errors import ExitCode
from runs.files.writing import write_atomic, write_json
from runs.wording import counted
from scenarios.curve.curve_config import DISCLOSURES, CurveConfig
from scenarios.curve.curve_dir import CurveDir
from scenarios.curve.curve_plan import CurvePlan, PlannedPoint
from scenarios.discarded import set_aside

# Names of the regions in point.yaml. [endpoints-submission-cli, models/regions.py]
_DECLARED = dict(zip(REGIONS, ("low_latency", "low_concurrency", "med_concurrency", "high_concurrency"), strict=True))
# Rules that a rehearsal violates by design: it is marked, short, and may have another model and another accuracy.
REHEARSAL_RULES = frozenset({"endpoints-tree-rehearsal", "endpoints-tree-model", "endpoints-tree-cohort"})
OFFICIAL_REHEARSAL_RULES = frozenset(
    {"model-name-valid", "accuracy-gate", "accuracy-sample-count", "seed-set-adoption"}
)


def build_tree(
    curve: CurveConfig,
    place: CurveDir,
    plan: CurvePlan,
    records: Mapping[str, Mapping[str, Any]],
    tell: Callable[[str], None],
) -> ExitCode:
    """Write the files of each point, build the tree, and check it; return 0 if everything accepts the tree.

    Args:
        records: Records of the finished points by name.
    """
    highest = max((record["tokens_per_second"] or 0.0 for record in records.values()), default=0.0)
    for point in plan.points:
        record, folder = records[point.name], place.point(point.name)
        write_atomic(folder / POINT, point_file(curve, plan, point, record))
        write_json(folder / SYSTEM, described_system(curve, plan, record, highest))
    if place.tree.exists():
        set_aside([place.tree], place.discarded)
    seed_file = curve.options.seed_sets and curve.file.parent / curve.options.seed_sets
    checked = check_folders([place.points], model_path=curve.tokenizer, seed_file=seed_file)
    if refused := refusals(checked, rehearsal=curve.is_rehearsal):
        for finding in refused:
            tell(f"  {finding.line_with_place}")
        tell(f"no tree: {counted(len(refused), 'finding')} on the points")
        return ExitCode.NEGATIVE
    system_name = re.sub(r"[^\w.-]+", "_", str(curve.system.get("system_name", "system")))
    build_points(checked, place.tree, system_name, rehearsal=curve.is_rehearsal)
    for source, target in _shared(curve, place.tree / "results" / system_name):
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, place.tree / target)
    tell(f"built {place.tree}")
    return _checked(curve, place.tree, checked, seed_file, tell)


def _shared(curve: CurveConfig, system: Path) -> Iterator[tuple[Path, str | Path]]:
    """Yield the user's files of the whole submission, and their place in the tree."""
    base = curve.file.parent
    yield base / curve.options.shared_src, shared_src(curve)
    yield base / curve.options.shared_docs, "docs"
    if curve.options.power is not None:
        yield base / curve.options.power, system / POWER


def shared_src(curve: CurveConfig) -> str:
    """Return the place of the implementation in the tree."""
    return f"src/{curve.options.shared_src.resolve().name}"


def point_file(curve: CurveConfig, plan: CurvePlan, point: PlannedPoint, record: Mapping[str, Any]) -> str:
    """Return the point.yaml of a point, with the source of its values. `submit` adds the fields of the run."""
    options = curve.options
    parts: list[tuple[str, dict[str, Any]]] = [
        (str(curve.file), {name: options.disclosures[name] for name in DISCLOSURES}
         | {name: value for name, value in options.disclosures.items() if name not in DISCLOSURES}
         | {"division": options.division, "target_cohort": options.target_cohort, "shared_src": shared_src(curve),
            "shared_docs": "docs", "seed_set": curve.seed_set.name}),
        (f"seed set {curve.seed_set.name}", {"runtime_settings": {"runtime": dict(curve.seed_set.seeds)}}),
        ("plan.json", {"max_supported_concurrency": plan.c_max}
         | ({} if point.offline == DEDICATED else {"region": declared_region(plan, point)})
         | ({"offline": point.offline} if point.offline else {})),
    ]  # fmt: skip
    if record.get("steady_state") is not None:
        parts.append(("recomputed from events.jsonl", {"steady_state": record["steady_state"]}))
    return "".join(f"# source: {source}\n{yaml.safe_dump(fields, sort_keys=False)}" for source, fields in parts)


def declared_region(plan: CurvePlan, point: PlannedPoint) -> str:
    """Return the region of a point by the name that point.yaml has."""
    return _DECLARED.get(plan.region_of(point.concurrency), "margin")


def described_system(curve: CurveConfig, plan: CurvePlan, record: Mapping[str, Any], highest: float) -> dict[str, Any]:
    """Return the system_desc.json of a point.

    Args:
        highest: The highest tokens/s of the curve.
    """
    tokens_per_second = record["tokens_per_second"]
    measured = {"max_supported_concurrency": plan.c_max, "division": curve.options.division}
    if tokens_per_second and highest:
        measured["tps_utilization"] = round(tokens_per_second / highest, 4)
    if plan.c_min_override is not None:
        measured["c_min_override"] = plan.c_min_override
    return json.loads(json.dumps(curve.system)) | measured  # type: ignore[no-any-return]


def _checked(
    curve: CurveConfig, tree: Path, runs: CurveVerdict, seed_file: Path | None, tell: Callable[[str], None]
) -> ExitCode:
    """Check the tree as `check --runs` does, with the official program if it is installed."""
    verdict = check_folders([tree], seed_file=seed_file)
    against = [
        finding
        for finding in compare_points_with_runs(verdict, runs)
        if not (curve.is_rehearsal and finding.kind == "official")
    ]
    verdict.findings += against
    add_official_checker(verdict, find_checker(None, tree), seed_file)
    for line in text(verdict, CURVE).splitlines():
        tell(line)
    if not curve.is_rehearsal:
        return ExitCode(verdict.exit_code())
    unexpected = [*_unexpected(verdict.of("error")), *_refused_by_official(verdict)]
    expected = "only rules that every rehearsal violates" if not unexpected else ", ".join(unexpected)
    tell(f"REHEARSAL tree, not for upload; findings: {expected}")
    return ExitCode.NEGATIVE if unexpected else ExitCode.OK


def _unexpected(findings: list[Finding]) -> Iterator[str]:
    yield from dict.fromkeys(finding.rule for finding in findings if finding.rule not in REHEARSAL_RULES)


def _refused_by_official(verdict: CurveVerdict) -> Iterator[str]:
    messages = (verdict.details.official or {}).get("messages", ())
    rules = [message["rule"] for message in messages if message["severity"] == "error"]
    yield from dict.fromkeys(f"{PROGRAM} {rule}" for rule in rules if rule not in OFFICIAL_REHEARSAL_RULES)
