"""The process of one run, with the engine, the sample library, the system under test and LoadGen.

The main thread writes the heartbeat, checks for stalls and dead engines, and handles signals. The engine uses an event
loop in a second thread. LoadGen uses a third thread, because its Start call cannot be interrupted. A failure is written
to progress.json, where the parent reads it, and ends the process at once.

`scenarios/launch/start.py` passes the run directory to this module; everything else is in the manifest.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from qsl.dataset import Dataset, load_dataset
from qsl.sample_library import SampleLibrary
from runs.errors import Ending, ExecutionError, ExitCode, Interrupted, SetupError, error_record
from runs.files.reserve import FREE_DISK_SPACE, DiskReserve, is_disk_full
from runs.loadgen.early_stopping import PERCENTILE
from runs.processes.age import age_s
from runs.processes.interrupts import ENDING
from runs.record.engines.engine_stages import StageClock, last_error, start_stage
from runs.record.engines.server_notes import FAILED_SHARE, too_many_failed
from runs.record.layout import RunDir
from runs.record.manifest import EngineState, RunPlan, WarmUp, read_manifest, write_manifest
from runs.record.observed import EngineSeen, LatenessSummary, LoopLag
from runs.record.progress import HEARTBEAT_INTERVAL_S, PHASES, Progress, write_progress
from scenarios.launch.cpu_times import contention_between, read_cpu
from scenarios.launch.loadgen_settings import build_log_settings, build_settings, expected_size
from scenarios.launch.run_pace import DurationForecast
from scenarios.launch.trial import write_trial_conf
from scenarios.launch.warmup import warm_up
from sut.admission import Admission
from sut.engine import Engine, EngineObserved, EngineReport
from sut.engines import engine_kind, make_engine
from sut.event_loop import LagMeter, freeze_garbage_collection, new_event_loop
from sut.feed import AdmissionControl, ClosedLoop, Feed
from sut.loadgen_sut import LoadgenSut
from sut.request_writer import RequestLogWriter
from sut.watchdog import EngineWatch, WarmUpWatch

if TYPE_CHECKING:
    from sut.replicas.pool import ReplicaPool

TICK_S = 0.25
ENGINE_STOP_TIMEOUT_S = 15.0
ADMISSION_TOKENS = 8192  # default limit for an engine without a token budget per step
FIRST_QUERY_TIMEOUT_S = 300.0  # LoadGen prepares every query before it issues the first.
RESERVE_BYTES = 1 << 20  # for the manifest, and the last lines of the request log


class RunProcess:
    """One run from its manifest to LoadGen's logs."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.manifest = read_manifest(run_dir.manifest)
        self.plan = self.manifest.plan
        self.failure: BaseException | None = None
        self.progress = Progress("starting", time.time_ns(), os.getpid(), self.plan.scenario, self.plan.mode)
        self._wake = threading.Event()
        self._last_beat = 0.0
        self._sut: LoadgenSut | None = None
        self._request_log: RequestLogWriter | None = None
        self._lag: LagMeter | None = None
        self._started_s = 0.0
        self._engine: Engine | None = None
        self._pace: DurationForecast | None = None
        self._tokens_before = 0  # output tokens before the timed run
        self._stages = StageClock(PHASES["importing"], time.time() - (age_s(psutil.Process()) or 0.0))
        self.loop = new_event_loop()

    # Failures: any thread reports, the main thread acts --------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Report a failure. Only the first failure counts. Safe from every thread."""
        if self.failure is None:
            self.failure = error
        self._wake.set()

    def _fail_in_loadgen(self, error: BaseException) -> None:
        """Report a failure in a callback of LoadGen without returning to LoadGen, so that it writes no verdict."""
        self.fail(error)
        threading.Event().wait()

    def _install_hooks(self) -> None:
        def on_signal(number: int, _frame: object) -> None:
            # `fail` could block, because this handler may interrupt a thread that holds the lock of its Event.
            if self.failure is None:
                self.failure = Interrupted(f"stopped by {signal.Signals(number).name}")

        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP.
                signal.signal(number, on_signal)
        threading.excepthook = lambda arguments: self.fail(
            arguments.exc_value or ExecutionError(f"thread {arguments.thread} ended without a message")
        )

        def on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            self.fail(context.get("exception") or ExecutionError(f"event loop: {context.get('message')}"))

        self.loop.set_exception_handler(on_loop_error)

    # Waiting -----------------------------------------------------------------------------------------------------

    def _beat(self, phase: str | None = None) -> None:
        """Write the heartbeat if one is due, or at once when the phase changes."""
        now = time.monotonic()
        if phase is not None and phase != self.progress.phase:
            self.progress.phase = phase
            self.progress.stage = ""
        elif now - self._last_beat < HEARTBEAT_INTERVAL_S:
            return
        self._last_beat = now
        progress, request_log = self.progress, self._request_log
        progress.time_ns = time.time_ns()
        if progress.phase == "engine":
            progress.stage = start_stage(self.run_dir.engine_log) if self.plan.starts_engine else "checking the server"
        self._stages.enter(progress.doing)
        if self._sut is not None:
            progress.issued, progress.completed = self._sut.issued, self._sut.completed
        if request_log is not None and self._started_s:
            progress.elapsed_s = now - self._started_s
            # Reports of replicas are half a second old. After the last response, the request log is exact.
            engine = self._engine if progress.phase == "running" else None
            made = engine.generated_tokens() if engine is not None else None
            progress.output_tokens = max(request_log.output_tokens, (made or 0) - self._tokens_before)
            progress.samples_per_second = request_log.done / max(progress.elapsed_s, 1e-9)
            progress.tokens_per_second = progress.output_tokens / max(progress.elapsed_s, 1e-9)
            if self._pace is not None:
                progress.forecast_s = self._pace.forecast_s(progress.elapsed_s, progress.issued, progress.completed)
            progress.ttft_p50_ms = request_log.ttft.percentile_ms(50)
            progress.ttft_p99_ms = request_log.ttft.percentile_ms(99)
            progress.tpot_p50_ms = request_log.tpot.percentile_ms(50)
            progress.tpot_p99_ms = request_log.tpot.percentile_ms(99)
        if self._lag is not None and (lag := self._lag.so_far()):
            progress.loop_lag = lag.model_dump()
        write_progress(self.run_dir.progress, progress)

    def _wait(self, finished: Callable[[], bool], poll: Callable[[], None] = lambda: None) -> None:
        """Wait for another thread while writing heartbeats; raise the first failure."""
        while True:
            if self.failure is not None:
                raise self.failure
            if finished():
                return
            poll()
            self._beat()
            self._wake.wait(TICK_S)
            self._wake.clear()

    def _on_loop(self, work: Coroutine[Any, Any, Any], poll: Callable[[], None] = lambda: None) -> Any:
        """Run a coroutine on the engine's loop, and wait for it with `_wait`."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        future.add_done_callback(lambda _: self._wake.set())
        self._wait(future.done, poll)
        return future.result()

    def _deadline(self, what: str) -> Callable[[], None]:
        seconds = self.plan.engine_start_timeout_s
        end = time.monotonic() + seconds

        def poll() -> None:
            if time.monotonic() > end:
                raise SetupError(f"{what} after {seconds:g} s", "read engine.log, or raise --engine-start-timeout-s")

        return poll

    def _before_loadgen(self, engine: Engine, work: Coroutine[Any, Any, Any], what: str) -> Any:
        """Run a coroutine on a started engine, and refuse the run if the engine dies or hangs."""
        in_time, watch = self._deadline(what), WarmUpWatch(engine, self.plan.stall_timeout_s)

        def poll() -> None:
            watch.poll()
            in_time()

        try:
            return self._on_loop(work, poll)
        except ExecutionError as error:
            raise SetupError(error.message, error.fix) from error

    # The run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Execute the run; raise on any failure."""
        self._install_hooks()
        self._beat("engine")
        threading.Thread(target=self._run_loop, name="engine-loop", daemon=True).start()
        engine = self._engine = make_engine(self.plan)
        report, dataset = self._start_engine(engine)
        library = SampleLibrary(dataset, self._fail_in_loadgen)
        self._beat("warm-up")
        warm_up_facts, measured = self._before_loadgen(
            engine, warm_up(engine, self.plan, report, dataset.prompts), "the warm-up was not over"
        )
        if measured is not None:
            rows = self.plan.sample_count if self.manifest.asked.get("dataset_path") else None
            self.manifest.trial = write_trial_conf(self.run_dir, self.plan, measured, rows)

        import mlperf_loadgen as lg  # Imported late, so that LoadGen is not open if the engine fails.

        settings = build_settings(lg, self.plan, self.run_dir.user_conf)
        self._record_start(report, warm_up_facts, settings)
        self._request_log = RequestLogWriter(self.run_dir.requests, self.fail)
        self._sut = sut = engine_kind(self.plan.engine).sut_class(self.plan)(
            lg,
            self.loop,
            engine,
            library.prompt,
            self._request_log,
            report_first_token=self.plan.loadgen_scenario != "Offline",
            on_failure=self.fail,
            admission=self._admission(report, settings),
            output_lengths=dataset.output_lengths,
        )
        on_cpu = report.configuration.get("device") == "cpu"
        watch = EngineWatch(engine, sut, self.plan.stall_timeout_s, on_cpu=on_cpu)
        self._tokens_before = engine.generated_tokens() or 0
        self._run_loadgen(lg, settings, sut, library, watch)
        if sut.outstanding:
            raise ExecutionError(f"LoadGen finished with {sut.outstanding} unfinished queries")
        self._request_log.close()
        observed = self.manifest.observed
        observed.cached_prompt_tokens = sut.cached_tokens
        observed.start_stages = self._stages.seconds
        self._record_observed(self._on_loop(engine.observed()))
        if (pool := self._pool()) is not None:
            observed.rejected_connections = pool.rejected_connections
            self.manifest.replicas = pool.record()
        write_manifest(self.run_dir.manifest, self.manifest)
        self._stop_engine(engine)

    def _pool(self) -> "ReplicaPool | None":
        """Return the engine if it consists of replicas."""
        if self.plan.replicas is None:
            return None
        from sut.replicas.pool import ReplicaPool

        return self._engine if isinstance(self._engine, ReplicaPool) else None

    def _start_engine(self, engine: Engine) -> tuple[EngineReport, Dataset]:
        """Start the engine, and read the dataset in a thread at the same time."""
        reading: Future[Dataset] = Future()

        def read() -> None:
            try:
                reading.set_result(_read_dataset(self.plan))
            except BaseException as error:
                self.fail(error)

        threading.Thread(target=read, name="data-set", daemon=True).start()
        report: EngineReport = self._on_loop(engine.start(), self._deadline("the engine was not ready"))
        if report.prefix_caching and not self.plan.engine_options.get("enable_prefix_caching"):
            raise SetupError("the engine runs with prefix caching, which was not requested", "read engine.log")
        self._wait(reading.done)
        return report, reading.result()

    def _record_start(self, report: EngineReport, warm_up_facts: dict[str, Any], settings: Any) -> None:
        """Write the engine, the warm-up and the settings into the manifest, and set the limits of the heartbeat."""
        plan, progress = self.plan, self.progress
        self.manifest.engine = EngineState(
            versions=report.versions, configuration=report.configuration, warm_up=WarmUp.model_validate(warm_up_facts)
        )
        self.manifest.pid = os.getpid()
        self.manifest.status = "running"
        write_manifest(self.run_dir.manifest, self.manifest)
        settings_files = [self.run_dir.user_conf]
        if plan.audit and self.run_dir.audit_config.exists():  # The check after the run finds a missing audit.config.
            settings_files.append(self.run_dir.audit_config)
        size = expected_size(plan, *settings_files)
        progress.expected = size.samples if size is not None else None
        trial = self.manifest.trial
        is_rate_known = trial is not None or not {"target_qps", "user_conf"}.isdisjoint(self.manifest.asked)
        if size is not None and is_rate_known and not plan.audit:
            progress.planned_s = size.expected_s + (trial.seconds if trial else 0.0)
            self._pace = DurationForecast(plan.scenario, size.samples, progress.planned_s)
        progress.min_duration_s = None if plan.mode == "accuracy" else settings.min_duration_ms / 1e3
        # The heartbeat shows p99 latencies, which cannot be compared with limits at another percentile.
        if plan.loadgen_scenario == "Server" and settings.server_target_latency_percentile == PERCENTILE["Server"]:
            progress.ttft_limit_ms = settings.ttft_latency / 1e6
            progress.tpot_limit_ms = settings.tpot_latency / 1e6

    def _record_observed(self, observed: EngineObserved) -> None:
        """Write the observations of the engine into the manifest."""
        self.manifest.observed.engines = [EngineSeen.model_validate(engine) for engine in observed.engines]
        if observed.read_to_loadgen is not None:
            self.manifest.observed.read_to_loadgen = LatenessSummary.model_validate(observed.read_to_loadgen)
        if failures := too_many_failed(self.manifest.observed):
            raise ExecutionError(
                f"{failures}; at most {FAILED_SHARE:.0%} may fail",
                "check the server, and a proxy in front of it, for limits on the time or length of a response",
            )
        self.manifest.notes += observed.notes
        self.manifest.unofficial_reasons += observed.unofficial_reasons
        self.manifest.official = not self.manifest.unofficial_reasons

    def _admission(self, report: EngineReport, settings: Any) -> AdmissionControl:
        if self.plan.concurrency is not None:
            return ClosedLoop(self.plan.concurrency)
        policy = self.plan.admission
        if policy is None:
            return Feed(report.limits)
        return Admission(
            policy=policy.policy,
            prefill_tokens=policy.prefill_tokens or report.limits.step_tokens or ADMISSION_TOKENS,
            queries=policy.queries,
            ttft_limit_ns=settings.ttft_latency,
        )

    def _run_loadgen(self, lg: Any, settings: Any, sut: LoadgenSut, library: SampleLibrary, watch: EngineWatch) -> None:
        """Execute the timed run; record the CPU use of other processes and the lag of the event loop."""
        finished = threading.Event()

        def poll() -> None:
            watch.poll()
            if not sut.issued and time.monotonic() - self._started_s > FIRST_QUERY_TIMEOUT_S:
                raise ExecutionError(
                    f"LoadGen issued no query within {FIRST_QUERY_TIMEOUT_S:.0f} s",
                    "check target_qps in user.conf of the run directory",
                )

        def run_loadgen() -> None:
            qsl_handle = library.construct(lg)
            audit = self.run_dir.audit_config if self.plan.audit else self.run_dir.no_audit_config
            log_settings = build_log_settings(lg, self.plan, self.run_dir.root)
            with sut.handle() as sut_handle:
                lg.StartTestWithLogSettings(sut_handle, qsl_handle, settings, log_settings, str(audit))
            lg.DestroyQSL(qsl_handle)
            finished.set()
            self._wake.set()

        reserve = DiskReserve(self.run_dir.root, RESERVE_BYTES)
        freeze_garbage_collection()
        self._beat("running")
        pool = self._pool()
        replicas = pool.pids_here() if pool is not None else []
        cpu_before = read_cpu(self.manifest.parent_pid, replicas)
        self._lag = lag = LagMeter(self.loop)
        lag.start()
        self._started_s = time.monotonic()
        with reserve:
            threading.Thread(target=run_loadgen, name="loadgen", daemon=True).start()
            self._wait(finished.is_set, poll)
        lag.stop()
        self._beat("closing")
        self._lag = None  # Later heartbeats keep the values recorded here.
        observed = self.manifest.observed
        observed.contention = contention_between(cpu_before, read_cpu(self.manifest.parent_pid, replicas))
        observed.loop_lag = LoopLag.model_validate(self.progress.loop_lag)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _stop_engine(self, engine: Engine) -> None:
        """Ask the engine to stop. The parent ends the remaining process group in any case."""
        future = asyncio.run_coroutine_threadsafe(engine.stop(), self.loop)
        end = time.monotonic() + ENGINE_STOP_TIMEOUT_S
        while not future.done() and time.monotonic() < end:
            self._beat()
            time.sleep(0.05)

    def report_failure(self, error: BaseException) -> int:
        """Write the reason of the failure to progress.json; return the exit code."""
        traceback.print_exception(error)
        if is_disk_full(error):
            error = ExecutionError(f"the disk of {self.run_dir.root} is full", FREE_DISK_SPACE)
        elif not isinstance(error, Ending):
            error = ExecutionError(f"{type(error).__name__}: {error}", "read the error in engine.log")
        elif self.progress.phase == "engine" and (cause := last_error(self.run_dir.engine_log)):
            error.message += f"; engine.log: {cause}"
        self.progress.error = error_record(error)
        self.progress.phase = "failed"
        self.progress.time_ns = time.time_ns()
        write_progress(self.run_dir.progress, self.progress)
        if self._request_log is not None:
            with contextlib.suppress(Exception):
                self._request_log.close()
        return int(error.exit_code)


def _read_dataset(plan: RunPlan) -> Dataset:
    count = plan.sample_count if plan.rows is None else None
    dataset = load_dataset(Path(plan.dataset_path), count=count, checked_sha256=plan.dataset_sha256)
    if dataset.sha256 != plan.dataset_sha256:
        raise SetupError(f"{plan.dataset_path} changed after the run was planned", "start the run again")
    return dataset if plan.rows is None else dataset.select(plan.rows)


def main(run_dir: RunDir) -> NoReturn:
    """Execute the run and exit at once, because destructors must not run on open LoadGen state."""
    run = RunProcess(run_dir)
    code = int(ExitCode.OK)
    try:
        run.run()
        run._beat("done")
    except BaseException as error:
        code = int(ExitCode.FAILED)
        code = run.report_failure(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
