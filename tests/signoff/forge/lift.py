"""A leg of an older version of the record, in the form of the present one: nothing it measured is touched.

What its version did not record says so; fields that came later have the value that they have where there is nothing to
tell. The forgeries are then made from it, in the present form too.
"""

import orjson

from runs.benchmarks import BENCHMARKS
from runs.files import write_json
from runs.numbers.result import build_result, write_result
from runs.record.layout import RunDir
from runs.record.manifest import SCHEMA_VERSION, Manifest, write_manifest
from runs.record.observed import CONTENTION, LOOP_LAG, NOT_RECORDED, loop_lag_of
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
        content["observed"] = _NOT_MEASURED | observed | {LOOP_LAG: _NO_LAG | (observed.get(LOOP_LAG) or {})}
    write_manifest(run.manifest, Manifest.model_validate(content))
    lag = content["observed"].get(LOOP_LAG)
    if run.progress.is_file():
        write_progress(run.progress, Progress(**orjson.loads(run.progress.read_bytes()) | {LOOP_LAG: lag}))
    if content["status"] == "finished":
        result = build_result(run, scenario=content["resolved"]["scenario"])
        write_result(run, result.model_copy(update={LOOP_LAG: loop_lag_of(content["observed"])}))
    if run.accuracy_json.is_file():
        record = {"metric": BENCHMARKS[content["resolved"]["loadgen_key"]].metric}
        record |= orjson.loads(run.accuracy_json.read_bytes())
        target = record["target"] and {name: record["target"][name] for name in record["scores"]}
        write_json(run.accuracy_json, record | {"target": target})
    reseal(run)  # as of its own end: a case that is made again is the same, byte by byte
