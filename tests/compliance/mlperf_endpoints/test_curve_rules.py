"""Rules on the curve of a submission tree: each change of a right tree is found by its rule alone."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.judge.text import text
from compliance.judge.verdict import not_applied
from compliance.mlperf_endpoints.curve_rules import assigned_regions, region_bounds
from compliance.mlperf_endpoints.round_tables import round_tables
from compliance.mlperf_endpoints.submission import CURVE, add_official_checker, check_folders
from runs.mlperf_endpoints.accuracy import read_accuracy
from tests.support.mlperf_endpoints.folder_changes import set_at_path

SEEDS = round_tables().seed_sets[0].seeds
LEVELS = (1, 4, 16, 24, 64, 128, 256)
SCORED = (1, 4, 16, 256)
POINT, SYSTEM, SUMMARY, ACCURACY = "point.yaml", "system_desc.json", "result_summary.json", "accuracy_results.json"
Change = Callable[[Path], object]  # of the directory of the curve
SCORES = {"accuracy_scores": [{"dataset_name": "cnn", "dataset_type": "accuracy", "score": {"rouge1": "38.8"}}]}


def rate_of(level: int) -> float:
    return 1_000.0 * level**0.5


def write_point(place: Path, level: int, c_max: int, *, offline: str = "", scored: bool = False) -> None:
    """A point with the files that the rules on the curve read."""
    place.mkdir(parents=True)
    point: dict[str, Any] = {
        "division": "RDI", "max_supported_concurrency": c_max, "model_name": "llama3_1-8b", "model_precision": "bf16",
        "link_to_model": "URL", "dataset_name": "cnn", "dataset": "cnn", "dataset_type": "Performance",
        "dataset_link": "URL", "shared_src": "src/vllm", "shared_docs": "docs", "seed_set": "A",
        "target_cohort": "2026-12-C0", "concurrency": level,
        "runtime_settings": {"load_pattern": "concurrency", "runtime": dict(SEEDS)},
    }  # fmt: skip
    if offline:
        point["offline"] = offline
    (place / POINT).write_text(yaml.safe_dump(point))
    series = {"total": 100 * level, "percentiles": {}, "histogram": {"buckets": [], "counts": []}}
    summary = {
        "version": "0.1.0", "n_samples_issued": 100, "n_samples_completed": 100, "n_samples_failed": 0,
        "duration_ns": int(100 * level / rate_of(level) * 1e9), "state": "complete", "complete": True,
        **dict.fromkeys(("ttft", "tpot", "latency", "output_sequence_lengths"), series),
    }  # fmt: skip
    (place / SUMMARY).write_text(json.dumps(summary))
    (place / "config.yaml").write_text("{}")
    description = {"max_supported_concurrency": c_max, "tps_utilization": rate_of(level) / rate_of(c_max)}
    (place / SYSTEM).write_text(json.dumps(description))
    if scored:
        (place / ACCURACY).write_text(json.dumps(SCORES))


def write_tree(root: Path, levels: Sequence[int] = LEVELS, scored: Sequence[int] = SCORED) -> Path:
    """A tree whose highest point is elected as the Offline point; returns the directory of its curve."""
    curve = root / "results" / "BOX" / "llama3_1-8b"
    for level in levels:
        offline = "elected" if level == max(levels) else ""
        write_point(curve / f"r{level}", level, max(levels), offline=offline, scored=level in scored)
    (root / "docs").mkdir()
    (root / "src" / "vllm").mkdir(parents=True)
    (root / "src" / "vllm" / "README.md").write_text("build")
    return curve


def in_points(path: str, value: Any, *levels: int) -> Change:
    """Change a field of point.yaml, of all points or of some."""

    def edit(curve: Path) -> None:
        for place in [curve / f"r{level}" for level in levels] or sorted(curve.iterdir()):
            content = yaml.safe_load((place / POINT).read_text())
            set_at_path(path, value)(content)
            (place / POINT).write_text(yaml.safe_dump(content))

    return edit


def in_systems(name: str, value: Any, *levels: int) -> Change:
    def edit(curve: Path) -> None:
        for place in [curve / f"r{level}" for level in levels] or sorted(curve.iterdir()):
            content = json.loads((place / SYSTEM).read_text()) | {name: value}
            (place / SYSTEM).write_text(json.dumps(content))

    return edit


def score(*levels: int, content: Any = SCORES) -> Change:
    return lambda curve: [(curve / f"r{level}" / ACCURACY).write_text(json.dumps(content)) for level in levels]


def no_score(*levels: int) -> Change:
    return lambda curve: [(curve / f"r{level}" / ACCURACY).unlink() for level in levels]


def dedicated(level: int, *, rate: float = 1.0, scored: bool = True) -> Change:
    """An Offline run of its own instead of the elected point."""

    def edit(curve: Path) -> None:
        in_points("offline", "none", 256)(curve)
        write_point(place := curve / f"r{level}", level, 256, offline="dedicated", scored=scored)
        content = json.loads((place / SUMMARY).read_text())
        content["duration_ns"] = int(100 * level / (rate_of(256) * rate) * 1e9)
        (place / SUMMARY).write_text(json.dumps(content))
        in_systems("tps_utilization", rate, level)(curve)

    return edit


def combined(*changes: Change) -> Change:
    return lambda curve: [change(curve) for change in changes]


NEW = {name: seed + 1 for name, seed in SEEDS.items()}
DRAFTER = {"weight_checksum": "git-sha1:633caf45f31288cbb70ee237f7c939db707ecc94"}
# Changes of a right tree, and the rules that they violate.
CHANGES: dict[str, tuple[Change, set[str]]] = {
    "nothing": (combined(), set()),
    "no Offline point": (in_points("offline", "none", 256), {"offline"}),
    "no Offline declaration": (in_points("offline", None, 256), {"offline"}),
    "elected below the maximum": (
        combined(in_points("offline", "none", 256), in_points("offline", "elected", 64)),
        {"offline", "accuracy"},
    ),
    "elected at the highest point, below the declared maximum": (
        combined(in_points("max_supported_concurrency", 300), in_systems("max_supported_concurrency", 300)),
        {"offline"},
    ),
    "two elected points": (in_points("offline", "elected", 128), {"offline", "accuracy"}),
    "another word": (in_points("offline", "maybe", 256), {"offline"}),
    "an Offline run of its own": (dedicated(13_368), set()),
    "an Offline run without accuracy": (dedicated(13_368, scored=False), {"accuracy"}),
    "an Offline run and an elected point": (
        combined(dedicated(13_368), in_points("offline", "elected", 256)),
        {"offline"},
    ),
    "a later cohort": (in_points("target_cohort", "2026-12-C1"), {"cohort"}),
    "an earlier cohort": (in_points("target_cohort", "2026-10-C0"), {"cohort"}),
    "a later cohort of one point": (in_points("target_cohort", "2027-01-C0", 64), {"cohort"}),
    "no cohort": (in_points("target_cohort", "December", 64), {"cohort"}),
    "the first cohort": (in_points("target_cohort", "2026-10-C1"), set()),
    "set B with the seeds of A": (in_points("seed_set", "B"), {"seeds"}),
    "set B with its own seeds": (
        combined(in_points("seed_set", "B"), in_points("runtime_settings/runtime", NEW)),
        set(),
    ),
    "set A with other seeds": (in_points("runtime_settings/runtime", NEW), {"seeds"}),
    "set A with one other seed": (in_points("runtime_settings/runtime/model_seed", 42, 64), {"seeds"}),
    "two sets": (in_points("seed_set", "B", 64), {"seeds"}),
    "one accuracy result": (no_score(4, 16, 256), {"accuracy"}),
    "no accuracy in medium": (no_score(16), {"accuracy"}),
    "no accuracy at the Offline point": (no_score(256), {"accuracy"}),
    "accuracy at a point of choice": (score(64, 128), {"accuracy"}),
    "accuracy at another point of the region": (combined(no_score(16), score(24)), set()),
    "the Offline result is not the only one of high": (score(64), set()),
    "a second result in medium": (score(24), {"accuracy"}),
    "an accuracy result without a score": (
        score(4, content={"accuracy_scores": [{"dataset_name": "a", "score": None}]}),
        {"accuracy"},
    ),
    "an incomplete accuracy result": (
        score(4, content={"accuracy_scores": [{"dataset_name": "a", "score": 1.0, "complete": False}]}),
        {"accuracy"},
    ),
    "accuracy results of another form": (score(4, content={"results": 1}), {"accuracy"}),
    "only the score of the measured phase": (
        score(
            4, content={"accuracy_scores": [{"dataset_name": "performance", "dataset_type": "performance", "score": 1}]}
        ),
        {"accuracy"},
    ),
    "no point in low": (in_points("concurrency", 50, 4), {"regions", "accuracy"}),
    "a wrong utilization": (in_systems("tps_utilization", 0.9, 4), {"utilization"}),
    "a rounded utilization": (in_systems("tps_utilization", 0.2, 4), set()),
    "no utilization": (in_systems("tps_utilization", None), set()),
    "one lowest concurrency": (in_systems("c_min_override", 1), set()),
    "a lowest concurrency that was not measured": (in_systems("c_min_override", 8), {"c-min"}),
    "a lowest concurrency of one point": (in_systems("c_min_override", 1, 64), {"c-min"}),
    "a lowest concurrency that is too high": (in_systems("c_min_override", 64), {"c-min"}),
    "a lowest concurrency that is no number": (in_systems("c_min_override", True), {"c-min"}),
    "different maxima": (in_points("max_supported_concurrency", 128, 64), {"capacity"}),
    "a drafter that was approved too late": (
        combined(
            in_points("model_name", "gpt-oss-120b"),
            in_points("speculative_decoding", DRAFTER, 64),
            in_points("target_cohort", "2026-10-C0", 64),
        ),
        {"cohort", "drafter"},
    ),
    "an approved drafter": (
        combined(in_points("model_name", "gpt-oss-120b"), in_points("speculative_decoding", DRAFTER)),
        set(),
    ),
}
UNKNOWN = dict.fromkeys(("set B with its own seeds", "set B with the seeds of A"), "seed set")
UNKNOWN |= {"different maxima": "regions"}


def judged(curve: Path) -> tuple[set[str], set[str], list[str]]:
    """The rules on trees that are violated, those that warn, and what is not judged."""
    checked = check_folders([curve.parents[2]])
    named = [
        {
            finding.rule.removeprefix("endpoints-tree-")
            for finding in checked.of(severity)
            if finding.rule.startswith("endpoints-tree-")
        }
        for severity in ("error", "warning")
    ]
    return named[0], named[1], [entry.what for entry in not_applied(checked)]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_curve_is_found(change: str, tmp_path: Path) -> None:
    edit, rules = CHANGES[change]
    edit(curve := write_tree(tmp_path / "tree"))
    errors, warnings, left = judged(curve)
    assert errors == rules
    assert warnings == set()
    assert left == ([UNKNOWN[change]] if change in UNKNOWN else [])


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        (dedicated(13_368, rate=0.99), False),
        (dedicated(13_368, rate=0.9), True),
        (dedicated(200), True),
    ],
)
def test_an_offline_run_that_is_slow_or_small_is_a_warning(change: Change, warned: bool, tmp_path: Path) -> None:
    change(curve := write_tree(tmp_path / "tree"))
    errors, warnings, _ = judged(curve)
    assert errors == set()
    assert warnings == ({"offline-rate"} if warned else set())


def test_the_outputs_of_six_trees_differ(tmp_path: Path) -> None:
    names = ("nothing", "no Offline point", "elected below the maximum", "a later cohort", "set B with its own seeds",
             "one accuracy result")  # fmt: skip
    texts = set()
    for number, name in enumerate(names):
        curve = write_tree(tmp_path / str(number) / "tree")
        CHANGES[name][0](curve)
        texts.add(text(check_folders([curve.parents[2]]), CURVE).replace(str(tmp_path / str(number)), ""))
    assert len(texts) == len(names)


def test_an_agentic_curve_has_no_offline_point(tmp_path: Path) -> None:
    curve = write_tree(tmp_path / "tree")
    combined(in_points("runtime_settings/load_pattern", "agentic_inference"), in_points("model_name", "kimi-k3"))(curve)
    assert judged(curve)[0] == {"offline"}
    in_points("offline", "none", 256)(curve)
    assert judged(curve)[0] == set()


def test_a_downloaded_set_is_known_in_a_tree(tmp_path: Path) -> None:
    curve = write_tree(tmp_path / "tree")
    CHANGES["set B with its own seeds"][0](curve)
    path = tmp_path / "seedset.yaml"
    sets = {"cohort": {"cohort-id": "2026-11-C1", "seed_sets": [{"id": "B"} | NEW]}}
    path.write_text(yaml.safe_dump(sets))
    checked = check_folders([curve.parents[2]], seed_file=path)
    assert {finding.rule for finding in checked.of("error") if "tree" in finding.rule} == set()
    assert not_applied(checked) == []
    in_points("target_cohort", "2027-01-C1")(curve)
    rules = {
        finding.rule
        for finding in check_folders([curve.parents[2]], seed_file=path).of("error")
        if "tree" in finding.rule
    }
    assert rules == {"endpoints-tree-cohort"}


def test_regions_are_those_of_the_rules() -> None:
    assert region_bounds(32, 1024, 32) == {
        "ultra low": (1, 32), "low": (33, 42), "medium": (43, 131), "high": (132, 1024),
    }  # fmt: skip
    assert region_bounds(16, 1024, 32)["low"] == (17, 26)
    assert region_bounds(1, 256, 1)["ultra low"] == (1, 1)


def test_each_result_counts_for_one_region() -> None:
    first, second, third = Path("r1"), Path("r4"), Path("r32")
    assert assigned_regions({first: ["a"], second: ["a", "b"]}) == {"a": first, "b": second}
    assert assigned_regions({second: ["a", "b"], first: ["a"]}) == {"a": first, "b": second}
    assert set(assigned_regions({first: ["a"], second: ["a"], third: ["b"]})) == {"a", "b"}


@pytest.mark.parametrize(
    ("content", "names", "is_known"),
    [
        ({"accuracy_scores": [{"dataset_name": "a", "score": 1}]}, ["a"], True),
        ({"accuracy_scores": {"a": {"score": 1}}}, ["a"], True),
        ({"a": {"score": 1}, "b": {"score": 2}}, ["a", "b"], True),
        ([{"dataset_name": "a", "score": 1}], ["a"], True),
        ({"accuracy_scores": []}, [], True),
        ({"accuracy_scores": [{"dataset_name": "performance", "score": 1}]}, [], True),
        ({"scores": [{"dataset_name": "a", "score": 1}]}, [], False),
        ({"accuracy_scores": [{"score": 1}]}, [], False),
        ({"accuracy_scores": [{"dataset_name": "a"}, {"dataset_name": "a"}]}, [], False),
        ({"accuracy_scores": 1}, [], False),
        (1, [], False),
    ],
)
def test_the_forms_of_accuracy_results(content: Any, names: list[str], is_known: bool, tmp_path: Path) -> None:
    (path := tmp_path / ACCURACY).write_text(json.dumps(content))
    results = read_accuracy(path, tmp_path)
    assert list(results.entries) == names
    assert bool(results.fault) != is_known
    path.unlink()
    assert read_accuracy(path, tmp_path) == ({}, "")


def official_results(**passed: bool) -> str:
    results = [
        {"severity": "error", "rule": rule.replace("_", "-"), "message": "text", "passed": value}
        for rule, value in passed.items()
    ]
    return json.dumps({"results": results})


@pytest.mark.parametrize(
    ("results", "severity"),
    [
        ({"seed_set_adoption": True}, "note"),
        ({"seed_set_adoption": False}, "error"),
        ({"target_cohort": True}, "error"),
        ({"seed_set_adoption": True, "target_cohort": False}, "error"),
        ({}, "error"),
    ],
)
def test_the_official_program_decides_about_cohorts(results: dict[str, bool], severity: str, tmp_path: Path) -> None:
    curve = write_tree(tmp_path / "tree")
    combined(in_points("target_cohort", "2026-12-C1"), in_points("offline", "none", 256))(curve)
    program = tmp_path / "checker"
    printed = official_results(**results)
    version = "[ $1 = --version ] && echo checker, version 1.6.0 && exit"
    program.write_text(f"#!/bin/sh\n{version}\ncat <<'END'\n{printed}\nEND\n")
    program.chmod(0o755)
    checked = check_folders([curve.parents[2]])
    add_official_checker(checked, str(program), tmp_path / "seedset.yaml")
    severities = {finding.rule: finding.severity for finding in checked.all_findings}
    assert severities["endpoints-tree-cohort"] == severity
    assert severities["endpoints-tree-offline"] == "error"  # only seeds, cohorts and drafters
    lines = text(checked, CURVE)
    assert ("as of 2 October 2026; endpoints-submission-cli 1.6.0 accepts it" in lines) == (severity == "note")
    assert f"{program} 1.6.0" in lines
