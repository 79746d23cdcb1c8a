"""Verdicts on run directories of the client, as `verify` and `check` reach them."""

from collections.abc import Sequence
from pathlib import Path

from compliance.judge.verdict import judge
from compliance.mlperf_endpoints.submission import CHECK, CurveVerdict, curve_of
from compliance.mlperf_endpoints.verdict import FolderVerdict
from compliance.results.scoring import ScoreSources
from compliance.sources import Request, find


def judge_folder(
    path: Path,
    *,
    official: bool = False,
    model_path: str | None = None,
    dataset_path: Path | None = None,
    seed_file: Path | None = None,
) -> FolderVerdict:
    """Return the verdict of `verify`."""
    request = Request(ScoreSources(dataset_path, model_path), official=official, seed_sets=seed_file)
    (case,) = find("verify", [path], request)
    return case.judge()


def check_folders(folders: Sequence[Path], *, seed_file: Path | None = None) -> CurveVerdict:
    """Return the verdict of `check`, without an official checker."""
    return judge(curve_of(folders, ScoreSources(), seed_file), CHECK)
