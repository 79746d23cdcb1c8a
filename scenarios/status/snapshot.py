"""The state of runs and groups at one moment, as text, Markdown and JSON."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.text import Text

from runs.errors import ExitCode
from runs.what_is import PathKind
from runs.wording import duration, moment, printable
from scenarios.live.plain_lines import plain_lines
from scenarios.live.run_view import RunFollower, RunView, time_to_go_s
from scenarios.status.find import NEEDED, find_in, find_running, without_runs
from scenarios.status.run_kinds import run_status
from scenarios.status.run_status import GroupStatus, RunStatus, StateName
from scenarios.status.state import group_status

DEFAULT_FOLDER = Path("output")
MAX_ENDED = 10  # maximum number of listed finished runs without a DIR argument
STYLES: dict[StateName, str] = {
    "running": "green",
    "silent": "bold yellow",
    "killed": "bold red",
    "failed": "red",
    "damaged": "red",
    "unattested": "red",
    "interrupted": "yellow",
}

_OF_PROGRESS = (
    "phase", "completed", "expected", "samples_per_second", "tokens_per_second", "ttft_p99_ms", "ttft_limit_ms",
    "tpot_p99_ms", "tpot_limit_ms",
)  # fmt: skip


@dataclass(frozen=True)
class StatusSnapshot:
    """The state at one moment."""

    time_ns: int
    groups: tuple[GroupStatus, ...]
    runs: tuple[RunStatus, ...]
    left_out: int = 0  # older finished runs that are not listed
    without_runs: tuple[PathKind, ...] = ()  # given directories without runs

    @property
    def single(self) -> list[RunStatus]:
        """The runs without a group."""
        grouped = {run.root for group in self.groups for run in group.runs}
        return [run for run in self.runs if run.root not in grouped]

    @property
    def entries(self) -> list[GroupStatus | RunStatus]:
        """The listed entries: a group before its runs, entries in progress last, next to the prompt."""
        listed: list[GroupStatus | RunStatus] = []
        for group in sorted(self.groups, key=lambda listed_group: (listed_group.alive, listed_group.last_ns)):
            listed += [group, *_worth_showing(group)]
        ended = sorted((run for run in self.single if not run.alive), key=lambda run: run.last_ns)
        return [*ended, *listed, *(run for run in self.single if run.alive)]

    @property
    def alive(self) -> bool:
        return any(entry.alive for entry in self.entries)

    @property
    def exit_code(self) -> ExitCode:
        """The most severe exit code of the entries, without the probes of a tuning, because a probe may be INVALID."""
        return max((shown.exit_code for shown in [*self.single, *self.groups]), default=ExitCode.OK)


def take_snapshot(folders: Sequence[Path]) -> StatusSnapshot:
    """Return the state of directories; without directories, of runs in progress on this machine and of ./output.

    Raises:
        InputError: If a directory cannot be read, or its content is for other commands.
    """
    empty: tuple[PathKind, ...] = ()
    if folders:
        places = find_in(folders)
        empty = without_runs(folders, places)
        if not places and (refused := next((place for place in empty if place.fix), None)):
            raise refused.refused(NEEDED)
    else:
        places = [*find_running(), *(find_in([DEFAULT_FOLDER]) if DEFAULT_FOLDER.is_dir() else [])]
        places = list({place.root: place for place in places}.values())
    runs = [run_status(place.root) for place in places if place.kind == "leg"]
    groups = [group_status(place, runs) for place in places if place.kind != "leg"]
    campaigns = [group.root for group in groups if group.kind == "campaign"]
    top = tuple(  # An audit of a campaign counts as one of its runs.
        replace(group, audits=tuple(audit for audit in groups if group.root in audit.root.parents))
        for group in groups
        if not any(root in group.root.parents for root in campaigns)
    )
    snapshot = StatusSnapshot(time.time_ns(), top, tuple(runs), without_runs=empty)
    if folders:
        return snapshot
    ended = sorted((run for run in snapshot.single if not run.alive), key=lambda run: run.last_ns)
    old = {run.root for run in ended[:-MAX_ENDED]}
    return replace(snapshot, runs=tuple(run for run in runs if run.root not in old), left_out=len(old))


def _worth_showing(group: GroupStatus) -> list[GroupStatus | RunStatus]:
    """Return the unfinished runs of a group, and the failed runs and audits of a campaign or audit.

    LoadGen's verdict on the run of an audit decides nothing, so that a finished run of an audit is not shown.
    """
    if group.kind == "curve":  # the run in progress is in the text of the curve
        return []
    bad_states = (
        ("failed", "killed", "damaged", "unattested", "interrupted") if group.kind not in ("tune", "bench") else ()
    )
    of_audits = {run.root for audit in ([group] if group.kind == "audit" else group.audits) for run in audit.runs}
    negative = [run for run in group.runs if bad_states and run.exit_code and run.root not in of_audits]
    runs = [run for run in group.runs if run.alive or run.state in bad_states or run in negative]
    return [*(audit for audit in group.audits if audit.exit_code or audit.alive), *runs]


def view_of(run: RunStatus, follower: RunFollower) -> RunView | None:
    """Return the view of a run whose queries are measured now; None for other runs."""
    if run.state != "running" or run.progress is None or run.progress.phase != "running":
        return None
    waited_s = (time.time_ns() - (run.started_ns or 0)) / 1e9
    return follower.view(run.progress, waited_s, time.monotonic())


def lines(snapshot: StatusSnapshot, block_of: Callable[[RunStatus], list[Text]] = lambda _: []) -> list[Text]:
    """Return the text, with the state and the details of each entry.

    Args:
        block_of: Returns the block of a run; empty: the run has plain lines.
    """
    shown: list[Text] = []
    grouped = {member.root for group in snapshot.groups for member in (*group.audits, *group.runs)}
    for entry in snapshot.entries:
        indent = "  " if entry.root in grouped else ""
        head = Text(indent)
        head.append(f"{entry.state:<12}", STYLES.get(entry.state, ""))
        head.append(printable(f"{_title(entry)}  {relative_text(entry.root)}"))
        shown.append(head)
        block = block_of(entry) if isinstance(entry, RunStatus) else []
        block = block or [Text(printable(text)) for text in details(entry)]
        shown += [Text(f"{indent}  ").append_text(line) for line in block]
    if snapshot.left_out:
        shown.append(Text(f"and {snapshot.left_out} older runs; give the directory {DEFAULT_FOLDER} to list them"))
    shown = shown or [Text("no running or finished runs found")]
    return shown + [Text(printable(f"{place.path} {place.text}")) for place in snapshot.without_runs]


def _title(entry: GroupStatus | RunStatus) -> str:
    return (entry.what if isinstance(entry, RunStatus) else "") or entry.kind


def details(entry: GroupStatus | RunStatus) -> list[str]:
    """Return the lines of an entry after the first line."""
    if isinstance(entry, GroupStatus):
        return [entry.text + (f" (process {entry.pid})" if entry.pid else "")]
    if (view := view_of(entry, RunFollower(""))) is not None:
        return plain_lines(view)
    when = f"{moment(entry.seen_ns)}, {duration((time.time_ns() - entry.seen_ns) / 1e9)} ago: " if entry.seen_ns else ""
    return [f"{when if not entry.alive else ''}{entry.text}"]


def relative_text(path: Path) -> str:
    """Return a path below the working directory as a relative path, and any other path unchanged."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def snapshot_markdown(snapshot: StatusSnapshot) -> str:
    """Return a Markdown page with a table."""
    rows = [
        f"| {entry.state} | {_cell(_title(entry))} "
        f"| {_cell('; '.join(text.strip() for text in details(entry)))} | {_cell(str(entry.root))} |"
        for entry in snapshot.entries
    ]
    head = [f"# Runs at {moment(snapshot.time_ns)}", "", "| state | run | progress | directory |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _cell(text: str) -> str:
    return printable(text.replace("\n", " ").replace("\\", "\\\\").replace("|", "\\|"))


def as_json(snapshot: StatusSnapshot) -> dict[str, Any]:
    """Return the JSON object. Its `runs` lists all groups, then all runs."""
    groups = [
        {**_entry(group, "done", "total"), "legs": [str(run.root) for run in group.runs]} for group in snapshot.groups
    ]
    return {"time_ns": snapshot.time_ns, "runs": [*groups, *map(_run_json, snapshot.runs)]}


def _entry(entry: GroupStatus | RunStatus, *names: str) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in ("kind", "state", "alive", "text", "pid", *names)}
    return {**values, "directory": str(entry.root), "exit_code": int(entry.exit_code)}


def _run_json(run: RunStatus) -> dict[str, Any]:
    progress = run.progress
    return {
        **_entry(run, "what", "host", "started_ns", "seen_ns"),
        "share": progress.completed / progress.expected if progress and progress.expected else None,
        **{name: getattr(progress, name, None) for name in _OF_PROGRESS},
        "to_go_s": time_to_go_s(progress) if progress and run.alive else None,
    }
