"""The execution of a curve: preflight, probes, points, files and tree. Each state follows from files."""

import asyncio
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
from runs.errors import ExecutionError, ExitCode, HarnessError, InputError, SetupError
from runs.files.reading import read_object
from runs.files.writing import write_atomic, write_json
from runs.mistakes import Mistakes
from runs.processes.interrupts import raise_if_interrupted
from runs.wording import counted, shortened_list
from scenarios.console import say
from scenarios.curve.capacity import ProbeFailed
from scenarios.curve.client_config import PlannedLoad, client_config, client_form, point_settings, sent_model_seed
from scenarios.curve.client_process import SHARED_MEMORY, EventLog, Watch, end_recorded_client, run_client
from scenarios.curve.curve_config import CurveConfig
from scenarios.curve.curve_dir import VERIFIED, CurveDir, read_verified
from scenarios.curve.curve_plan import (
    FIRST_CROP,
    MIN_WINDOW_PASSES,
    WINDOW,
    CurvePlan,
    NoCurve,
    PlannedPoint,
    curve_levels,
    passes_for,
    plan_curve,
    usable_c_max,
)
from scenarios.curve.examined_run import SCHEMA_VERSION, examine_point, examine_probe
from scenarios.curve.plan_table import EVENT_BYTES, TITLES, gpu_hours, minutes, plan_lines, plan_rows
from scenarios.curve.probed_levels import WAVES, ProbedLevels, point_count, probe_levels
from scenarios.discarded import set_aside
from scenarios.resumed import resumable
from sut.http.server import ServerFacts, learn

ATTEMPTS = 2  # runs of a point whose checks fail
MAX_REASONS = 3  # reasons of a point that are printed
SPACE_MARGIN = 1.2  # factor on the estimated size of the events
DONE, TO_DO, CHANGED = "done", "to do", "changed"
# Keys of curve.yaml that decide the concurrencies and the rates.
_PLANNED = (
    "c_min", "c_max", "max_concurrency", "concurrencies", "points", "offline", "max_point_hours", "basis", "server",
    "model", "tokenizer", "model_params", "datasets", "rows", "client_settings", "api_type", "seed_set",
)  # fmt: skip
_FIX_SERVER = "start the server, then this command"
_FIX_PROBE = "correct the server or the configuration"
_FIX_CHANGED = "revert the change, or repeat these points with --restart-changed (their files move to discarded/)"


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
        self._form = ""
        self._identity: dict[str, Any] = {}
        self._levels: ProbedLevels | None = None
        self._changed_keys: list[str] = []  # keys of the configuration that differ from plan.json
        self._failed: dict[str, list[str]] = {}
        self._stops = False  # True: the model gives wrong responses, so no further point starts

    # Plan --------------------------------------------------------------------------------------------------------

    def show_plan(self) -> None:
        """Show the table of the points, from the files of earlier calls and the configuration."""
        self._read_plan()
        plan = self._plan()
        if plan is None:
            self._say("points unknown: c_max is missing; measure it with --probe")
        else:
            self._print_table(plan)
        for note in self._levels.notes if self._levels is not None else ():
            self._say(f"note: {note}")
        for line in plan_lines(self._curve, plan, probed="times from earlier probes and points"):
            self._say(line)

    def _read_plan(self) -> None:
        """Read plan.json, if it has concurrencies for the present configuration."""
        path = self._place.plan
        if not path.is_file():
            return
        record = read_object(path, "move the file away", within=self._place.root)
        self._form = self._form or str(record.get("form", ""))
        self._changed_keys = [
            f"{key}: {before}, now {now}" for key, before, now in _unequal(record.get("requested"), self._requested)
        ]
        if not self._changed_keys and (levels := record.get("levels")):
            rates = {int(level): float(rate) for level, rate in levels["rates"].items()}
            self._levels = ProbedLevels(levels["c_min"], levels["c_max"], list(levels["notes"]), rates)

    @property
    def _requested(self) -> dict[str, Any]:
        options = self._curve.options.model_dump(mode="json")
        return {name: options[name] for name in _PLANNED} | {"rehearsal": self._curve.is_rehearsal}

    def _plan(self) -> CurvePlan | None:
        """Return the points with the rates measured so far; None if C_max is unknown.

        Raises:
            InputError: If the concurrencies of the configuration do not cover all regions.
        """
        curve, options = self._curve, self._curve.options
        count = point_count(curve)
        if options.concurrencies is not None:
            levels = sorted(set(options.concurrencies))
        elif self._levels is not None:
            levels = curve_levels(self._levels.c_min, self._levels.c_max, curve.ultra_low, count)
        elif options.c_max is not None:
            c_min = options.c_min or curve.ultra_low
            levels = curve_levels(
                c_min,
                usable_c_max(c_min, max(options.c_max, curve.min_c_max), curve.ultra_low, count),
                curve.ultra_low,
                count,
            )
        else:
            return None
        rates = dict(self._levels.rates) if self._levels is not None else {}
        records = list(self._records().values())
        finished = {int(record["concurrency"]): record for record in records if not record.get("offline")}
        rates |= {level: record["rate"] for level, record in finished.items()}
        crops = {level: record["crop"] for level, record in finished.items() if record.get("crop")}
        try:
            return plan_curve(
                levels, rates, ultra_low=curve.ultra_low, rows=curve.rows, durations_s=curve.durations_s,
                basis=options.basis, offline=options.offline, crops=crops,
            )  # fmt: skip
        except NoCurve as error:
            raise InputError(f"{curve.file}: concurrencies: {error}", "add a concurrency of this region") from error

    def _complete_plan(self) -> CurvePlan:
        """Return the points when C_max is known."""
        plan = self._plan()
        assert plan is not None
        return plan

    def _records(self) -> dict[str, dict[str, Any]]:
        """Return the records of finished points by name."""
        folders = sorted(self._place.points.iterdir()) if self._place.points.is_dir() else []
        records = {folder.name: read_verified(folder) for folder in folders}
        return {name: record for name, record in records.items() if record is not None}

    def _states(self, plan: CurvePlan) -> dict[str, str]:
        records = self._records()
        return {
            point.name: TO_DO if point.name not in records else CHANGED if self._changes(point, records) else DONE
            for point in plan.points
        }

    def _changes(self, point: PlannedPoint, records: dict[str, dict[str, Any]]) -> list[str]:
        """Return the settings of a finished point that differ from the plan."""
        record = records[point.name]
        form = self._form or str(record.get("form", ""))
        planned = point_settings(client_config(self._curve, form, self._load(point, point.passes or 1), Path()))
        facts = [
            ("settings", record["settings"], planned),
            ("rehearsal", record["rehearsal"], self._curve.is_rehearsal),
        ]
        facts += [(name, record["identity"].get(name), value) for name, value in self._identity.items() if value]
        return [
            f"{point.name}: {name}{path and '.'}{path}: {before}, now {now}"
            for name, old, new in facts
            for path, before, now in _unequal(old, new)
        ]

    def _load(self, point: PlannedPoint, passes: int) -> PlannedLoad:
        return PlannedLoad(point.concurrency, passes * self._curve.rows, point.offline == DEDICATED, point.accuracy)

    # Work --------------------------------------------------------------------------------------------------------

    def go(self, until: str) -> ExitCode:
        """Do the missing work, up to a step."""
        curve, place = self._curve, self._place
        self._end_earlier_runs()
        self._preflight()
        resolved = yaml.safe_dump(curve.options.model_dump(mode="json"), sort_keys=False)
        write_atomic(place.config, resolved)
        if curve.is_rehearsal:
            write_atomic(place.rehearsal, REHEARSAL_MARK + "\n")
        self._read_plan()
        if self._changed_keys and self._records() and not self._restart_changed:
            changes = "\n  ".join(self._changed_keys)
            raise InputError(f"finished points have another configuration:\n  {changes}", _FIX_CHANGED)
        if self._levels is None and (self._probe or curve.options.concurrencies is None):
            self._levels = self._probed()
        plan = self._complete_plan()
        self._refuse_changed(plan)
        self._write_plan(plan)
        self._write_page(plan)
        self._print_table(plan)
        for note in (*(self._levels.notes if self._levels is not None else ()), *self._notes()):
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

        return build_tree(curve, place, self._complete_plan(), self._records(), self._say)

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
        with self._console.status("checking the server and the client"):
            facts = [self._facts(number) for number in range(len(curve.servers))]
            if any(server.lasting() != facts[0].lasting() for server in facts):
                raise SetupError("server: the servers differ in model or version", "start equal servers")
            self._server = facts[0]
            self._identity = {"model": facts[0].model, "server_version": facts[0].version}
            load_tokenizer(curve.tokenizer)
            self._form = client_form(curve)

    def _facts(self, number: int) -> ServerFacts:
        mistakes = Mistakes("curve")
        with mistakes.collected("--api-model-name", "model:"):
            return asyncio.run(learn(self._curve.servers[number], self._curve.access, self._curve.options.model))
        mistakes.refuse()
        raise AssertionError("a failed request is a mistake")

    def _server_fault(self) -> str:
        """Return why a server is dead; empty if all respond."""
        for number, address in enumerate(self._curve.servers):
            try:
                self._facts(number)
            except HarnessError as error:
                return f"server {address.url}: {error.message}"
        return ""

    def _notes(self) -> Iterator[str]:
        if self._server.prefix_caching:
            yield "the server caches prefixes, and repeated passes over the dataset can hit this cache (§2.9.5)"
        if not sent_model_seed(self._curve):
            seed = self._curve.seed_set.seeds["model_seed"]
            yield f"model_seed {seed} exceeds 63 bits, which servers refuse: point.yaml declares it, requests lack it"
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
            if "rate" in record and record["settings"] == settings and record["identity"] == self._identity:
                return float(record["rate"])
            set_aside([folder], self._place.discarded)
        self._refuse_space(samples, name)
        if reason := self._client(folder, load, name, tolerates_errors=True):
            raise ExecutionError(f"{name}: {reason}", f"read {folder}")
        record = examine_probe(folder, load, settings, self._identity)
        if "rate" in record:
            self._say(f"{name}: {record['rate']:.4g} samples/s ({samples:,} samples)")
            return float(record["rate"])
        if fault := self._server_fault():
            raise ExecutionError(f"{name}: {fault}", _FIX_SERVER)
        raise ProbeFailed(f"{record['failed']} samples failed at concurrency {concurrency:,}")

    def _client(self, folder: Path, load: PlannedLoad, name: str, *, tolerates_errors: bool = False) -> str:
        """Run the client with a live line. After an error or a signal, the directory moves to discarded/."""
        config = client_config(self._curve, self._form, load, folder)
        try:
            with self._console.status(name) as status:
                progress = self._progress()

                def show(events: EventLog) -> None:
                    status.update(f"{name}: {events.completed:,} of {load.samples:,} samples{progress}")

                watch = Watch(self._server_fault, show, tolerates_errors)
                return run_client(self._curve.client, config, load.mode, folder, watch)
        except BaseException:
            if folder.exists():
                set_aside([folder], self._place.discarded)
            raise

    # Points ------------------------------------------------------------------------------------------------------

    def _refuse_changed(self, plan: CurvePlan) -> None:
        """Refuse finished points with other settings, or move them away."""
        records = self._records()
        names = {point.name: point for point in plan.points}
        changes = {name: self._changes(names[name], records) for name in records if name in names}
        changes |= {name: [f"{name}: not in the plan"] for name in records if name not in names}
        changes = {name: texts for name, texts in changes.items() if texts}
        if not changes:
            return
        listed = "\n".join(f"  {text}" for texts in changes.values() for text in texts)
        text = f"finished points have other settings ({len(changes)}):\n{listed}"
        if not self._restart_changed:
            raise InputError(text, _FIX_CHANGED)
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
        needed = samples * self._event_bytes() * SPACE_MARGIN
        for path in (self._place.root, SHARED_MEMORY):
            if path.is_dir() and (free := shutil.disk_usage(path).free) < needed:
                raise SetupError(
                    f"{path}: {free / 1e9:.1f} GB free; {name} may need {needed / 1e9:.1f} GB", "free disk space"
                )

    def _event_bytes(self) -> float:
        """Return the bytes of the events of one sample, as measured in finished runs."""
        sizes = [record["event_bytes"] / record["samples"] for record in self._records().values()]
        return max(sizes, default=float(EVENT_BYTES))

    def _run_points(self, plan: CurvePlan) -> bool:
        """Run the missing points; return whether all are done."""
        names = [point.name for point in plan.points]
        for name in names:
            raise_if_interrupted()
            current = self._complete_plan()  # the rates of finished points change the passes of the next ones
            point = next(planned for planned in current.points if planned.name == name)
            if self._states(current)[name] == DONE:
                continue
            if not self._run_point(point, is_first=name == names[0]) and self._stops:
                self._say(f"{name}: accuracy below its target, so no other point starts")
                return False
        final = self._complete_plan()
        self._write_plan(final)
        missing = [name for name, state in self._states(final).items() if state != DONE]
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
            load = self._load(point, passes)
            expected = "" if point.seconds is None else f", about {minutes(point.seconds)}"
            name = f"{point.name} (concurrency {point.concurrency:,}, {point.role})"
            self._say(f"{name}: {load.samples:,} samples{expected}")
            self._refuse_space(load.samples, point.name)
            folder = self._place.point(point.name)
            reason = self._client(folder, load, name)
            record = self._examined(folder, load, point)
            reasons = [reason] if reason else list(record["reasons"])
            longer = 0 if reasons else self._longer(point, passes, record, attempt)
            if not reasons and not longer:
                write_json(folder / VERIFIED, record)
                self._say(f"{point.name}: done, {record['rate']:.4g} samples/s{_steady_text(record)}")
                self._write_page(self._complete_plan())
                return True
            reasons = reasons or [f"no steady-state window is long enough; repeated with {longer} passes"]
            write_json(folder / VERIFIED, record | {"reasons": reasons})
            moved = set_aside([folder], self._place.discarded)
            self._say(f"{point.name} does not count: {shortened_list(reasons, MAX_REASONS)}; moved to {moved}")
            self._failed[point.name] = reasons
            if not longer and (fault := self._server_fault()):
                raise ExecutionError(fault, _FIX_SERVER)
            passes = longer or passes
            if is_first and record["accuracy_failed"]:
                self._stops = True
                return False
        return False

    def _first_passes(self, point: PlannedPoint) -> int:
        """Return the passes of a point whose rate is unknown, after a probe of it."""
        rate = self._measured_rate(point.concurrency)
        self._levels = self._levels or ProbedLevels(point.concurrency, point.concurrency)
        self._levels.rates[point.concurrency] = rate
        return next(planned.passes for planned in self._complete_plan().points if planned.name == point.name) or 1

    def _examined(self, folder: Path, load: PlannedLoad, point: PlannedPoint) -> dict[str, Any]:
        config = client_config(self._curve, self._form, load, folder)
        git_sha = next((record["identity"]["git_sha"] for record in self._records().values()), None)
        identity = {**self._identity, "git_sha": git_sha}
        with self._console.status(f"{point.name}: verifying"):
            record = examine_point(self._curve, folder, load, config, identity)
        return record | {
            "concurrency": point.concurrency, "offline": DEDICATED if load.is_offline else "", "form": self._form
        }  # fmt: skip

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

    def _write_plan(self, plan: CurvePlan) -> None:
        write_json(
            self._place.plan,
            {
                "schema_version": SCHEMA_VERSION,
                "requested": self._requested,
                "form": self._form,
                "identity": self._identity,
                "levels": None if self._levels is None else self._levels.as_json(),
                "c_min": plan.c_min,
                "c_max": plan.c_max,
                "c_min_override": plan.c_min_override,
                "regions": {name: list(bounds) for name, bounds in plan.bounds.items()},
                "points": [asdict(point) for point in plan.points],
            },
        )

    def _write_page(self, plan: CurvePlan) -> None:
        """Write report.html with the present state of each point."""
        from compliance.report.curve_page import curve_page, page_row  # importing matplotlib takes a moment

        records, states = self._records(), self._states(plan)
        accelerators = self._curve.options.accelerators
        rows = [
            page_row(asdict(point), point.role, states[point.name], records.get(point.name), accelerators)
            for point in plan.points
        ]
        levels = self._levels
        probes, notes = ({}, []) if levels is None else (levels.rates, levels.notes)
        title = f"Endpoints curve of {self._curve.options.model}"
        title += " (rehearsal)" if self._curve.is_rehearsal else ""
        write_atomic(self._place.page, curve_page(title, rows, plan.bounds, probes, [*notes, *self._notes()]))

    def _progress(self) -> str:
        """Return the finished points and their accelerator hours, for the live line."""
        records = list(self._records().values())
        hours = sum(record["duration_s"] for record in records) / 3600 * self._curve.options.accelerators
        return f"; {counted(len(records), 'point')} done, {hours:.1f} GPU hours" if records else ""

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _print_table(self, plan: CurvePlan) -> None:
        table = Table(box=box.SIMPLE if self._console.is_terminal else None, pad_edge=False, show_edge=False)
        for title in TITLES:
            is_text = title in ("point", "region", "accuracy", "state")
            table.add_column(title, justify="left" if is_text else "right", no_wrap=True)
        for row in plan_rows(self._curve, plan, self._states(plan), self._event_bytes()):
            table.add_row(*row)
        self._console.print(table)


def _unequal(old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two values differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            for path, before, now in _unequal(old.get(key), new.get(key)):
                yield f"{key}{path and '.'}{path}", before, now
    elif old != new:
        yield "", old, new


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
