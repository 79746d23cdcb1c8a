"""The execution of a campaign: it keeps finished runs, and moves all other runs aside and repeats them."""

from collections.abc import Sequence
from functools import partial
from shlex import quote

import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from compliance.results.details import RECORD_NAME, TEXT_NAME
from compliance.results.text import write_verdict
from runs.attestation.statements import last_statement
from runs.errors import ExitCode, HarnessError, InputError
from runs.files.writing import write_json
from runs.harness import PROGRAM
from runs.processes.interrupts import raise_if_interrupted
from runs.wording import counted, duration, printable
from scenarios.audit.run_audit import run_audit
from scenarios.campaign.campaign_config import Campaign, CampaignRun, missing_scenarios
from scenarios.campaign.campaign_plan import PlannedRun, plan_campaign
from scenarios.campaign.campaign_state import RunState, code_notes, examine_scenario
from scenarios.console import say
from scenarios.discarded import next_number, wait_for_end
from scenarios.launch.parent import execute_run
from scenarios.launch.plan import check_disk
from scenarios.launch.run_config import make_config
from scenarios.live.waiting import waiting
from scenarios.resumed import CHANGED_FIX, resumable

_STYLES = {"done": "green", "negative": "red", "failed": "yellow", "to do": "", "running": "green"}


def run_campaign(campaign: Campaign, console: Console, *, dry_run: bool, restart_changed: bool) -> ExitCode:
    """Plan a campaign, check its existing runs, and start the missing runs.

    Args:
        dry_run: Stop after the plan and write nothing.
        restart_changed: Set finished runs with another configuration or machine aside.

    Returns:
        OK if all runs are done; NEGATIVE if a run has a negative outcome; or the highest exit code of the failed runs.

    Raises:
        InputError: If finished runs differ from the configuration.
        SetupError: If a run cannot start, or another campaign holds the directory.
        Interrupted: If a signal ends the campaign; the same command continues it.
    """
    run = _Run(campaign, console, dry_run)
    run.plan()  # Before the directory is created, so that a refused campaign leaves no files.
    if dry_run:
        run.find_state()
        run.refuse_changed(restart_changed)
        return ExitCode.OK

    def work() -> ExitCode:
        run.find_state()
        run.refuse_changed(restart_changed)
        return run.go()

    return resumable(campaign.place.lock, "campaign", partial(say, console), work)


class _Run:
    """One execution of the command."""

    def __init__(self, campaign: Campaign, console: Console, dry_run: bool) -> None:
        self._campaign, self._place = campaign, campaign.place
        self._console = console
        self._dry_run = dry_run
        self._runs: list[PlannedRun] = []
        self._states: dict[str, RunState] = {}  # run name → state
        self._failed: dict[str, HarnessError] = {}

    # Before the first run ----------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Check all runs."""
        with waiting(self._console, "planning") as show:
            self._runs = plan_campaign(self._campaign, show)

    def find_state(self) -> None:
        """Check the existing runs, and show the table."""
        options, root = self._campaign.options, self._place.root
        with waiting(self._console, "checking the existing runs") as show:
            for scenario in options.scenarios:
                show(f"checking the existing runs of {scenario}")
                self._examine([run for run in self._runs if run.scenario == scenario])
        runs = counted(len(self._runs), "run")
        self._say(f"campaign: {options.division} {options.benchmark}, round {options.round}, {runs}, directory {root}")
        self._print_table()
        pending = self._pending()
        self._say(
            f"{len(self._runs) - len(pending)} of {len(self._runs)} runs are done; {_expected(pending)} expected for "
            "the other runs (without engine start and scoring)"
        )
        if options.division != "open" and (missing := missing_scenarios(options)):
            self._say(f"note: a {options.division} submission of {options.benchmark} also requires {missing}")
        hints = dict.fromkeys(hint for run in self._runs for hint in run.hints)
        for sentence in (*code_notes([run for run in self._runs if self._states[run.name].done]), *hints):
            self._say(f"note: {sentence}")
        reasons = list(dict.fromkeys(reason for run in self._runs for reason in run.unofficial_reasons))
        if reasons:
            self._say("not eligible for submission: " + "; ".join(reasons))
        needed = sum(run.log_bytes for run in pending)
        check_disk(root, needed, f"the campaign's {counted(len(pending), 'run')}")

    def refuse_changed(self, restart_changed: bool) -> None:
        """Refuse finished runs of another configuration, or mark them for repetition.

        Raises:
            InputError: If finished runs differ; the message names each key with its old and new value.
        """
        changed = {name: state.changed for name, state in self._states.items() if state.changed}
        if not changed:
            return
        lines = [f"  {name}: {difference}" for name, differences in changed.items() for difference in differences]
        changes = "\n".join([f"finished runs have another configuration or machine ({len(changed)}):", *lines])
        if not restart_changed:
            raise InputError(changes, CHANGED_FIX)
        self._say(f"{changes}\nthese runs are repeated")

    # The runs ----------------------------------------------------------------------------------------------------

    def go(self) -> ExitCode:
        """Start the missing runs, and report the results."""
        runs = [{"leg": run.name, "directory": str(run.folder), "identity": run.identity} for run in self._runs]
        requested = orjson.loads(orjson.dumps(self._campaign.requested, default=_plain, option=orjson.OPT_NON_STR_KEYS))
        write_json(
            self._place.configuration,
            {"schema_version": 1, "file": str(self._campaign.file.absolute()), "asked": requested, "legs": runs},
        )
        pending = self._pending()
        if pending:
            for place, run in enumerate(pending):
                raise_if_interrupted()
                self._print_header(run, pending[place:])
                self._one(run)
            self._say("")
            self._print_table()
        return self._close()

    def _one(self, run: PlannedRun) -> None:
        """Start one run, and check its files. A failed run does not end the campaign."""
        name = run.name
        self._set_aside(run)
        self._failed.pop(name, None)
        try:
            self._run(run)
        except HarnessError as error:
            self._failed[name] = error
            self._say(f"{name} failed: {error}")
        with waiting(self._console, "verifying"):
            self._examine([planned for planned in self._runs if planned.result == run.result], only=run)
        state = self._states[name]
        if state.status == "done":
            self._say(f"{name}: done ({state.text})")
        elif name not in self._failed:
            self._say(f"{name}: {state.status}: {state.text}")

    def _examine(self, runs: Sequence[PlannedRun], only: PlannedRun | None = None) -> None:
        """Check the runs of one scenario again; with `only`, just the runs that decide the verdict of that run."""
        if only is not None:
            runs = [run for run in runs if run is only or (run.audit is None and only.audit is None)]
        states, verdict = examine_scenario(list(runs), self._campaign.options.division)
        self._states |= {run.name: states[run.kind] for run in runs}
        if verdict is not None and not self._dry_run and all(states[run.kind].done for run in runs):
            write_verdict(verdict, runs[0].result.root)

    def _set_aside(self, run: CampaignRun) -> None:
        """Move the files of a run to `discarded/<n>-<kind>`, after the verdict that depends on them."""
        folder = run.folder
        if not folder.exists():
            return
        wait_for_end(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
            return
        discarded = run.result.discarded
        stem = f"{next_number(discarded)}-{run.kind}"
        if run.audit is None:
            for name in (TEXT_NAME, RECORD_NAME):
                if (run.result.root / name).exists():
                    (run.result.root / name).rename(discarded / f"{stem}-{name}")
        folder.rename(discarded / stem)
        self._say(f"the earlier files of {run.name} are now in {discarded / stem}")

    def _run(self, run: PlannedRun) -> None:
        """Start a run as `run` does, or an audit as `audit` does. The files of the run contain the result.

        The attestation of each run contains the digest of the preceding attestation of the campaign.
        """
        previous = partial(last_statement, self._place.root)
        if run.audit is not None:
            run_audit(run.audit, dict(run.values), self._console, previous=previous)
            return
        context = f"run {self._runs.index(run) + 1} of {len(self._runs)}"
        execute_run(make_config(run.values), self._console, previous=previous, context=context)

    def _close(self) -> ExitCode:
        """Report the missing runs; return the exit code."""
        pending = self._pending()
        if not pending:
            self._say(f"all {len(self._runs)} runs are done: {self._place.root}")
            return ExitCode.OK
        self._say(f"missing: {len(pending)} of {len(self._runs)} runs")
        for run in pending:
            error = self._failed.get(run.name)
            self._say(f"  {run.name}: {error.message if error else self._states[run.name].text}")
        self._say("to continue, start the same command again")
        negative = [run for run in pending if self._states[run.name].status == "negative"]
        if negative:
            file = quote(str(self._campaign.file))
            self._say(
                f"it repeats negative runs with the same settings, so first change the settings in {file}, or the "
                f"system: {PROGRAM} campaign --config {file} --restart-changed"
            )
        for scenario in dict.fromkeys(run.scenario for run in negative):
            if (tuning := self._campaign.tunings.get(scenario)) is not None:
                self._say(f"the rate of {scenario} is from {tuning} (rates_from); target_qps replaces this directory")
        return max((error.exit_code for error in self._failed.values()), default=ExitCode.NEGATIVE)

    # Helpers ----------------------------------------------------------------------------------------------------

    def _pending(self) -> list[PlannedRun]:
        return [run for run in self._runs if not self._states[run.name].done]

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _print_table(self) -> None:
        """Print a line per run: state, number of samples, duration, and numbers or reason."""
        table = Table(box=box.SIMPLE if self._console.is_terminal else None, pad_edge=False, show_edge=False)
        for title, right in (("run", False), ("state", False), ("samples", True), ("expected", True), ("", False)):
            table.add_column(title, justify="right" if right else "left", no_wrap=bool(title), overflow="fold")
        for run in self._runs:
            state, count = self._states[run.name], run.count
            why = (count.why if count else "depends on earlier runs") if state.status == "to do" else state.text
            table.add_row(
                Text(run.name),
                Text("changed" if state.changed else state.status, style=_STYLES[state.status]),
                f"{count.samples:,}" if count else "?",
                duration(count.expected_s) if count else "?",
                Text(printable(why)),
            )
        self._console.print(table)

    def _print_header(self, run: PlannedRun, remaining: Sequence[PlannedRun]) -> None:
        """Print the line before a run; `remaining` includes this run."""
        line = (
            f"run {self._runs.index(run) + 1} of {len(self._runs)}: {run.name}, about {_expected(remaining)} to go "
            f"for {counted(len(remaining), 'run')} (without engine start and scoring)"
        )
        self._console.print()
        if self._console.is_terminal:
            self._console.rule(Text(line), align="left")
        else:
            self._say(line)


def _expected(runs: Sequence[PlannedRun]) -> str:
    """Return the expected duration from LoadGen's counts and the requested rates, without uncountable audits."""
    return duration(sum(run.count.expected_s for run in runs if run.count is not None))


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)
