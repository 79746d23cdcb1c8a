"""(g) Time from the command to LoadGen's first query, and how much of it is not the engine's start.

The engine's start is measured beside it, in turns: a program that does nothing but start vLLM's `LLM` with the same
options and environment. The warm-up's prompts are engine work too and are listed by themselves.

A leg imports the engine's code while its parent still checks it, so its stages are not those of the engine alone; what
counts is the difference of the wholes.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.errors import ExecutionError
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.progress import read_progress
from sut.recorder import partial_path

from .report import BenchPart, at_most
from .sizes import Sizes
from .tools.legs import engine_plan, started_leg
from .tools.llm_server import llm_server
from .tools.models import TINY, VOCAB_SIZE, make_llama, write_rows

POLL_S = 0.01
CONF: dict[str, object] = {"min_duration": 1, "min_query_count": 1, "target_qps": 1}


@dataclass(frozen=True)
class _Start:
    """Moments of one leg's start, in seconds from the command."""

    checked: float  # everything is checked and the run's record is about to be written
    imported: float  # the leg's process has imported the engine's code and has its run directory
    engine_ready: float  # its engine is started and its data set read
    running: float  # warm-up done, LoadGen about to be called
    first_query: float
    warm_up_s: float  # the warm-up's own account


def run(work: Path, sizes: Sizes) -> BenchPart:
    """Start the engine alone and a leg, in turns."""
    part = BenchPart("g", f"from the command to the first query: Offline, model T, data set of {sizes.rows:,} rows")
    model = make_llama(work / TINY.name, TINY)
    data = write_rows(work / "rows.json", sizes.rows, VOCAB_SIZE)
    options = {"scenario": "Offline", "vllm": True, "model_path": str(model), "dataset_path": str(data)}
    plan = engine_plan(work, options)
    engine_s, starts = [], []
    for repeat in range(sizes.repeats):
        with llm_server(work / f"engine-{repeat}", model, plan.engine_options, plan.environment, []) as server:
            engine_s.append(server.ready_s)
        starts.append(_start(RunDir(work / f"leg-{repeat}"), options))

    part.add("command to first query", "s", [one.first_query for one in starts])
    part.add("- leg checked, meanwhile", "s", [one.checked for one in starts])
    part.add("- to the engine's code imported", "s", [one.imported for one in starts])
    part.add("- engine started, data set read", "s", [one.engine_ready - one.imported for one in starts])
    part.add("- warm-up, LoadGen's settings", "s", [one.running - one.engine_ready for one in starts])
    part.add("- LoadGen to its first query", "s", [one.first_query - one.running for one in starts])
    part.add("engine alone, command to ready", "s", engine_s)
    part.add("warm-up prompts in the engine", "s", [one.warm_up_s for one in starts])
    own = [one.first_query - one.warm_up_s - alone for one, alone in zip(starts, engine_s, strict=True)]
    part.add("own share: the rest", "s", own, at_most(1.0))
    return part


def _start(run: RunDir, options: dict[str, Any]) -> _Start:
    """Start a leg and stop it as soon as its first query is recorded."""
    partial = partial_path(run.requests)
    seen_ns: dict[str, int] = {}
    with started_leg(run, options, CONF) as leg:
        while not (partial.exists() and b"\n" in partial.read_bytes()[:4096]):
            if leg.process.poll() is not None:
                raise ExecutionError(f"a leg ended with code {leg.process.returncode}", f"see {leg.log}")
            progress = read_progress(run.progress)
            if progress is not None:
                seen_ns.setdefault(progress.phase, progress.time_ns)
            time.sleep(POLL_S)
        issue_ns = orjson.loads(partial.read_bytes().splitlines()[0])["issue_ns"]
        manifest = read_manifest(run.manifest)
    assert manifest.start_time_ns is not None

    def since_command(moment_ns: int) -> float:
        return (moment_ns - leg.started_ns) / 1e9

    return _Start(
        checked=since_command(manifest.start_time_ns),
        imported=since_command(seen_ns["engine"]),
        engine_ready=since_command(seen_ns["warm-up"]),
        running=since_command(seen_ns["running"]),
        first_query=since_command(issue_ns),
        warm_up_s=float(manifest.engine["warm_up"]["seconds"]),
    )
