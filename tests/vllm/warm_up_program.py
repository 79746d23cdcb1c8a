"""Warm a compiling vLLM up, then work, and print what was compiled when: `python -m tests.vllm.warm_up_program WORK`.

vLLM counts what it compiles and captures in the process that does it. So its core runs in this process, by its own
switch VLLM_ENABLE_V1_MULTIPROCESSING=0. The last line is one JSON object.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_articles
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from scenarios.launch.warmup import RequestGroup, warm_up
from sut.vllm.vllm_engine import OneProcessVllmEngine
from tests.support.engines.small_tokenizer import make_tiny_llama
from tests.support.official import SAMPLING

LIMITS = {"max_num_seqs": 24, "max_num_batched_tokens": 1024}
WORK_SIZES = (1, 3, 24, 30)  # queries at a time; the last number exceeds the limit


class WatchedEngine(OneProcessVllmEngine):
    """An engine that records the largest number of queries in one step of vLLM's scheduler."""

    largest_batch = 0

    def _step(self) -> None:
        super()._step()
        self.largest_batch = max(self.largest_batch, len(self._llm.engine_core.engine_core.scheduler.running))


def compiled() -> dict[str, Any]:
    """Return everything that vLLM and torch have compiled and captured so far."""
    from torch._dynamo.utils import counters
    from vllm.compilation.counter import compilation_counter

    counts = {name: count for name, count in vars(compilation_counter).items() if count}
    return {**counts, "torch": {kind: dict(value) for kind, value in counters.items() if value}}


async def run(work: Path) -> dict[str, Any]:
    """Start the engine, warm it up, and work."""
    model = make_tiny_llama(work / "model", [article.article for article in bundled_articles()])
    settings = {
        "scenario": "SingleStream",
        "model_path": str(model),
        "output_log_dir": str(work / "never-run"),
        "engine_arg": {"enforce_eager": False, **LIMITS},
    }
    plan = prepare(make_config(settings)).plan
    os.environ.update(plan.environment)
    prompts = load_dataset(plan.dataset_path).prompts
    engine = WatchedEngine(plan.model_path, dict(plan.engine_options), SAMPLING, stream_first_token=True)
    report = await engine.start()
    started = compiled()
    facts, _ = await warm_up(engine, plan, report, prompts)
    warm, largest = compiled(), engine.largest_batch
    for size in WORK_SIZES:
        group = RequestGroup(engine)
        group.submit(prompts[:size])
        await group.end()
    ended = compiled()
    await engine.stop()
    return {"started": started, "warm": warm, "ended": ended, "largest_batch": largest, "warm_up": facts}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1])))))
