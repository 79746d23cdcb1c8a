"""A null system under test: the real LoadGen around a thread that sleeps. A process runs it once.

Start it with `python null_sut.py SPEC`; SPEC is a JSON file with the fields of `Spec`. `outdir` receives the logs of
LoadGen, its user.conf and a `requests.jsonl` like that of the harness.
"""

import hashlib
import heapq
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # replaces the folder of the script

from runs.record.layout import RunDir  # noqa: E402
from runs.record.requests_log import RequestLogLine  # noqa: E402
from tests.support.runs.request_lines import encode_line  # noqa: E402


@dataclass
class NullRunSpec:
    """A run. `user_conf` maps LoadGen keys (`min_duration`) to values for this scenario."""

    outdir: str
    scenario: str = "Offline"  # name of LoadGen: Offline, Server, SingleStream
    key: str = "llama3_1-8b"
    mode: str = "PerformanceOnly"
    user_conf: dict[str, object] = field(default_factory=dict)
    audit_conf: dict[str, object] = field(default_factory=dict)
    total_count: int = 100
    performance_count: int = 0  # 0: equal to total_count
    trace: bool = False
    first_token_s: float = 0.001
    latency_s: float = 0.003
    tokens: tuple[int, int] = (2, 128)  # fewest and most output tokens, by sample index
    token_latencies: bool = True  # the benchmark of the key has token latencies


def token_count(sample_index: int, tokens: tuple[int, int]) -> int:
    """Return a count that differs between samples and is equal in each run."""
    low, high = tokens
    return low + sample_index * 7919 % (high - low + 1)


def run(spec: NullRunSpec) -> None:
    """Execute one LoadGen run."""
    import mlperf_loadgen as lg

    run_dir = RunDir(Path(spec.outdir))
    run_dir.root.mkdir(parents=True, exist_ok=True)
    run_dir.user_conf.write_text(
        "".join(f"*.{spec.scenario}.{name} = {value}\n" for name, value in spec.user_conf.items())
    )
    audit_path = run_dir.no_audit_config
    if spec.audit_conf:
        audit_path = run_dir.audit_config
        audit_path.write_text("".join(f"*.*.{name} = {value}\n" for name, value in spec.audit_conf.items()))

    records: list[RequestLogLine] = []
    lock = threading.Condition()
    due: list[tuple[float, int, int, int, int, int]] = []  # (time, seq, step, ID, index, issue_ns)
    first_token_ns: dict[int, int] = {}
    issued = 0
    closed = False
    wants_first_token = spec.scenario != "Offline" and spec.token_latencies

    def issue(samples: list[lg.QuerySample]) -> None:
        nonlocal issued
        issue_ns = time.time_ns()
        now = time.monotonic()
        with lock:
            for sample in samples:
                # Offline: spread the completions, as an engine does.
                spread = (issued + 1) / len(samples) if spec.scenario == "Offline" else 1.0
                lag = 0.0 if wants_first_token else spec.latency_s * spread
                step = 0 if wants_first_token else 1
                when = now + (spec.first_token_s if wants_first_token else lag)
                heapq.heappush(due, (when, issued, step, sample.id, sample.index, issue_ns))
                issued += 1
            lock.notify_all()

    # One thread responds. LoadGen keeps one log per thread without a common order. So a first token and a completion of
    # one sample from two threads within 10 ms may appear in the wrong order.
    def complete() -> None:
        while True:
            with lock:
                while not due or due[0][0] > time.monotonic():
                    if closed:
                        return
                    lock.wait(max(0.0, due[0][0] - time.monotonic()) if due else None)
                when, seq, step, sample_id, index, issue_ns = heapq.heappop(due)
            if step == 0:
                first_token_ns[seq] = time.time_ns()
                lg.FirstTokenComplete([lg.QuerySampleResponse(sample_id, 0, 0, 1)])
                later = when + spec.latency_s - spec.first_token_s
                with lock:
                    heapq.heappush(due, (later, seq, 1, sample_id, index, issue_ns))
                    lock.notify()
                continue
            count = token_count(index, spec.tokens)
            data = index.to_bytes(4, "little") * count
            complete_ns = time.time_ns()
            # LoadGen may return after the last completion, so the record is written before it.
            with lock:
                records.append(
                    RequestLogLine(
                        seq=seq,
                        sample_index=index,
                        prompt_tokens=100 + index,
                        output_tokens=count,
                        issue_ns=issue_ns,
                        first_token_ns=first_token_ns.get(seq),
                        complete_ns=complete_ns,
                        finish_reason="stop",
                        output_sha256=hashlib.sha256(data).hexdigest(),
                    )
                )
            address = _address(data)
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample_id, address, len(data), count)])

    settings = lg.TestSettings()
    scenario = getattr(lg.TestScenario, spec.scenario)
    code = settings.FromConfig(str(run_dir.user_conf), spec.key, spec.scenario, 1)
    if code != 0:
        raise SystemExit(f"FromConfig returned {code}")
    settings.scenario = scenario
    settings.mode = getattr(lg.TestMode, spec.mode)
    output = lg.LogOutputSettings()
    output.outdir = spec.outdir
    output.copy_summary_to_stdout = False
    log_settings = lg.LogSettings()
    log_settings.log_output = output
    log_settings.enable_trace = spec.trace

    threading.Thread(target=complete, daemon=True).start()
    sut = lg.ConstructSUT(issue, lambda: None)
    performance_count = spec.performance_count or spec.total_count
    qsl = lg.ConstructQSL(spec.total_count, performance_count, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, qsl, settings, log_settings, str(audit_path))
    with lock:
        closed = True
        lock.notify_all()
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)
    run_dir.requests.write_bytes(b"".join(encode_line(record) for record in records))


def _address(data: bytes) -> int:
    """Return the address of the bytes. They must outlive the call, in which LoadGen copies them."""
    import ctypes

    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def start(spec: NullRunSpec) -> RunDir:
    """Run `spec` in a process of its own. Return its directory."""
    import subprocess

    from tests.support.processes.patience import finish

    outdir = Path(spec.outdir)
    outdir.parent.mkdir(parents=True, exist_ok=True)
    spec_path = outdir.parent / f"{outdir.name}.spec.json"
    spec_path.write_text(json.dumps(asdict(spec)))
    with subprocess.Popen(
        [sys.executable, __file__, str(spec_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stdout, stderr = finish(process, "a system that sleeps")
    if process.returncode != 0:
        raise RuntimeError(f"null SUT ended with {process.returncode}: {stdout[-500:]}{stderr[-500:]}")
    return RunDir(outdir)


if __name__ == "__main__":
    raw = json.loads(Path(sys.argv[1]).read_text())
    raw["tokens"] = tuple(raw["tokens"])
    run(NullRunSpec(**raw))
