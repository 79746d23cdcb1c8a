"""A leg of an older version of the record, in the form of the present one: nothing it measured is touched.

What its version did not record says so; fields that came later have the value that they have where there is nothing to
tell. The forgeries are then made from it, in the present form too.
"""

import orjson

from runs.numbers.result import build_result, write_result
from runs.record.layout import RunDir
from runs.record.manifest import SCHEMA_VERSION, Manifest, write_manifest
from runs.record.observed import CONTENTION, NOT_RECORDED
from runs.record.progress import Progress, write_progress
from tests.support.editing import reseal

# Of a leg from before there were these fields.
_NOT_MEASURED = {"start_stages": {}, "engine": None, "refused_connections": None}
_NO_LAG = {"p99_ms": 0.0, "worst_ms": 0.0, "moments": 1, "interval_ms": 1.0}


def lift(run: RunDir) -> None:
    """Bring a leg's manifest, heartbeat and result into the present form, and seal it."""
    content = orjson.loads(run.manifest.read_bytes())
    content = Manifest.model_validate(content).model_dump(mode="json") | {"schema_version": SCHEMA_VERSION}
    content["host"].setdefault("boot_id", None)
    content["model"].setdefault("weights", None)
    if content["status"] == "finished":
        observed = content["observed"]
        observed.setdefault(CONTENTION, {NOT_RECORDED: "the leg is from before this was recorded"})
        content["observed"] = _NOT_MEASURED | observed | {"loop_lag": _NO_LAG | observed.get("loop_lag", {})}
    write_manifest(run.manifest, Manifest.model_validate(content))
    if run.progress.is_file():
        write_progress(run.progress, Progress(**orjson.loads(run.progress.read_bytes())))
    if content["status"] == "finished":
        write_result(run, build_result(run, scenario=content["resolved"]["scenario"]))
    reseal(run)  # as of its own end: a case that is made again is the same, byte by byte
