"""Stage A: the caching audit on an engine with prefix caching, which must FAIL, and without, which must PASS."""

import json

from runs.errors import ExitCode
from tools.gpu.commands import VERDICTS, run_command, words_of
from tools.gpu.inputs import DUMMY_OF_AN_AUDIT, FP8, engine_options, user_conf
from tools.gpu.stage import GpuStage, Skipped, Stage

_VERDICTS = {ExitCode.OK: "PASS", ExitCode.NEGATIVE: "FAIL"}


def measure(stage: GpuStage) -> None:
    """Audit both engines. An audit that detects a cache was never run on a GPU, so it is first."""
    stage.step("caching-on", 60, lambda: audit(stage, "caching-on", cache=True))
    stage.step("caching-off", 70, lambda: audit(stage, "caching-off", cache=False))


def audit(stage: GpuStage, name: str, *, cache: bool) -> None:
    """Run the audit output_caching, without CUDA graphs, which take time at the start."""
    if stage.options.dummy and cache:
        raise Skipped("the dummy engine has no prefix cache")
    place = stage.new_folder(name)
    inputs = engine_options(stage, FP8, enforce_eager=True, enable_prefix_caching=cache)
    inputs |= DUMMY_OF_AN_AUDIT if stage.options.dummy else {}
    conf = user_conf(stage, name, "Offline", target_qps=1)
    fixed = {"test": "output_caching", "scenario": "Offline", "user_conf": conf, "output_log_dir": place}
    done = run_command(stage, place.name, ["audit", *words_of({**inputs, **fixed})]).check(*VERDICTS)
    record = place / "audit" / "output_caching" / "audit_output_caching.json"
    content = json.loads(record.read_text())
    stage.record(name, _VERDICTS[ExitCode(done.code)], f"in {done.seconds:.0f} s; {content['reason']}", audit=content)


STAGE = Stage("A", "the caching audit with and without prefix caching", share_s=130, least_s=70, measure=measure)
