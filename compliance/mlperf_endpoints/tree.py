"""Completeness of a submission tree: its files, the fields of point.yaml, and the points of each curve.

The official checker refuses a tree that violates one of these rules. It also checks the content of the files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.mlperf_endpoints.curve_rules import CurveFacts, PointFacts, judge_curve
from compliance.mlperf_endpoints.round_tables import RoundTables, round_tables
from runs.files.reading import read_object
from runs.files.yaml_file import read_yaml
from runs.mlperf_endpoints.accuracy import read_accuracy
from runs.mlperf_endpoints.folder import EndpointsPoint
from runs.what_is import REHEARSAL_FILE

POINT, SYSTEM, POWER = "point.yaml", "system_desc.json", "system_power.json"
SUMMARY, ACCURACY = "result_summary.json", "accuracy_results.json"
# Required fields of point.yaml, [endpoints] §8.3. The client's seed of the model is required by §4.6.
FIELDS = (
    "division", "max_supported_concurrency", "model_name", "model_precision", "link_to_model", "dataset_name",
    "dataset_type", "dataset_link", "shared_src", "shared_docs", "seed_set", "target_cohort",
)  # fmt: skip
MODEL_SEED = ("runtime_settings", "runtime", "model_seed")
WITHOUT_POWER = ("rdi", "serviced")  # divisions that do not require system_power.json, [endpoints] §4.5
_ADD = "add the files that §8.1 of the rules describes; copy the client's files from the run directory"


@decides(
    "tree",
    ("endpoints-tree-rehearsal", "error", OURS, "rehearsal marks", "build the tree with `submit` without --rehearsal"),
    ("endpoints-tree-files", "error", "[endpoints] §8.1", "missing files of the submission", _ADD),
    ("endpoints-tree-fields", "error", "[endpoints] §8.3", "missing fields of point.yaml", "add the fields"),
    ("endpoints-tree-model", "error", "[endpoints] §3.2", "model_name in point.yaml", "run a model of the round"),
    ("endpoints-tree-capacity", "error", "[endpoints] §5.4", "max_supported_concurrency",
     "run a point with a concurrency above the limit, and declare the highest concurrency"),
    ("endpoints-tree-points", "error", "[endpoints] §5.3", "points of the curve", "run more points, or submit fewer"),
)  # fmt: skip
def judge_tree(places: Sequence[Path], tables: RoundTables | None = None) -> Iterator[Finding | NotApplied]:
    """Check whether the submissions that contain these points are complete, and whether their curves meet the rules.

    Args:
        tables: Default: the tables of the newest round.
    """
    curves: dict[Path, dict[Path, dict[str, Any]]] = defaultdict(dict)
    roots: dict[Path, dict[Path, dict[str, Any]]] = defaultdict(dict)
    for place in places:
        curves[place.parent][place] = roots[place.parents[3]][place] = declared_point(place)
    for root, points_of_root in sorted(roots.items()):
        has_mark = (root / REHEARSAL_FILE).exists()
        yield compared("endpoints-tree-rehearsal", not has_mark, REHEARSAL_FILE if has_mark else "none", "none", root)
        missing = ", ".join(_missing_files(root, points_of_root))
        yield compared("endpoints-tree-files", not missing, missing or "none", "none", root)
    tables = tables or round_tables()
    for curve, declared in curves.items():
        for place, fields in declared.items():
            lacking, path = missing_fields(fields), place / POINT
            yield compared("endpoints-tree-fields", not lacking, ", ".join(lacking) or "none", "none", path)
        models = sorted({str(fields.get("model_name")) for fields in declared.values()})
        right, allowed = set(models) <= set(tables.models), " or ".join(tables.models)
        yield compared("endpoints-tree-model", right, ", ".join(models), allowed, curve)
        limit = tables.points["ultra_low"]
        facts = CurveFacts(curve, [_point(place, fields) for place, fields in declared.items()], tables)
        maxima = {f"{maximum}" for maximum in facts.declared_maxima}
        wrong = [maximum for maximum in facts.declared_maxima if type(maximum) is not int or maximum <= limit]
        right, value = not wrong and len(maxima) < 2, ", ".join(sorted(map(str, wrong or maxima))) or "none"
        yield compared("endpoints-tree-capacity", right, value, f"one value above {limit}", curve)
        # An elected Offline point is a point of the curve, so it needs no run of its own.
        dedicated = any(fields.get("offline") == "dedicated" for fields in declared.values())
        least, most = tables.point_limits(is_dedicated=dedicated)
        right = least <= len(declared) <= most
        yield compared("endpoints-tree-points", right, f"{len(declared)}", f"{least} to {most}", curve)
        yield from judge_curve(facts)


def missing_fields(point: dict[str, Any]) -> list[str]:
    """Return the required fields that a point.yaml lacks."""
    seed: Any = point
    for name in MODEL_SEED:
        seed = seed.get(name) if isinstance(seed, dict) else None
    lacking = [name for name in FIELDS if point.get(name) in (None, "")]
    return lacking + ([".".join(MODEL_SEED)] if seed is None else [])


def declared_point(place: Path) -> dict[str, Any]:
    """Return the content of point.yaml; empty without the file."""
    return read_yaml(place / POINT, "") if (place / POINT).is_file() else {}


def _point(place: Path, fields: dict[str, Any]) -> PointFacts:
    """Read the other files of a point."""
    summary = EndpointsPoint(place).summary
    span_s = (summary.duration_ns or 0) / 1e9 if summary is not None else 0.0
    tokens = summary.output_sequence_lengths.total if summary is not None else None
    rate = float(tokens) / span_s if tokens is not None and span_s else None
    return PointFacts(place, fields, _system(place), read_accuracy(place / ACCURACY, place), rate)


def _system(place: Path) -> dict[str, Any]:
    return read_object(place / SYSTEM, "correct the file", within=place) if (place / SYSTEM).is_file() else {}


def _missing_files(root: Path, declared: Mapping[Path, dict[str, Any]]) -> Iterator[str]:
    """Yield missing files of a submission, relative to its root. `declared` has point.yaml by directory of a point."""
    if not (root / "docs").is_dir():
        yield "docs/"
    codes = sorted(path for path in root.glob("src/*") if path.is_dir())
    readmes = {path.parent for path in root.glob("src/*/*") if path.name.lower() == "readme.md"}
    yield from (f"{path.relative_to(root)}/README.md" for path in codes if path not in readmes)
    if not codes:
        yield "src/<implementation>/README.md"
    for system in sorted({place.parents[1] for place in declared}):
        points = (point for place, point in declared.items() if place.parents[1] == system)
        divisions = {str(point.get("division")).lower() for point in points}
        if not (system / POWER).is_file() and not divisions <= set(WITHOUT_POWER):
            yield f"{(system / POWER).relative_to(root)}"
    for place in declared:
        required = (place / name for name in ("config.yaml", SUMMARY, POINT, SYSTEM))
        yield from (f"{path.relative_to(root)}" for path in required if not path.is_file())
    if not any((place / ACCURACY).is_file() for place in declared):
        yield f"{ACCURACY} (at least one)"
