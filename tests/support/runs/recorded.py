"""Recorded runs, which all judges read. `make record-runs` creates them again (make_recorded_runs.py).

They are real runs of this product through the real LoadGen, stored in recorded.tar.xz. Unpacked, they have paths of
this host, and are signed with the key of the tests.
"""

import json
import tarfile
from pathlib import Path

from qsl.embedded.articles import bundled_dataset
from runs.record.layout import RunDir
from tests.support.files.editing import reseal
from tests.support.once import make_and_keep

ARCHIVE = Path(__file__).with_name("recorded.tar.xz")
# In the archive, for paths of the reading host
HOME = "/recorded-legs"
MADE_OF = "made-of.json"
# Directories of the runs of a result. Offline and Server are results of one campaign.
RESULTS = {
    "Offline": "campaign/llama3.1-8b/Offline",
    "Server": "campaign/llama3.1-8b/Server",
    "SingleStream": "results/SingleStream",
    "Interactive": "results/Interactive",
}
NULL = "null"  # runs around a system that sleeps
OVER_HTTP = "over-http"  # a campaign against a server


def recorded() -> Path:
    """Return the folder of all recorded runs. Only read it."""
    return make_and_keep("recorded", _unpack, data=["tests/support/runs/recorded.tar.xz"])


def _unpack(folder: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    places = {HOME: str(folder), **datasets(folder)}
    for path in harness_files(folder):
        text = path.read_text()
        for placeholder, place in places.items():
            text = text.replace(placeholder, json.dumps(place)[1:-1])
        path.write_text(text)
    for seal in folder.rglob("seal.json"):
        reseal(RunDir(seal.parent))


def datasets(folder: Path) -> dict[str, str]:
    """Return the bundled articles, tokenized for the runs of the dummy engine and for those over HTTP."""
    return {
        "/recorded-dataset.json": str(bundled_dataset("bytes")),
        "/recorded-dataset-over-http.json": str(bundled_dataset(str(folder / OVER_HTTP / "model"))),
    }


def harness_files(folder: Path) -> list[Path]:
    """Return the files that may contain a path: none of LoadGen's."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("mlperf_log_")]
