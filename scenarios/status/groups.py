"""The state of what runs many legs: a campaign, a tune, an audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from runs.errors import ExitCode, HarnessError
from runs.reading import read_as, read_object
from runs.record.layout import CampaignDir
from runs.wording import counted
from scenarios.status.find import FoundDir, Kind, holder_of
from scenarios.status.leg_state import LegStatus, State
from scenarios.tune.journal import Journal, read_tune
from scenarios.tune.tune_directory import TuneDir

_FIX = "restore the file"


@dataclass(frozen=True)
class GroupStatus:
    """One campaign, tune or audit as its files show it now."""

    kind: Kind
    root: Path
    state: State
    text: str
    exit_code: ExitCode
    pid: int | None
    legs: tuple[LegStatus, ...]
    done: int | None = None  # legs, of a campaign
    total: int | None = None

    @property
    def alive(self) -> bool:
        return self.state in ("running", "silent")


class _Planned(BaseModel):
    directory: Annotated[str, Field(pattern="^[^\0]+$")]


class _Campaign(BaseModel):
    """What is read of a campaign.json."""

    legs: list[_Planned]


def group_status(place: FoundDir, legs: Sequence[LegStatus]) -> GroupStatus:
    """Read a group's directory; a damaged one is a state, not an error.

    Args:
        legs: those that lie in it.
    """
    own = tuple(leg for leg in legs if leg.root.is_relative_to(place.root))
    try:
        return {"campaign": _campaign, "tune": _tune, "audit": _audit}[place.kind](place.root, own)
    except HarnessError as error:
        return GroupStatus(place.kind, place.root, "damaged", error.message, ExitCode.BAD_INPUT, None, own)


def _campaign(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    place = CampaignDir(root)
    pid = holder_of(place.lock)
    if not place.configuration.is_file():
        return _ended_or_not("campaign", root, pid, legs, "planning", None)
    folders = {Path(leg.directory).resolve() for leg in read_as(place.configuration, _Campaign, _FIX).legs}
    by_folder = {leg.root: leg for leg in legs}
    done = sum(1 for folder in folders if _leg_is_done(folder, by_folder))
    text = f"{done} of {len(folders)} legs done"
    complete = ExitCode.OK if done == len(folders) else None
    return _ended_or_not("campaign", root, pid, legs, text, complete, done, len(folders))


def _leg_is_done(folder: Path, by_folder: dict[Path, LegStatus]) -> bool:
    """A leg by its own record; an audit, which is a directory of legs, by what it was judged."""
    if (leg := by_folder.get(folder)) is not None:
        return leg.state == "finished" and not leg.exit_code
    return any(_passed(path) for path in folder.glob("audit_*.json"))


def _passed(record: Path) -> bool:
    return read_object(record, _FIX).get("passed") is True


def _tune(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    place = TuneDir(root)
    pid = holder_of(place.lock)
    steps = Journal(place.journal).measured()
    text = counted(sum(step.step != "confirm" for step in steps), "probe")
    if steps:
        text += f", last {steps[-1].step} at {steps[-1].target_qps:g}/s {steps[-1].verdict}"
    code: ExitCode | None = None
    if place.record.is_file() and pid is None:
        found = read_tune(place.record)["target_qps"]
        code = ExitCode.NEGATIVE if found is None else ExitCode.OK
        text += "; no rate was confirmed" if found is None else f"; confirmed {found:g}/s"
    return _ended_or_not("tune", root, pid, legs, text, code)


def _audit(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    record = next(iter(sorted(root.glob("audit_*.json"))), None)
    code: ExitCode | None = None
    text = f"{sum(leg.state == 'finished' for leg in legs)} legs done"
    if record is not None:
        passed = _passed(record)
        code = ExitCode.OK if passed else ExitCode.NEGATIVE
        text = f"{'PASS' if passed else 'FAIL'}: {read_object(record, _FIX).get('reason', '')}"
    alive = next((leg.manifest.parent_pid for leg in legs if leg.alive and leg.manifest), None)
    return _ended_or_not("audit", root, alive, legs, text, code)


def _ended_or_not(
    kind: Kind,
    root: Path,
    pid: int | None,
    legs: tuple[LegStatus, ...],
    text: str,
    code: ExitCode | None,
    done: int | None = None,
    total: int | None = None,
) -> GroupStatus:
    """A group runs while its process holds its lock, or a leg of it lives (which may be on another machine)."""
    if pid is not None or any(leg.alive for leg in legs):
        silent = [leg for leg in legs if leg.state == "silent"]
        state: State = "silent" if silent else "running"
        return GroupStatus(kind, root, state, text, ExitCode.FAILED if silent else ExitCode.OK, pid, legs, done, total)
    if code is not None:
        return GroupStatus(kind, root, "finished", text, code, None, legs, done, total)
    ended = max((leg.exit_code for leg in legs), default=ExitCode.FAILED) or ExitCode.FAILED
    return GroupStatus(kind, root, "interrupted", f"{text}; it does not run", ended, None, legs, done, total)
