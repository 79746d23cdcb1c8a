"""The execution of an audit: its runs one after another, then its verdict from their files.

This module is independent of the individual audits; `compliance.audits` defines their runs and checks.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from compliance.audits.audit_registry import runs_in_turn, write_audit
from compliance.audits.base import EXISTING, AuditResult, AuditTest, RunSpec
from compliance.audits.discovery import find_audit
from compliance.audits.options import AuditOptions, AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from qsl.model_files import special_ids
from runs.benchmark import LOADGEN_SCENARIO, SCENARIOS, Scenario
from runs.errors import ExecutionError, ExitCode, HarnessError, InputError, SetupError
from runs.files.writing import write_atomic
from runs.harness import PROGRAM
from runs.record.group_end import NAME as ENDED
from runs.record.group_end import record_end
from runs.record.layout import RunDir, audit_record
from runs.record.liveness import unfinished
from runs.record.manifest import RunPlan
from runs.record.new_run import never_began
from runs.what_is import what_is
from runs.wording import counted, duration
from scenarios.console import say
from scenarios.launch.forecast import expected_count
from scenarios.launch.loadgen_conf import refuse_missing_rate
from scenarios.launch.parent import Previous, engine_keeper, execute_run
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.run_config import RunConfig, make_config, without_trial
from sut.engines import engine_kind

if TYPE_CHECKING:
    from sut.replicas.kept_engine import EngineKeeper


def run_audit(
    options: AuditOptions,
    runs: dict[str, Any],
    console: Console,
    *,
    dry_run: bool = False,
    done: Callable[[Path], None] = lambda _: None,
    previous: Previous = lambda: None,
) -> ExitCode:
    """Execute an audit or check existing runs, and write and print the verdict.

    Args:
        runs: Options of its runs, as fields of `RunConfig`.
        console: Console for progress and verdict.
        done: Called with the file of the verdict.
        dry_run: Check everything and show the first run; start and write nothing.
        previous: Returns the digest of the preceding attestation of the campaign.

    Returns:
        OK for PASS, NEGATIVE for FAIL.

    Raises:
        HarnessError: If there is no verdict, because of bad input, a failed run or its files.
    """
    tell = partial(say, console)
    test = find_audit(options.test)
    existing = options.ref is not None and options.run is not None
    if existing and dry_run:
        raise InputError("--dry-run: no effect with --ref and --run", "remove --dry-run")
    config = None if existing else make_config(without_trial(runs))
    name = "existing" if config is None else config.scenario
    root = runs.get("output_log_dir") or Path("output") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-audit"
    folder = Path(root) / "audit" / test.name
    _refuse_existing(folder)
    if config is None:
        request, existing_runs = _existing(test, options)
        return _judge(test, request, existing_runs, folder, tell, done)
    request, first = _planned(test, options, config, folder, tell)
    if dry_run:
        _show_plan(test, request, first, folder, tell)
        done(audit_record(folder, test.name))
        return ExitCode.OK
    _make(folder)

    def judged() -> ExitCode:
        with contextlib.ExitStack() as at_the_end:
            keeper = at_the_end.enter_context(engine_keeper(config, folder)) if test.keeps_engine else None
            finish = partial(_run_one, config=config, folder=folder, console=console, previous=previous, keeper=keeper)
            finished = runs_in_turn(test, request, finish)
        return _judge(test, request, finished, folder, tell, done)

    return record_end(folder, judged)


def _judge(
    test: AuditTest[Any],
    request: AuditRequest[Any],
    finished: list[RunArtifacts],
    folder: Path,
    tell: Callable[[str], None],
    done: Callable[[Path], None],
) -> ExitCode:
    """Write and print the verdict on finished runs."""
    try:
        result = test.verify(request, finished)
    except HarnessError:
        raise
    except Exception as error:
        reason = f"{test.name}: no verdict, because the files of a run are unreadable: {error!r}"
        raise ExecutionError(reason, f"verify the runs with `{PROGRAM} verify DIR`") from error
    _make(folder)
    write_audit(folder, result)
    done(audit_record(folder, result.test))
    _print(tell, result, folder)
    return ExitCode.OK if result.passed else ExitCode.NEGATIVE


def _planned(
    test: AuditTest[Any], options: AuditOptions, config: RunConfig, folder: Path, tell: Callable[[str], None]
) -> tuple[AuditRequest[Any], PreparedRun]:
    """Check once what every run needs, before the first run starts."""
    first = prepare(_run_config(config, RunSpec("check"), folder, None), tell, rate_follows=True)
    request = audit_request(options, config.scenario, first)
    test.validate(request)
    if test.needs_generated_ids:
        _refuse_text(test.name, first.plan)
    refuse_missing_rates(first, test.runs(request))
    return request, first


def _refuse_text(audit: str, plan: RunPlan) -> None:
    """Refuse an engine without generated token IDs, before the runs of an audit that reads them."""
    if reason := engine_kind(plan.engine).lacks_generated_ids(plan):
        raise SetupError(f"{audit} needs generated token IDs, and {reason}", "audit a server that returns token IDs")


def _show_plan(
    test: AuditTest[Any], request: AuditRequest[Any], run: PreparedRun, folder: Path, tell: Callable[[str], None]
) -> None:
    first = test.runs(request)[0]
    count = expected_count(run, first.mode, dict(first.settings))
    tell(f"{test.name}, {request.scenario}: {test.summary}")
    tell(f"  first run, {first.label}: {counted(count.samples, 'sample')}, about {duration(count.expected_s)}")
    for key, number in first.settings.items():
        tell(f"    {key} = {number}")
    least, most = test.run_counts(request)
    runs = counted(most, "run") if least == most else f"{least} to {most} runs, depending on the first runs"
    tell(f"  {runs}, written to {folder}")
    for hint in run.hints:
        tell(f"  note: {hint}")
    tell("dry run: nothing was started or written")


def _run_one(
    spec: RunSpec, config: RunConfig, folder: Path, console: Console, previous: Previous, keeper: "EngineKeeper | None"
) -> RunArtifacts:
    conf: Path | None = None
    if (text := spec.render()) is not None:
        conf = folder / f"{spec.label}.audit.config"
        write_atomic(conf, text)
    run_config = _run_config(config, spec, folder, conf)
    context = f"audit run {spec.label}"
    say(console, f"\n{context}")
    if keeper is not None:
        keeper.use(spec.engine)
    execute_run(run_config, console, previous=previous, keeper=keeper, rows=spec.rows, context=context)
    run = RunArtifacts(RunDir(folder / spec.label), spec=spec)
    run.check_engaged()
    return run


def _run_config(config: RunConfig, spec: RunSpec, folder: Path, conf: Path | None) -> RunConfig:
    """Return the user's configuration with the run's mode, directory and audit.config."""
    values = config.model_dump(exclude_unset=True)
    values |= {"output_log_dir": folder / spec.label, "accuracy": spec.mode == "accuracy"}
    if conf is not None:
        values["audit_conf"] = conf
    return make_config(values)


def refuse_missing_rates(run: PreparedRun, specs: Sequence[RunSpec]) -> None:
    """Refuse runs of an audit at LoadGen's default rate; an audit without a minimum duration needs no rate.

    Raises:
        InputError: If user.conf has no rate.
    """
    for spec in specs:
        above = dict(spec.settings)
        refuse_missing_rate(run.user_conf, run.conf_path, run.benchmark, run.plan.scenario, spec.mode, above)


def audit_request(options: AuditOptions, scenario: Scenario, run: PreparedRun) -> AuditRequest[Any]:
    ids = special_ids(run.model)
    return AuditRequest(
        scenario=scenario,
        loadgen_key=run.plan.loadgen_key,
        loaded_count=min(run.plan.sample_count, run.benchmark.performance_samples),
        options=options,
        starts_engine=run.plan.starts_engine,
        stop_ids=ids.stop,
        bos_ids=ids.begin,
        special_ids=ids.neutral,
    )


def _existing(test: AuditTest[Any], options: AuditOptions) -> tuple[AuditRequest[Any], list[RunArtifacts]]:
    """Return the request and the files of two existing runs, from this harness or from LoadGen's logs alone."""
    assert test.existing is not None  # `load_audit` refuses other audits.
    finished = []
    for label, mode in zip(EXISTING, test.existing, strict=True):
        path = getattr(options, label)
        directory = RunDir(path)
        if not directory.summary.is_file():
            raise what_is(path).refused(f"a directory with {directory.summary.name}", f"--{label}")
        run = RunArtifacts(directory, spec=RunSpec(label, mode))
        if run.manifest is not None and run.manifest.status != "finished":
            raise ExecutionError(f"--{label} {path}: {unfinished(run.manifest)}", "repeat this run")
        finished.append(run)
    # The scenario is only recorded, because LoadGen's logs do not distinguish Interactive from Server.
    logged_scenario = finished[1].detail.scenario if finished[1].dir.detail.exists() else ""
    scenario: Scenario = next((name for name in SCENARIOS if LOADGEN_SCENARIO[name] == logged_scenario), "Offline")
    request = AuditRequest(scenario=scenario, loadgen_key="", loaded_count=10**9, options=options)
    test.validate(request)
    return request, finished


def _refuse_existing(folder: Path) -> None:
    """Refuse a directory with an audit, unless its first run never started."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    own_names = (".audit.config", ENDED)
    begun = [path for path in entries if not (never_began(RunDir(path)) or path.name.endswith(own_names))]
    if begun or (folder.exists() and not entries):
        raise SetupError(
            f"{folder} already contains an audit", "give a new --output-log-dir; audits are never overwritten"
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"audit directory {folder} cannot be created: {error.strerror}", "give another --output-log-dir"
        ) from error


def _print(tell: Callable[[str], None], result: AuditResult, folder: Path) -> None:
    kind = "official" if result.official else "of this harness"
    required = "required" if result.required else "not required for this benchmark"
    tell("")
    tell(f"audit {result.test} ({kind}, {required}): {'PASS' if result.passed else 'FAIL'}")
    tell(f"  {result.reason}")
    for check in result.findings:
        tell(f"  {check}")
    tell(f"  rule: {result.rule}")
    names = [audit_record(folder, result.test).name, result.text_name, *result.copies]
    tell(f"  written to {folder}: {', '.join(names)}")
