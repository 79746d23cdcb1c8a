"""The back-test: frozen legs, frozen forgeries, frozen labels, and what the sign-off says of each today.

A folder holds `cases.jsonl`, one case a line, and `runs.tar.xz`: in `legs/` real legs of this product, in
`forged/CASE/` the files that were changed in a copy of the case's legs. A case may be added; a label is never changed
to fit a rule.
"""

import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compliance.signoff.claim import read_claim
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import Scope, SignOff
from compliance.verdict import WORTH
from runs.errors import InputError
from runs.reading import open_file, read_whole

RUNS_NAME = "runs.tar.xz"
CASES_NAME = "cases.jsonl"
MOST_UNPACKED_BYTES = 2 << 30
LEGS, FORGED = "legs", "forged"  # in the archive
DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "tests" / "signoff"


class Case(BaseModel):
    """One case.

    Attributes:
        ref, cand: names of legs; `a=b` is leg b under the name a.
        removed: files that were taken away, by their path in the case's folder.
        claim: content of the claim's file.
        verdict: the label.
        reason: slug of a finding that must be there, the true reason; none of an honest case.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    scope: Scope
    ref: list[str]
    cand: list[str] = Field(default_factory=list)
    removed: list[str] = Field(default_factory=list)
    claim: dict[str, Any] | None = None
    verdict: Literal["PASS", "FLAG", "FAIL"]
    reason: str | None = None

    def legs(self) -> list[tuple[str, str]]:
        """(name here, name in the archive) of every leg."""
        pairs = (entry.partition("=") for entry in (*self.ref, *self.cand))
        return [(name, source or name) for name, _, source in pairs]

    def side(self, entries: list[str], place: Path) -> list[Path]:
        """The directories of one side in the case's folder."""
        return [place / entry.partition("=")[0] for entry in entries]


@dataclass(frozen=True)
class CaseOutcome:
    """A case, and what was said of it."""

    case: Case
    verdict: SignOff

    @property
    def right(self) -> bool:
        slugs = {reason.slug for reason in self.verdict.findings if WORTH[reason.severity] == self.case.verdict}
        named = self.case.reason is None or self.case.reason in slugs
        return self.verdict.outcome == self.case.verdict and named


@dataclass(frozen=True)
class Score:
    """How good the sign-off is: a positive is a result that is not let pass (FAIL or FLAG)."""

    outcomes: list[CaseOutcome]

    def count(self, labels: set[str], said: set[str]) -> int:
        return sum(one.case.verdict in labels and one.verdict.outcome in said for one in self.outcomes)

    @property
    def false_pass(self) -> int:
        return self.count({"FAIL", "FLAG"}, {"PASS", "ERROR"})

    @property
    def false_fail(self) -> int:
        return self.count({"PASS", "FLAG"}, {"FAIL", "ERROR"})

    @property
    def precision(self) -> float:
        """Of those it FAILs, how many ought to."""
        said = self.count({"PASS", "FLAG", "FAIL"}, {"FAIL"})
        return self.count({"FAIL"}, {"FAIL"}) / said if said else 1.0

    @property
    def recall(self) -> float:
        """Of those that ought to FAIL, how many it FAILs."""
        due = sum(one.case.verdict == "FAIL" for one in self.outcomes)
        return self.count({"FAIL"}, {"FAIL"}) / due if due else 1.0

    @property
    def wrong(self) -> list[CaseOutcome]:
        return [one for one in self.outcomes if not one.right]


def read_cases(folder: Path) -> list[Case]:
    """The cases of a folder.

    Raises:
        InputError: missing or damaged; names the line.
    """
    path = folder / CASES_NAME
    lines = read_whole(path, "name a folder with cases.jsonl and runs.tar.xz", option="--backtest").splitlines()
    cases = []
    for number, line in enumerate(lines, start=1):
        try:
            cases.append(Case.model_validate(orjson.loads(line)))
        except (orjson.JSONDecodeError, ValidationError) as error:
            raise InputError(f"{path} line {number}: {str(error).splitlines()[0]}", "mend the line") from error
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{path}: two cases are named {min(twice)}", "give each a name of its own")
    return cases


def run_cases(
    folder: Path = DEFAULT_FOLDER, cases: Iterable[Case] | None = None, *, max_bytes: int = MOST_UNPACKED_BYTES
) -> Iterator[CaseOutcome]:
    """Sign off cases of a folder anew, by default every one, on copies in a temporary folder.

    Args:
        folder: holds cases and archive.
        cases: some of them.
        max_bytes: that the archive may unpack to.

    Raises:
        InputError: the folder is damaged, or names a leg that there is not.
    """
    cases = read_cases(folder) if cases is None else cases
    with tempfile.TemporaryDirectory(prefix="signoff-") as temporary:
        unpacked = Path(temporary) / "archive"
        try:
            with (
                open_file(folder / RUNS_NAME, "take the archive as it was") as stream,
                tarfile.open(fileobj=stream) as archive,
            ):
                left = max_bytes  # a few kilobytes may be as many gigabytes
                for member in archive:
                    left -= max(0, member.size)
                    if left < 0:
                        raise tarfile.TarError(f"more than {max_bytes:,} bytes")
                    archive.extract(member, unpacked, filter="data")
        except (OSError, EOFError, lzma.LZMAError, ValueError, tarfile.TarError) as error:
            raise InputError(
                f"{folder / RUNS_NAME} cannot be unpacked: {error}", "take the archive as it was"
            ) from error
        for case in cases:
            place = Path(temporary) / "case"
            yield CaseOutcome(case, _run(case, unpacked, place))
            shutil.rmtree(place)


def _run(case: Case, unpacked: Path, place: Path) -> SignOff:
    for name, source in case.legs():
        if not (unpacked / LEGS / source).is_dir():
            raise InputError(f"case {case.name}: there is no leg {source}", "see the names in the archive")
        shutil.copytree(unpacked / LEGS / source, place / name)
    if (unpacked / FORGED / case.name).is_dir():
        shutil.copytree(unpacked / FORGED / case.name, place, dirs_exist_ok=True)
    for file in case.removed:
        (place / file).unlink()
    claim = None
    if case.claim is not None:
        claim_path = place / "claim.json"
        claim_path.write_bytes(orjson.dumps(case.claim))
        claim = read_claim(claim_path)
    return sign_off(case.scope, case.side(case.ref, place), case.side(case.cand, place), claim)
