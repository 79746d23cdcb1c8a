"""The recorded runs are current: their settings, record version, LoadGen and articles."""

import importlib.metadata
import json
from pathlib import Path

from runs.files.writing import sha256_of
from runs.loadgen.detail_log import read_detail
from runs.record.manifest import RECORD_VERSION, read_manifest
from tests.support.runs.make_recorded_runs import recording_inputs
from tests.support.runs.recorded import MADE_OF, datasets, recorded

ANEW = "make record-runs"


def test_recorded_runs_are_those_of_the_recording_script() -> None:
    assert json.loads((recorded() / MADE_OF).read_text()) == recording_inputs(), ANEW


def test_recorded_runs_have_the_current_version_and_dataset() -> None:
    paths = list(recorded().rglob("manifest.json"))
    assert len(paths) >= 16
    digests = {place: sha256_of(Path(place)) for place in datasets(recorded()).values()}
    for path in paths:
        manifest = read_manifest(path)
        assert manifest.record == RECORD_VERSION, f"{path}: {ANEW}"
        assert manifest.plan.dataset_sha256 == digests[manifest.plan.dataset_path], f"{path}: {ANEW}"


def test_recorded_logs_are_of_the_installed_loadgen() -> None:
    paths = list(recorded().rglob("mlperf_log_detail.txt"))
    assert len(paths) >= 40
    installed = importlib.metadata.version("mlcommons-loadgen")
    assert {str(read_detail(path).get("loadgen_version")).split(" ")[0] for path in paths} == {installed}, ANEW
