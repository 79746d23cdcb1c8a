"""Running a campaign: finished legs stay, others are set aside and run again, and nothing is mixed or deleted."""

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from compliance.verify.result_verdict import RECORD_NAME, TEXT_NAME, write_verdict
from runs.errors import ExitCode, HarnessError, InputError, Interrupted
from runs.files import write_json
from runs.interrupts import check, if_abandoned
from runs.record.statements import last_statement
from runs.wording import counted, duration, printable
from scenarios.audit.run import run_audit
from scenarios.campaign.campaign_plan import PlannedLeg, plan_campaign
from scenarios.campaign.config import Campaign, CampaignLeg, missing_scenarios
from scenarios.campaign.state import LegState, code_notes, examine
from scenarios.console import say
from scenarios.leg.config import make_config
from scenarios.leg.parent import run_leg
from scenarios.leg.plan import check_disk
from scenarios.resumed import CHANGED_FIX, held, next_number, wait_for_end

_STYLES = {"done": "green", "negative": "red", "damaged": "yellow", "to do": ""}


def run_campaign(campaign: Campaign, console: Console, *, dry_run: bool, restart_changed: bool) -> ExitCode:
    """Plan a campaign, judge what is there, and run the rest.

    Args:
        dry_run: stop after the plan; nothing is written.
        restart_changed: set finished legs aside that were made with another configuration or machine.

    Returns:
        OK when all legs are done; NEGATIVE when one has a negative outcome; the highest exit code of a leg that failed.

    Raises:
        InputError: finished legs differ from the configuration.
        SetupError: the plan cannot be run, or another campaign runs in the directory.
        Interrupted: by a signal; the same command goes on where it ended.
    """
    with contextlib.ExitStack() as at_the_end:
        run = _Run(campaign, console, dry_run)
        run.plan()  # before the directory is made, so that a refused campaign leaves nothing behind
        if not dry_run:
            at_the_end.enter_context(held(campaign.place.lock, "campaign"))
        run.look()
        run.refuse_changed(restart_changed)
        return ExitCode.OK if dry_run else run.go()


class _Run:
    """One run of the command."""

    def __init__(self, campaign: Campaign, console: Console, dry_run: bool) -> None:
        self._campaign, self._place = campaign, campaign.place
        self._console = console
        self._dry_run = dry_run
        self._legs: list[PlannedLeg] = []
        self._states: dict[str, LegState] = {}  # by the leg's name
        self._failed: dict[str, HarnessError] = {}

    # Before the first leg ----------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Check all legs."""
        with self._console.status("planning") as status:
            self._legs = plan_campaign(self._campaign, status.update)

    def look(self) -> None:
        """Judge the legs that are there, and show the table."""
        options, root = self._campaign.options, self._place.root
        with self._console.status("judging") as status:
            for scenario in options.scenarios:
                status.update(f"judging the existing legs of {scenario}")
                self._examine([leg for leg in self._legs if leg.scenario == scenario])
        legs = counted(len(self._legs), "leg")
        self._say(f"campaign: {options.division} {options.benchmark}, round {options.round}, {legs}, directory {root}")
        self._print_table()
        pending = self._pending()
        self._say(
            f"{len(self._legs) - len(pending)} of {len(self._legs)} legs are done; {_expected(pending)} expected for "
            "the rest (without engine start and scoring)"
        )
        if options.division != "open" and (missing := missing_scenarios(options)):
            self._say(f"note: a {options.division} submission of {options.benchmark} also needs {missing}")
        for sentence in code_notes([leg for leg in self._legs if self._states[leg.name].done]):
            self._say(f"note: {sentence}")
        reasons = list(dict.fromkeys(reason for leg in self._legs for reason in leg.unofficial_reasons))
        if reasons:
            self._say("not official: " + "; ".join(reasons))
        needed = sum(leg.log_bytes for leg in pending)
        check_disk(root, needed, f"the campaign's {counted(len(pending), 'leg')}")

    def refuse_changed(self, restart_changed: bool) -> None:
        """Never mix: finished legs of another configuration stop the campaign, or are run again if asked.

        Raises:
            InputError: naming every key, its old and its new value.
        """
        changed = {name: state.changed for name, state in self._states.items() if state.changed}
        if not changed:
            return
        lines = [f"  {name}: {difference}" for name, found in changed.items() for difference in found]
        what = "\n".join([f"finished legs were made with another configuration or machine ({len(changed)}):", *lines])
        if not restart_changed:
            raise InputError(what, CHANGED_FIX)
        self._say(f"{what}\nthey are run again")

    # The legs ----------------------------------------------------------------------------------------------------

    def go(self) -> ExitCode:
        """Run the legs that are not done, and report."""
        legs = [{"leg": leg.name, "directory": str(leg.folder), "identity": leg.identity} for leg in self._legs]
        asked = orjson.loads(orjson.dumps(self._campaign.asked, default=_plain, option=orjson.OPT_NON_STR_KEYS))
        write_json(self._place.configuration, {"schema_version": 1, "asked": asked, "legs": legs})
        pending = self._pending()
        if pending:
            self._note("start", pending=[leg.name for leg in pending])
            try:
                with if_abandoned(self._note_interruption):
                    for place, leg in enumerate(pending):
                        check()
                        self._print_header(leg, pending[place:])
                        self._one(leg)
            except Interrupted as error:
                self._note_interruption(error)
                raise
            self._note("end", states={name: state.status for name, state in self._states.items()})
            self._say("")
            self._print_table()
        return self._close()

    def _one(self, leg: PlannedLeg) -> None:
        """Run one leg, and judge it from its files. A leg that fails does not end the campaign."""
        name = leg.name
        self._set_aside(leg)
        self._note("leg starts", leg=name)
        self._failed.pop(name, None)
        try:
            self._run(leg)
        except HarnessError as error:
            self._failed[name] = error
            self._note("leg failed", leg=name, exit_code=int(error.exit_code), message=error.message)
            self._say(f"{name} failed: {error}")
        with self._console.status("verifying"):
            self._examine([other for other in self._legs if other.result == leg.result], only=leg)
        state = self._states[name]
        self._note("leg ends", leg=name, status=state.status, text=state.text)
        if state.status == "done":
            self._say(f"{name}: done ({state.text})")
        elif name not in self._failed:
            self._say(f"{name}: {state.status}: {state.text}")
        if not state.done:
            self._say("the campaign continues with its other legs; the same command repeats this one")

    def _examine(self, legs: Sequence[PlannedLeg], only: PlannedLeg | None = None) -> None:
        """Judge legs of one scenario anew; `only` leaves out those that have no part in that leg's verdict."""
        if only is not None:
            legs = [leg for leg in legs if leg is only or (leg.audit is None and only.audit is None)]
        states, verdict = examine(list(legs), self._campaign.options.division)
        self._states |= {leg.name: states[leg.kind] for leg in legs}
        if verdict is not None and not self._dry_run and all(states[leg.kind].done for leg in legs):
            write_verdict(verdict, legs[0].result.root)

    def _set_aside(self, leg: CampaignLeg) -> None:
        """Move what is there of a leg to `discarded/<n>-<kind>`, the verdict that rested on it first."""
        folder = leg.folder
        if not folder.exists():
            return
        wait_for_end(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
            return
        discarded = leg.result.discarded
        stem = f"{next_number(discarded)}-{leg.kind}"
        if leg.audit is None:
            for name in (TEXT_NAME, RECORD_NAME):
                if (leg.result.root / name).exists():
                    (leg.result.root / name).rename(discarded / f"{stem}-{name}")
        folder.rename(discarded / stem)
        self._note("set aside", leg=leg.name, to=str(discarded / stem))
        self._say(f"the earlier files of {leg.name} are now in {discarded / stem}")

    def _run(self, leg: CampaignLeg) -> None:
        """Run the leg as `run` does, or the audit as `audit` does; the outcome is in its files.

        Each leg names the statement of the leg that the campaign ran before it.
        """
        previous = partial(last_statement, self._place.root)
        if leg.audit is not None:
            run_audit(leg.audit, dict(leg.values), self._console, previous=previous)
            return
        run_leg(make_config(leg.values), self._console, previous=previous)

    def _close(self) -> ExitCode:
        """What is missing."""
        pending = self._pending()
        if not pending:
            self._say(f"all {len(self._legs)} legs are done: {self._place.root}")
            return ExitCode.OK
        self._say(f"missing: {len(pending)} of {len(self._legs)} legs")
        for leg in pending:
            error = self._failed.get(leg.name)
            self._say(f"  {leg.name}: {error.message if error else self._states[leg.name].text}")
        self._say("the same command runs the missing legs")
        return max((error.exit_code for error in self._failed.values()), default=ExitCode.NEGATIVE)

    # Small things ------------------------------------------------------------------------------------------------

    def _pending(self) -> list[PlannedLeg]:
        return [leg for leg in self._legs if not self._states[leg.name].done]

    def _note_interruption(self, _: Interrupted) -> None:
        self._note("interrupted")
        self._say("\ninterrupted; the same command continues from here")

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _note(self, event: str, **facts: Any) -> None:
        """A line in the journal, for people; nothing reads it back."""
        line = orjson.dumps({"time_ns": time.time_ns(), "event": event, **facts}, option=orjson.OPT_APPEND_NEWLINE)
        with self._place.journal.open("ab") as journal:
            journal.write(line)

    def _print_table(self) -> None:
        """A line per leg: its state, what LoadGen will issue, how long that takes, and its numbers or the reason."""
        table = Table(box=box.SIMPLE if self._console.is_terminal else None, pad_edge=False, show_edge=False)
        for title, right in (("leg", False), ("state", False), ("samples", True), ("expected", True), ("", False)):
            table.add_column(title, justify="right" if right else "left", no_wrap=bool(title), overflow="fold")
        for leg in self._legs:
            state, count = self._states[leg.name], leg.count
            why = (count.why if count else "as the audit decides leg by leg") if state.status == "to do" else state.text
            table.add_row(
                Text(leg.name),
                Text("changed" if state.changed else state.status, style=_STYLES[state.status]),
                f"{count.samples:,}" if count else "?",
                duration(count.expected_s) if count else "?",
                Text(printable(why)),
            )
        self._console.print(table)

    def _print_header(self, leg: PlannedLeg, remaining: Sequence[PlannedLeg]) -> None:
        """The line before a leg; `remaining` are the legs still to be run, this one among them."""
        line = (
            f"leg {self._legs.index(leg) + 1} of {len(self._legs)}: {leg.name}, about {_expected(remaining)} to go "
            f"for {counted(len(remaining), 'leg')} (without engine start and scoring)"
        )
        self._console.print()
        if self._console.is_terminal:
            self._console.rule(Text(line), align="left")
        else:
            self._say(line)


def _expected(legs: Sequence[PlannedLeg]) -> str:
    """By LoadGen's counts and the rates asked for; audits that cannot be counted are left out."""
    return duration(sum(leg.count.expected_s for leg in legs if leg.count is not None))


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)
