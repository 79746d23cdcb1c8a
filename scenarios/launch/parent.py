"""The parent process of one run. It starts the process of the run, and checks the files of the run.

The parent relies on files, not on exit codes: a run is done when LoadGen's logs are complete and agree with the
request log.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from runs.errors import Ending, ExecutionError
from runs.files.reserve import DiskReserve
from runs.processes.interrupts import critical, if_abandoned, raise_if_interrupted
from runs.record.layout import RunDir
from runs.record.new_run import free_directory, note_on_foreign_files
from runs.record.progress import Progress, read_progress
from scenarios.console import say
from scenarios.launch.run_config import RunConfig
from scenarios.launch.run_page import write_run_page
from scenarios.launch.supervisor import NO_ENGINE, EarlyRun
from scenarios.live.display import Display
from scenarios.live.run_view import RunFollower
from scenarios.verbosity import is_verbose
from sut.engines import engine_kind

if TYPE_CHECKING:
    from scenarios.launch.manifest_writer import RunOutcome
    from scenarios.launch.plan import PreparedRun
    from sut.replicas.kept_engine import EngineKeeper

Previous = Callable[[], str | None]  # digest of the preceding attestation of the campaign


RESERVE_BYTES = 4 << 20  # for scores, result, manifest, attestation and page
KEPT_REASON = "the engine serves multiple runs"


@contextlib.contextmanager
def engine_keeper(config: RunConfig, folder: Path) -> Iterator["EngineKeeper | None"]:
    """Keep one engine for multiple runs within the block; None if the engine is a server or on a cluster.

    Args:
        folder: Directory for the output of the engine.
    """
    if engine_kind(config.engine).own_processes or config.cluster is not None:
        yield None
        return
    from sut.replicas.kept_engine import EngineKeeper  # Most runs keep no engine.

    with EngineKeeper(folder / "engine.log") as keeper:
        yield keeper


def _early_run(config: RunConfig, keeper: "EngineKeeper | None") -> EarlyRun:
    kind = engine_kind(config.engine)
    if keeper is not None or config.has_replicas or kind.own_processes:
        return EarlyRun(NO_ENGINE, {})
    # In SingleStream, the core of a CPU engine is in the run's process.
    environment = kind.early_environment(config, light=config.is_light)
    return EarlyRun(kind.name, environment, beside=config.scenario != "SingleStream")


@contextlib.contextmanager
def _failure_in_manifest(run: "PreparedRun") -> Iterator[None]:
    """Write a failure within the block into the run's manifest."""
    from scenarios.launch.manifest_writer import close_failed

    with contextlib.ExitStack() as stack, if_abandoned(partial(close_failed, run)):
        try:
            yield
        except BaseException as error:
            stack.enter_context(critical())  # Hold signals, so that the manifest is closed only once.
            ending = error if isinstance(error, Ending) else ExecutionError(f"{type(error).__name__}: {error}")
            close_failed(run, ending)
            raise


def _display(run: "PreparedRun", console: Console, started_s: float, context: str) -> Display:
    name = run.plan.scenario + (" accuracy" if run.plan.mode == "accuracy" else "")
    followed = run.run_dir.engine_log if is_verbose() else None
    return Display(console, RunFollower(name, context), started_s, followed=followed)


def _run(process: EarlyRun, run: "PreparedRun", on_progress: Callable[[Progress], None]) -> None:
    """Execute the run in its process, and pass on its heartbeats. After the last one, the run is verified."""
    engine = NO_ENGINE if run.plan.replicas else run.plan.engine
    process.run(run.run_dir, engine, run.plan.environment, on_progress)
    if (last := read_progress(run.run_dir.progress)) is not None:
        on_progress(last)


def execute_run(
    config: RunConfig,
    console: Console,
    *,
    prepared: Callable[["PreparedRun"], None] = lambda _: None,
    watch: Callable[[Progress], None] = lambda _: None,
    previous: Previous = lambda: None,
    keeper: "EngineKeeper | None" = None,
    rows: Sequence[int] | None = None,
    context: str = "",
) -> "RunOutcome":
    """Prepare, execute and check one run, and print its closing summary.

    Args:
        console: Console for progress and summary.
        prepared: Called with the checked run before it starts.
        watch: Called with each heartbeat; raises to end the run.
        previous: Returns the digest of the preceding attestation of the campaign.
        keeper: Keeps the engine for several runs, which are not eligible for submission.
        rows: Rows of the dataset that the run uses. Default: all rows.
        context: The run as a part of a command with multiple runs, for the display.

    Raises:
        HarnessError: If the run was refused or did not finish; manifest.json and result.json state the reason.
        Interrupted: If a signal ends the run.
    """
    started_s = time.monotonic()
    with _early_run(config, keeper) as process:
        from scenarios.launch.cpu_times import ForeignLoad

        load = ForeignLoad()
        # Import these modules while the run's process imports the engine's code, which takes longer.
        from runs.attestation.signing_key import load_signer
        from runs.attestation.statements import attest_run
        from scenarios.launch import manifest_writer
        from scenarios.launch.plan import prepare
        from scenarios.launch.summary import announce, closing_summary

        raise_if_interrupted()
        run = prepare(config, partial(say, console), cores_taken=load.cores_taken, rows=rows)
        if keeper is not None:
            run.plan = keeper.take(run.plan)
            run.unofficial_reasons.append(KEPT_REASON)
        signer = load_signer(config.signing_key)
        if config.output_log_dir is None:
            run.run_dir = RunDir(free_directory(run.run_dir.root))
        prepared(run)
        if foreign := note_on_foreign_files(run.run_dir):
            run.hints.append(foreign)
            run.notes.append(foreign)
        announce(run, console)
        raise_if_interrupted()
        with _display(run, console, started_s, context) as display, contextlib.ExitStack() as record:

            def on_progress(progress: Progress) -> None:
                display(progress)
                watch(progress)

            with critical():
                manifest_writer.open_manifest(run)
                record.enter_context(_failure_in_manifest(run))
                reserve = record.enter_context(DiskReserve(run.run_dir.root, RESERVE_BYTES))
            hashing = manifest_writer.start_hashing(run)
            _run(process, run, on_progress)
            reserve.release()
            manifest, outcome = manifest_writer.judge_run_files(run, hashing, console, display.scored)
            raise_if_interrupted()
            with critical():  # A signal must not separate the manifest with status finished from its attestation.
                manifest_writer.close_manifest(run, manifest, "finished", outcome.exit_code)
                record.close()
                seal_sha256 = attest_run(run.run_dir, manifest, signer, previous())
            raise_if_interrupted()
            page = write_run_page(run.run_dir)
        closing_summary(console, run, manifest, outcome.result, outcome.accuracy, seal_sha256, page)
    return outcome
