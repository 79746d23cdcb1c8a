"""The verdict of `verify` on a run directory of the client."""

from pathlib import Path

from compliance.mlperf_endpoints.verdict import FolderVerdict
from compliance.results.scoring import ScoreSources
from compliance.sources import VerdictRequest, find


def judge_folder(
    path: Path,
    *,
    official: bool = False,
    model_path: str | None = None,
    dataset_path: Path | None = None,
    seed_file: Path | None = None,
) -> FolderVerdict:
    request = VerdictRequest(ScoreSources(dataset_path, model_path), official=official, seed_sets=seed_file)
    (case,) = find("verify", [path], request)
    return case.judge()
