"""The submission to MLPerf Endpoints that is built from run folders: a directory for each point of the curve.

config.yaml, result_summary.json and accuracy_results.json are copies of the client's files. point.yaml is computed from
the folders (rules §8.3), without the fields that only the submitter knows (`LACKING`).
"""

import re
from pathlib import Path
from typing import Any

import yaml

from compliance.endpoints.endpoints_evidence import EndpointsEvidence
from compliance.endpoints.rules import ACCURACY, model_rules, seed_set, seeds_of
from compliance.endpoints.submission import POINT_FILES, FoldersChecked
from compliance.judge.finding import Finding
from compliance.submission.build import refuse_taken
from compliance.submission.tree import REHEARSAL_FILE, REHEARSAL_MARK
from runs.errors import InputError
from runs.files.reading import read_record
from runs.files.writing import write_atomic

POINT = "point.yaml"
_FIX = "restore the client's unchanged file in the run folder"
# Fields of point.yaml that the submitter must add, because run folders do not contain them.
LACKING = (
    "division", "model_precision", "link_to_model", "dataset_link", "shared_src", "shared_docs", "target_cohort",
)  # fmt: skip


def refusals(checked: FoldersChecked, *, rehearsal: bool) -> list[Finding]:
    """Return the errors that prevent building a tree; in a rehearsal, without violated rules of the round."""
    return [one for one in checked.of("error") if not (rehearsal and one.kind == "official")]


def build_points(checked: FoldersChecked, output: Path, system_name: str, *, rehearsal: bool) -> list[Path]:
    """Write a directory for each run folder; return the files.

    Raises:
        InputError: If two folders are the same point, or a file of a folder cannot be read.
        SetupError: If the output exists.
    """
    refuse_taken(output)
    cases = [EndpointsEvidence(run) for run in checked.runs if not run.only_audit]
    points = [point_of(case) for case in cases]
    highest = max((point["concurrency"] for point in points if "offline" not in point), default=None)
    files: dict[Path, bytes | str] = {}
    for case, point in zip(cases, points, strict=True):
        if highest is not None:
            point["max_supported_concurrency"] = highest
        folder = output / "results" / system_name / point["model_name"] / f"r{point['concurrency']}"
        if folder / POINT in files:
            raise InputError(f"{case.run.root}: {folder} already has this point", "name one run folder for each point")
        for name, source in POINT_FILES.items():
            if case.run.has(source):
                files[folder / name] = read_record(case.run.path(source), _FIX)
        files[folder / POINT] = yaml.safe_dump(point, sort_keys=False)
    if rehearsal:
        files[output / REHEARSAL_FILE] = REHEARSAL_MARK + "\n"
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return list(files)


def point_of(case: EndpointsEvidence) -> dict[str, Any]:
    """Return the fields of point.yaml that the folder determines.

    Raises:
        InputError: If the folder has no measured phase, or its load is not a point of a curve.
    """
    load = case.load
    if load is None:
        raise InputError(f"{case.run.root}: no measured phase found", "remove the folder from the command")
    config, settings, events = load.config, load.config.settings, load.events
    runtime, pattern, salt = settings.runtime, settings.load_pattern, settings.warmup.salt
    offline = pattern.type == "max_throughput"
    concurrency = (load.size[0] or len(load.rows)) if offline else pattern.target_concurrency
    if not concurrency:
        raise InputError(
            f"{case.run.root}: {pattern.asked} is not a point of a curve", "remove the folder from the command"
        )
    dataset = next((str(one.get("name")) for one in case.run.datasets(measured=True)), "")
    given = case.run.raw_config.get("settings")
    client = given.get("client") if isinstance(given, dict) else None
    before = events.issued_ns < load.start_ns  # warm-up
    first_ns, warmed = int(events.issued_ns[before].min(initial=load.start_ns)), int(before.sum())
    published = seed_set(seeds_of(config))
    return {
        "concurrency": concurrency,
        "model_name": model_rules(case)[0] or re.sub(r"[^\w-]+", "_", Path(config.model_params.name).name)[:64],
        "dataset": dataset,
        "dataset_name": dataset,
        "dataset_type": "Accuracy + Performance" if case.run.has(ACCURACY) else "Performance",
        "runtime_settings": {
            "load_pattern": pattern.type,
            "min_duration_ms": int(runtime.min_duration_ms),
            "stream_all_chunks": bool(isinstance(client, dict) and client.get("stream_all_chunks")),
            "runtime": {
                "scheduler_rng_seed": runtime.scheduler_random_seed,
                "sample_index_rng_seed": runtime.dataloader_random_seed,
                **({} if config.model_params.seed is None else {"model_seed": config.model_params.seed}),
            },
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
        **({} if published is None else {"seed_set": published}),
    }
