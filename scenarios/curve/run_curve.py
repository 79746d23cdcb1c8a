"""The execution of a curve: preflight, probes, points, files and tree. Each state follows from files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from compliance.mlperf_endpoints.curve_rules import DEDICATED
from compliance.trees.tree import REHEARSAL_MARK
from qsl.tokenizers import load_tokenizer
from runs.errors import ExecutionError, ExitCode, InputError, SetupError
from runs.files.writing import write_atomic, write_json
from runs.processes.interrupts import raise_if_interrupted
from runs.wording import counted, four_digits, shortened_list
from scenarios.console import say
from scenarios.curve.capacity import ProbeFailed
from scenarios.curve.client_config import ClientForm, PlannedLoad, accepted_release, client_config, point_settings
from scenarios.curve.client_process import SHARED_MEMORY, Watch, end_recorded_client, run_client
from scenarios.curve.curve_config import CurveConfig
from scenarios.curve.curve_dir import VERIFIED, CurveDir, read_verified
from scenarios.curve.curve_plan import FIRST_CROP, MIN_WINDOW_PASSES, WINDOW, CurvePlan, PlannedPoint, passes_for
from scenarios.curve.curve_progress import LiveProgress
from scenarios.curve.curve_servers import CurveServers
from scenarios.curve.examined_run import examine_point, examine_probe
from scenarios.curve.model_seed import CHAT_API, accepted_model_seed
from scenarios.curve.plan_table import TITLES, gpu_hours, minutes, plan_lines, plan_rows
from scenarios.curve.planned_curve import DONE, FIX_CHANGED, PlannedCurve
from scenarios.curve.probed_levels import WAVES, ProbedLevels, probe_levels
from scenarios.discarded import set_aside
from scenarios.live.waiting import waiting
from scenarios.resumed import resumable

ATTEMPTS = 2  # runs of a point whose checks fail
MAX_REASONS = 3  # reasons of a point that are printed
SPACE_MARGIN = 1.2  # factor on the estimated size of the events
_FIX_SERVER = "start the server, then this command"
_FIX_PROBE = "correct the server or the configuration"


def run_curve(
    curve: CurveConfig, console: Console, *, probe: bool, until: str, restart_changed: bool, dry_run: bool
) -> ExitCode:
    """Run a curve, or continue it.

    Args:
        probe: Measure rates even if the configuration gives all concurrencies.
        until: `plan`, `points` or `tree`.
        dry_run: Show the plan; start and write nothing.

    Raises:
        InputError: If settings of finished points differ.
        SetupError: If the server, the client, the disk or another process prevents the start.
        ExecutionError: If the server died or was idle.
    """
    run = _CurveRun(curve, console, probe=probe, restart_changed=restart_changed)
    if dry_run:
        run.show_plan()
        return ExitCode.OK
    lock = CurveDir(curve.root).lock
    return resumable(lock, "curve", lambda text: say(console, text), lambda: run.go(until))


class _CurveRun:
    """One call of the command."""

    def __init__(self, curve: CurveConfig, console: Console, *, probe: bool, restart_changed: bool) -> None:
        self._curve, self._place, self._console = curve, CurveDir(curve.root), console
        self._probe, self._restart_changed = probe, restart_changed
        self._planned, self._servers = PlannedCurve(curve, self._place), CurveServers(curve)
        self._failed: dict[str, list[str]] = {}
        self._stops = False  # True: the model gives wrong responses, so no further point starts

    # Plan --------------------------------------------------------------------------------------------------------

    def show_plan(self) -> None:
        """Show the table of the points, from the files of earlier calls and the configuration."""
        self._planned.read()
        plan = self._planned.plan()
        if plan is None:
            self._say("points unknown: c_max is missing; measure it with --probe")
        else:
            self._print_table(plan)
        for note in self._planned.notes:
            self._say(f"note: {note}")
        for line in plan_lines(self._curve, plan, probed="times from earlier probes and points"):
            self._say(line)

    # Work --------------------------------------------------------------------------------------------------------

    def go(self, until: str) -> ExitCode:
        """Do the missing work, up to a step."""
        curve, place = self._curve, self._place
        resolved = yaml.safe_dump(curve.options.model_dump(mode="json"), sort_keys=False)
        write_atomic(place.config, resolved)
        if curve.is_rehearsal:
            write_atomic(place.rehearsal, REHEARSAL_MARK + "\n")
        self._end_earlier_runs()
        self._preflight()
        planned = self._planned
        planned.read()
        if planned.changed_keys and planned.records() and not self._restart_changed:
            changes = "\n  ".join(planned.changed_keys)
            raise InputError(f"finished points have another configuration:\n  {changes}", FIX_CHANGED)
        if planned.levels is None and (self._probe or curve.options.concurrencies is None):
            planned.levels = self._probed()
        plan = planned.complete_plan()
        self._refuse_changed(plan)
        planned.write(plan)
        self._write_page(plan)
        self._print_table(plan)
        for note in (*self._planned.notes, *self._notes()):
            self._say(f"note: {note}")
        for line in plan_lines(curve, plan, probed="times from probes and finished points"):
            self._say(line)
        self._refuse_budget(plan)
        if until == "plan":
            return ExitCode.OK
        if not self._run_points(plan):
            return ExitCode.NEGATIVE
        if until == "points":
            return ExitCode.OK
        from scenarios.curve.curve_tree import build_tree

        return build_tree(curve, place, planned.complete_plan(), planned.records(), self._say)

    def _end_earlier_runs(self) -> None:
        """End the client of a killed command, and move unfinished runs away."""
        unfinished = self._place.unfinished()
        for folder in unfinished:
            end_recorded_client(folder)
        if unfinished:
            moved = set_aside(unfinished, self._place.discarded)
            self._say(f"{counted(len(unfinished), 'unfinished run')} moved to {moved}")

    def _preflight(self) -> None:
        """Check the server, the tokenizer and the client before accelerator time is spent."""
        curve = self._curve
        with waiting(self._console, "checking the server and the client"):
            self._server = self._servers.common_facts()
            self._planned.identity = {"model": self._server.model, "server_version": self._server.version}
            load_tokenizer(curve.tokenizer)
            seed = accepted_model_seed(curve)
            self._form = ClientForm(accepted_release(curve, seed), seed)
            self._planned.form = self._form

    def _notes(self) -> Iterator[str]:
        if self._server.prefix_caching:
            yield "the server caches prefixes, and repeated passes over the dataset can hit this cache (§2.9.5)"
        published = self._curve.seed_set.seeds["model_seed"]
        if self._form.model_seed is None:
            api_type = self._curve.options.api_type
            yield f"requests of api_type {api_type} have no seed; only those of {CHAT_API} have: point.yaml declares it"
        elif self._form.model_seed != published:
            yield f"model_seed {published} is sent as {self._form.model_seed}, the signed number with the same 64 bits"
        yield "the client samples without replacement and salts no performance prompt; §6.5 and §2.9.5.1 ask for both"

    # Probes ------------------------------------------------------------------------------------------------------

    def _probed(self) -> ProbedLevels:
        """Measure the concurrencies that the configuration lacks, or all that it gives."""
        levels = sorted(set(self._curve.options.concurrencies or ()))
        if levels:
            return ProbedLevels(levels[0], levels[-1], [], {level: self._measured_rate(level) for level in levels})
        with _failed_probe_as_error():
            return probe_levels(self._curve, self._run_probe)

    def _measured_rate(self, concurrency: int) -> float:
        """Run one probe; return its rate in samples/s."""
        with _failed_probe_as_error():
            return self._run_probe(concurrency, WAVES * concurrency, 1)

    def _run_probe(self, concurrency: int, samples: int, number: int) -> float:
        """Run a probe, or read the earlier one with equal settings and no failed samples; return its rate.

        Raises:
            ProbeFailed: If samples failed.
            ExecutionError: If the server or the client failed.
        """
        folder, load = self._place.probe(concurrency, number), PlannedLoad(concurrency, samples)
        name = f"probe {concurrency:,}"
        settings = point_settings(client_config(self._curve, self._form, load, folder))
        if (record := read_verified(folder)) is not None:
            if "rate" in record and record["settings"] == settings and record["identity"] == self._planned.identity:
                return float(record["rate"])
            set_aside([folder], self._place.discarded)
        self._refuse_space(samples, name)
        if reason := self._client(folder, load, name, tolerates_errors=True):
            raise ExecutionError(f"{name}: {reason}", f"read {folder}")
        record = examine_probe(folder, load, settings, self._planned.identity)
        if "rate" in record:
            self._say(f"{name}: {four_digits(record['rate'])} samples/s ({samples:,} samples)")
            return float(record["rate"])
        if fault := self._servers.fault():
            raise ExecutionError(f"{name}: {fault}", _FIX_SERVER)
        raise ProbeFailed(f"{record['failed']} samples failed at concurrency {concurrency:,}")

    def _client(self, folder: Path, load: PlannedLoad, name: str, *, tolerates_errors: bool = False) -> str:
        """Run the client, and show its progress. After an error or a signal, the directory moves to discarded/."""
        config = client_config(self._curve, self._form, load, folder)
        try:
            with LiveProgress(self._place, name, load.samples, self._console) as progress:
                watch = Watch(self._servers.fault, progress.show, tolerates_errors)
                return run_client(self._curve.client, config, load.mode, folder, watch)
        except BaseException:
            if folder.exists():
                set_aside([folder], self._place.discarded)
            raise

    # Points ------------------------------------------------------------------------------------------------------

    def _refuse_changed(self, plan: CurvePlan) -> None:
        """Refuse finished points with other settings, or move them away."""
        changes = self._planned.changes(plan)
        if not changes:
            return
        listed = "\n".join(f"  {text}" for texts in changes.values() for text in texts)
        text = f"finished points have other settings ({len(changes)}):\n{listed}"
        if not self._restart_changed:
            raise InputError(text, FIX_CHANGED)
        moved = set_aside([self._place.point(name) for name in changes], self._place.discarded)
        self._say(f"{text}\nmoved to {moved}")

    def _refuse_budget(self, plan: CurvePlan) -> None:
        limit, hours = self._curve.options.budget_hours, gpu_hours(self._curve, list(plan.points))
        if limit is not None and hours is not None and hours > limit:
            raise InputError(
                f"{self._curve.file}: budget_hours {limit:g}: the curve needs {hours:.1f} GPU hours",
                "raise budget_hours, or give fewer points",
            )

    def _refuse_space(self, samples: int, name: str) -> None:
        """Refuse to start a run whose events do not fit."""
        needed = samples * self._planned.event_bytes() * SPACE_MARGIN
        for path in (self._place.root, SHARED_MEMORY):
            if path.is_dir() and (free := shutil.disk_usage(path).free) < needed:
                raise SetupError(
                    f"{path}: {free / 1e9:.1f} GB free; {name} may need {needed / 1e9:.1f} GB", "free disk space"
                )

    def _run_points(self, plan: CurvePlan) -> bool:
        """Run the missing points; return whether all are done."""
        names = [point.name for point in plan.points]
        for name in names:
            raise_if_interrupted()
            current = self._planned.complete_plan()  # the rates of finished points change the passes of the next ones
            point = next(planned for planned in current.points if planned.name == name)
            if self._planned.states(current)[name] == DONE:
                continue
            if not self._run_point(point, is_first=name == names[0]) and self._stops:
                self._say(f"{name}: accuracy below its target, so no other point starts")
                return False
        final = self._planned.complete_plan()
        self._planned.write(final)
        missing = [name for name, state in self._planned.states(final).items() if state != DONE]
        for name in missing:
            reasons = self._failed.get(name, ["to do"])
            self._say(f"missing: {name}: {shortened_list(reasons, MAX_REASONS)}")
        return not missing

    def _run_point(self, point: PlannedPoint, *, is_first: bool) -> bool:
        """Run a point, at most twice; return whether its checks passed.

        Args:
            is_first: True if wrong accuracy at this point stops the curve.
        """
        passes = point.passes or self._first_passes(point)
        for attempt in range(1, ATTEMPTS + 1):
            load = self._planned.load(point, passes)
            expected = "" if point.seconds is None else f", about {minutes(point.seconds)}"
            name = f"{point.name} (concurrency {point.concurrency:,}, {point.role})"
            self._say(f"{name}: {load.samples:,} samples{expected}")
            self._refuse_space(load.samples, point.name)
            folder = self._place.point(point.name)
            reason = self._client(folder, load, point.name)
            record = self._examined(folder, load, point)
            reasons = [reason] if reason else list(record["reasons"])
            longer = 0 if reasons else self._longer(point, passes, record, attempt)
            if not reasons and not longer:
                write_json(folder / VERIFIED, record)
                self._say(f"{point.name}: done, {four_digits(record['rate'])} samples/s{_steady_text(record)}")
                self._write_page(self._planned.complete_plan())
                return True
            reasons = reasons or [f"no steady-state window is long enough; repeated with {longer} passes"]
            write_json(folder / VERIFIED, record | {"reasons": reasons})
            moved = set_aside([folder], self._place.discarded)
            self._say(f"{point.name} does not count: {shortened_list(reasons, MAX_REASONS)}; moved to {moved}")
            self._failed[point.name] = reasons
            if not longer and (fault := self._servers.fault()):
                raise ExecutionError(fault, _FIX_SERVER)
            passes = longer or passes
            if is_first and record["accuracy_failed"]:
                self._stops = True
                return False
        return False

    def _first_passes(self, point: PlannedPoint) -> int:
        """Return the passes of a point whose rate is unknown, after a probe of it."""
        rate = self._measured_rate(point.concurrency)
        self._planned.levels = self._planned.levels or ProbedLevels(point.concurrency, point.concurrency)
        self._planned.levels.rates[point.concurrency] = rate
        return (
            next(planned.passes for planned in self._planned.complete_plan().points if planned.name == point.name) or 1
        )

    def _examined(self, folder: Path, load: PlannedLoad, point: PlannedPoint) -> dict[str, Any]:
        config = client_config(self._curve, self._form, load, folder)
        git_sha = next((record["identity"]["git_sha"] for record in self._planned.records().values()), None)
        identity = {**self._planned.identity, "git_sha": git_sha}
        with waiting(self._console, f"{point.name}: verifying"):
            record = examine_point(self._curve, folder, load, config, identity)
        offline = DEDICATED if load.is_offline else ""
        return record | {"concurrency": point.concurrency, "offline": offline, "form": asdict(self._form)}

    def _longer(self, point: PlannedPoint, passes: int, record: dict[str, Any], attempt: int) -> int:
        """Return the passes of a repetition, because the steady-state window is too short; 0 if none is needed."""
        steady = record["steady_state"]
        if attempt == ATTEMPTS or self._curve.is_rehearsal or self._curve.options.basis != WINDOW or steady is None:
            return 0
        if steady["status"] == "windowable":
            return 0
        longer = passes_for(
            point.required_s, record["rate"], self._curve.rows, WINDOW, record["crop"] or FIRST_CROP,
            record["window_passes"] or MIN_WINDOW_PASSES,
        )  # fmt: skip
        return 1 + max(longer, passes)

    # Output ------------------------------------------------------------------------------------------------------

    def _write_page(self, plan: CurvePlan) -> None:
        """Write report.html with the present state of each point."""
        from compliance.report.curve_page import curve_page, page_row  # importing matplotlib takes a moment

        records, states = self._planned.records(), self._planned.states(plan)
        accelerators = self._curve.options.accelerators
        rows = [
            page_row(asdict(point), point.role, states[point.name], records.get(point.name), accelerators)
            for point in plan.points
        ]
        levels = self._planned.levels
        probes = {} if levels is None else levels.rates
        title = f"Endpoints curve of {self._curve.options.model}"
        title += " (rehearsal)" if self._curve.is_rehearsal else ""
        write_atomic(
            self._place.page, curve_page(title, rows, plan.bounds, probes, [*self._planned.notes, *self._notes()])
        )

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _print_table(self, plan: CurvePlan) -> None:
        table = Table(box=box.SIMPLE if self._console.is_terminal else None, pad_edge=False, show_edge=False)
        for title in TITLES:
            is_text = title in ("point", "region", "accuracy", "state")
            table.add_column(title, justify="left" if is_text else "right", no_wrap=True)
        for row in plan_rows(self._curve, plan, self._planned.states(plan), self._planned.event_bytes()):
            table.add_row(*row)
        self._console.print(table)


def _steady_text(record: dict[str, Any]) -> str:
    steady = record["steady_state"]
    return "" if steady is None else f", {steady['status']}, {steady['verdict']}"


@contextmanager
def _failed_probe_as_error() -> Iterator[None]:
    """Raise an ExecutionError instead of `ProbeFailed`."""
    try:
        yield
    except ProbeFailed as error:
        raise ExecutionError(f"probe: {error}", _FIX_PROBE) from error
