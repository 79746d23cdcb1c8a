"""One leg from the parent's side: start its process, check and record it, let it run, judge its files.

The parent believes files, not exit codes: a leg is done when LoadGen's logs are complete, agree with our own record
of every request, and say so.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from runs.errors import Ending, ExecutionError
from runs.interrupts import check, critical, if_abandoned
from runs.record.layout import RunDir
from runs.record.new_run import free_directory
from runs.record.progress import Progress
from scenarios.console import say
from scenarios.leg.config import RunConfig
from scenarios.leg.display import Display
from scenarios.leg.run_page import write_run_page
from scenarios.leg.supervisor import NO_ENGINE, EarlyLeg
from scenarios.verbosity import is_verbose
from sut.engines import engine_kind

if TYPE_CHECKING:
    from scenarios.leg.plan import PreparedLeg
    from scenarios.leg.run_record import LegOutcome

Previous = Callable[[], str | None]  # the digest of the statement that the same campaign wrote before


def _early_leg(config: RunConfig) -> EarlyLeg:
    kind = engine_kind(config.engine)
    if config.has_replicas or kind.own_processes:
        return EarlyLeg(NO_ENGINE, {})
    # In SingleStream the core of an engine on a CPU is in the run's own process.
    environment = kind.early_environment(config, light=config.is_light)
    return EarlyLeg(kind.name, environment, beside=config.scenario != "SingleStream")


@contextlib.contextmanager
def _failure_on_record(leg: "PreparedLeg") -> Iterator[None]:
    """Within: a failure is also written into the leg's record."""
    from scenarios.leg.run_record import close_failed

    with contextlib.ExitStack() as held, if_abandoned(partial(close_failed, leg)):
        try:
            yield
        except BaseException as error:
            held.enter_context(critical())  # until it is not registered any more: the record is closed once
            known = error if isinstance(error, Ending) else ExecutionError(f"{type(error).__name__}: {error}")
            close_failed(leg, known)
            raise


def _run(
    process: EarlyLeg, leg: "PreparedLeg", console: Console, started_s: float, watch: Callable[[Progress], None]
) -> None:
    """Let the process run the leg, and show its progress."""
    name = leg.plan.scenario + (" accuracy" if leg.plan.mode == "accuracy" else "")
    followed = leg.run_dir.engine_log if is_verbose() else None
    with Display(console, name, started_s, followed) as display:

        def on_progress(progress: Progress) -> None:
            display(progress)
            watch(progress)

        engine = NO_ENGINE if leg.plan.replicas else leg.plan.engine
        process.run(leg.run_dir, engine, leg.plan.environment, on_progress)


def run_leg(
    config: RunConfig,
    console: Console,
    *,
    prepared: Callable[["PreparedLeg"], None] = lambda _: None,
    watch: Callable[[Progress], None] = lambda _: None,
    previous: Previous = lambda: None,
) -> "LegOutcome":
    """Prepare, run and judge one leg, and print its closing summary.

    Args:
        console: for progress and summary.
        prepared: called with the checked leg before it runs.
        watch: called with each heartbeat; ends the leg by raising.
        previous: the digest of the statement that the same campaign wrote before.

    Raises:
        HarnessError: the leg was refused, or did not run to its end; the run directory's manifest and result say why.
        Interrupted: by a signal.
    """
    started_s = time.monotonic()
    with _early_leg(config) as process:
        # Imported only here, while the process imports the engine's code, which takes longer.
        from runs.record.signing_key import load_signer
        from runs.record.statements import attest
        from scenarios.leg import run_record
        from scenarios.leg.plan import prepare
        from scenarios.leg.summary import announce, closing_summary

        check()
        leg = prepare(config, partial(say, console))
        signer = load_signer(config.signing_key)
        if config.output_log_dir is None:
            leg.run_dir = RunDir(free_directory(leg.run_dir.root))
        prepared(leg)
        announce(leg, console)
        check()
        with contextlib.ExitStack() as record:
            with critical():
                run_record.open_record(leg)
                record.enter_context(_failure_on_record(leg))
            hashing = run_record.start_hashing(leg)
            _run(process, leg, console, started_s, watch)
            manifest, outcome = run_record.judge(leg, hashing, console)
            check()
            with critical():  # a record that says finished has its seal
                run_record.close_record(leg, manifest, "finished", outcome.exit_code)
                seal_sha256 = attest(
                    leg.run_dir,
                    signer,
                    record_version=manifest.record,
                    harness_commit=manifest.observed.harness.git_commit,
                    previous=previous(),
                )
                record.close()
        check()
        page = write_run_page(leg.run_dir)
        closing_summary(console, leg, manifest, outcome.result, outcome.accuracy, seal_sha256, page)
    return outcome
