"""Stage K: `ab` on two servers of one GPU: FP8 against bf16, and a server against itself."""

from functools import partial

from runs.ab.ab_record import AB_FILE, AbRecord, read_ab_record
from runs.errors import ExitCode
from tools.gpu.commands import run_command, words_of
from tools.gpu.inputs import BF16, FP8, model_and_dataset
from tools.gpu.servers import servers
from tools.gpu.stage import GpuStage, Skipped, Stage

RATE = 5.0  # queries/s for each server: a quarter of the GPU's rate, so that the servers hardly slow each other
REHEARSED_RATE = 20.0
AB_S = 45.0
QUANTITY = "TPOT mean"
# Multiple engines share the GPU: each gets a fixed cache, because vLLM would count the memory of another engine.
_SHARE = {"gpu_memory_utilization": 0.3, "kv_cache_memory_bytes": 4 << 30}
_CODES = (ExitCode.OK, ExitCode.REFUSED)  # REFUSED: no statement, with the reasons in ab.json
_COMPARISONS = {"ab-bf16": (0, 1), "ab-equal": (0, 0)}  # figure → servers A and B


def measure(stage: GpuStage) -> None:
    """Compare the servers, the unequal ones first."""
    if not all(map(stage.is_done, _COMPARISONS)):
        stage.step("servers", 115, lambda: _with_servers(stage))


def _with_servers(stage: GpuStage) -> None:
    with servers(stage, [FP8, BF16], **_SHARE) as urls:
        for name, (first, second) in _COMPARISONS.items():
            pair = [urls[first], urls[second]]
            stage.step(name, AB_S + 10, partial(compare, stage, name, pair))


def compare(stage: GpuStage, name: str, urls: list[str]) -> None:
    """Run `ab` and record the change of the TPOT from A to B."""
    place = stage.new_folder(name)
    data = {} if stage.options.dummy else model_and_dataset(stage)
    words = ["--backend", "openai"] if stage.options.dummy else []
    rate = REHEARSED_RATE if stage.options.dummy else RATE
    fixed = {"rates": rate, "max_time": f"{stage.options.run_s(AB_S):g}s", "output_log_dir": place}
    if stage.options.dummy:
        fixed["block"] = "2s"
    run_command(stage, place.name, ["ab", *urls, *words, *words_of({**data, **fixed})]).check(*_CODES)
    record = read_ab_record(place / AB_FILE)
    change = next((change for change in record.changes if change.quantity == QUANTITY), None)
    if change is None:
        raise Skipped("; ".join(record.withheld) or "the comparison has no changes")
    interval = "" if change.low is None or change.high is None else f"{change.low:+.1%} to {change.high:+.1%}, "
    detail = record.model_dump(mode="json", include={"changes", "withheld", "sentences"})
    stage.record(name, 100 * change.change, f"{interval}{change.verdict}{_withheld(record)}", **detail)


def _withheld(record: AbRecord) -> str:
    return f"; {'; '.join(record.withheld)}" if record.withheld else ""


STAGE = Stage("K", "`ab`: FP8 against bf16, and equal servers", share_s=170, least_s=120, measure=measure)
