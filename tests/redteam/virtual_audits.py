"""Audits of cheating systems in virtual time: the audits plan and judge their own runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compliance.audits.audit_registry import runs_in_turn
from compliance.audits.base import AuditResult, NoVerdictError, RunSpec
from compliance.audits.discovery import find_audit
from compliance.audits.run_artifacts import RunArtifacts
from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.tokenizers import BOS_ID, EOS_ID, ByteTokenizer
from runs.benchmark import Scenario
from runs.benchmarks import default_benchmark
from runs.errors import SetupError
from runs.record.requests_log import RequestLogLine
from sut.dummy.dummy_engine import DummyEngine
from sut.engine import Request
from tests.redteam.matrix import CAUGHT, NO_VERDICT, PASSES, REFUSED, SAMPLES
from tests.support.engines.cheats import Cheat, CheatContext, CheatingEngine, Service, make_cheat
from tests.support.runs.audit_runs import entry, request_of, write_run
from tests.support.runs.request_lines import encode_line
from tests.support.simulated.virtual_time import Answered, JumpingLoop, issue_all, issue_order_of, schedule_ns

AUDITS = ("output_caching", "TEST06", "output_consistency", "output_length")
TARGET_QPS = 40.0  # queries/s of a Server run
PAUSE_S = 1e5  # between two runs
# The values of tests/redteam/matrix.py
MODEL: dict[str, Any] = {"ttft_ms": 2.0, "prefill_us": 20.0, "tpot_ms": 0.02, "slots": 4}
CACHING_MODEL = MODEL | {"prefill_us": 120.0, "slots": 1}


@cache
def _prompts() -> list[list[int]]:
    return load_dataset(bundled_dataset("bytes"), count=SAMPLES).prompts


@cache
def _references() -> list[list[int]]:
    targets = load_dataset(bundled_dataset("bytes"), count=SAMPLES).targets
    return [ids[1:] for ids in ByteTokenizer().encode_batch(targets)]


@cache
def _lead_tokens() -> int:
    first, last = min(_prompts()), max(_prompts())
    return next(place for place, (low, high) in enumerate(zip(first, last, strict=False)) if low != high)


def run_audit(audit: str, kind: str, scenario: Scenario, folder: Path) -> str:
    """Return the outcome of one audit of a system that has not seen the dataset before."""
    result = audited(audit, kind, scenario, folder)
    return result if isinstance(result, str) else PASSES if result.passed else CAUGHT


def audited(audit: str, kind: str, scenario: Scenario, folder: Path) -> AuditResult | str:
    """Return the result of one audit, or REFUSED or NO_VERDICT."""
    test = find_audit(audit)
    request = request_of(
        audit,
        scenario=scenario,
        loadgen_key=default_benchmark(scenario).loadgen_key,
        loaded_count=SAMPLES,
        stop_ids=(EOS_ID,),
        bos_ids=(BOS_ID,),
    )
    try:
        test.validate(request)
    except SetupError:
        return REFUSED
    model = CACHING_MODEL if audit == "output_caching" else MODEL
    system = _System(kind, model, test.keeps_engine)
    runs = runs_in_turn(test, request, lambda spec: _run(spec, system, scenario, folder / spec.label))
    try:
        return test.verify(request, runs)
    except NoVerdictError:
        return NO_VERDICT


@dataclass
class _System:
    """A system under test, with the memory of its engines across runs."""

    kind: str
    model: dict[str, Any]
    keeps_engine: bool
    cheats: dict[int, Cheat] = field(default_factory=dict)  # by engine
    loop: JumpingLoop | None = None  # of the current run
    runs: int = 0

    def now_s(self) -> float:
        """Return the time, with pauses between the runs."""
        assert self.loop is not None
        return PAUSE_S * self.runs + self.loop.time()

    def begin(self, loop: JumpingLoop) -> None:
        self.loop, self.runs = loop, self.runs + 1

    def cheat(self, engine: int, context: CheatContext) -> Cheat:
        cheat = make_cheat(self.kind, context)
        return self.cheats.setdefault(engine, cheat) if self.keeps_engine else cheat


def _run(spec: RunSpec, system: _System, scenario: Scenario, folder: Path) -> RunArtifacts:
    accuracy, settings = spec.mode == "accuracy", spec.settings
    count = SAMPLES if accuracy else settings["min_query_count"]
    rows = range(SAMPLES) if spec.rows is None else spec.rows
    loaded, order = issue_order_of(
        scenario,
        len(rows),
        count,
        accuracy=accuracy,
        set_size=settings.get("performance_sample_count_override"),
        permutation=bool(settings.get("sample_concatenate_permutation", 1)),
        unique=bool(settings.get("performance_issue_unique")),
        same_index=settings["performance_issue_same_index"] if settings.get("performance_issue_same") else None,
    )

    def engine(loop: JumpingLoop) -> DummyEngine:
        sampling = default_benchmark(scenario).sampling[spec.mode]
        context = CheatContext(
            not accuracy, BOS_ID, EOS_ID, ord(" "), sampling.max_tokens, _references(), now_s=system.now_s
        )
        system.begin(loop)
        if not system.kind:
            return DummyEngine(sampling, **system.model, lead_tokens=_lead_tokens())
        cheat = system.cheat(spec.engine, context)

        def of_row(request: Request, service: Service) -> None:
            """Translate sample indexes to rows, because the engine knows samples by their row."""
            cheat(replace(request, sample_index=rows[request.sample_index]), service)

        return CheatingEngine(sampling, **system.model, lead_tokens=_lead_tokens(), cheat=of_row)

    offsets_ns = schedule_ns(TARGET_QPS, count) if scenario == "Server" else []
    prompts = [_prompts()[row] for row in rows]
    responses = issue_all(engine, prompts, scenario, order, offsets_ns)
    return _written(spec, scenario, folder, loaded, prompts, responses)


def _written(
    spec: RunSpec,
    scenario: Scenario,
    folder: Path,
    loaded: list[int],
    prompts: list[list[int]],
    responses: Sequence[Answered],
) -> RunArtifacts:
    """Write the files that an audit reads."""
    latency_ms = max(
        1e-3, float(np.mean([response.latency_ns for response in responses])) / 1e6
    )  # a cache takes no time at all
    seconds = max(1e-3, max(response.complete_ns for response in responses) / 1e9)
    streams = scenario != "Offline"
    run = write_run(
        folder,
        spec,
        scenario=scenario,
        latency_ms=latency_ms,
        rate=1e3 / latency_ms if scenario == "SingleStream" else len(responses) / seconds,
        ttft_ms=float(np.mean([response.ttft_ns for response in responses])) / 1e6 if streams else None,
        samples=[
            (response.sample_index, len(prompts[response.sample_index]), len(response.ids)) for response in responses
        ],
        outputs=[response.ids for response in responses],
        loaded=loaded,
        entries=[
            entry(
                response.ids,
                seq=response.seq,
                index=response.sample_index,
                first=response.first_ids if streams else None,
            )
            for response in responses
        ],
    )
    lines = [
        RequestLogLine(
            record.seq, record.sample_index, len(prompts[record.sample_index]), len(record.ids), record.issue_ns + 1,
            record.first_ns or None, record.complete_ns + 1, "stop", digest,
        )
        for record, digest in zip(responses, run.requests.output_sha256, strict=True)
    ]  # fmt: skip
    run.dir.requests.write_bytes(b"".join(map(encode_line, lines)))
    return RunArtifacts(run.dir, spec=spec)
