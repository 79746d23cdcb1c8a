"""The back-test: frozen runs, frozen cases with their labels, and the verdict of the sign-off on each today.

`python -m tests.signoff.backtest` prints precision and recall.

`runs.tar.xz` has real runs of this product, `cases.jsonl` one case a line. A case may be added; a label is changed only
where docs/signoff-rules.md says something else, never to fit the code. In cases with `anchor` the files were edited
after the run and sealed again: the run then has another statement than the one that was anchored when it ended, and
only that shows their true reason.
"""

import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from compliance.signoff.claim import Claim, read_claim
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import SignOff, SignOffScope
from runs.files.writing import sha256_of, write_json
from runs.record.layout import RunDir
from tests.signoff.forge.faults import inject

FOLDER = Path(__file__).resolve().parent
ARCHIVE, CASES = FOLDER / "runs.tar.xz", FOLDER / "cases.jsonl"
RUNS = "legs"  # in the archive
CLAIM = "claim.json"
_OUTCOMES = {"error": "FAIL", "warning": "FLAG", "note": "PASS", "pass": "PASS"}


class Sides(BaseModel):
    """Runs to compare, by name; `a=b` is run b under the name a. Those in `a/` are signed off as the directory a."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ref: list[str]
    cand: list[str] = Field(default_factory=list)

    def sides(self) -> tuple[list[str], list[str]]:
        """Names of the directories that are signed off, of the reference and of the candidate."""
        ref, cand = ([re.split("[/=]", one)[0] for one in side] for side in (self.ref, self.cand))
        return list(dict.fromkeys(ref)), list(dict.fromkeys(cand))


class Case(Sides):
    """One case.

    Attributes:
        patches: by a changed option, what is signed off before as a patch; its verdict is written to `CHANGED
        OPTION.json`.
        faults: by a run's name, what is done to it: [fault, argument, …] in order.
        claim: content of the claim's file.
        verdict: the label.
        reason: slug of a finding that must be there, the true reason; none of an honest case.
        anchor: whether only an anchored statement shows the true reason.
    """

    name: str
    scope: SignOffScope
    patches: dict[str, Sides] = Field(default_factory=dict)
    faults: dict[str, list[list[Any]]] = Field(default_factory=dict)
    claim: dict[str, Any] | None = None
    verdict: Literal["PASS", "FLAG", "FAIL"]
    reason: str | None = None
    anchor: bool = False

    def runs(self) -> list[tuple[str, str]]:
        """(name here, name in the archive) of every run."""
        sides = (self, *self.patches.values())
        entries = dict.fromkeys(entry for one in sides for entry in (*one.ref, *one.cand))
        pairs = (entry.partition("=") for entry in entries)
        return [(name, source or name) for name, _, source in pairs]


@dataclass(frozen=True)
class CaseOutcome:
    """A case, and what was said of it."""

    case: Case
    verdict: SignOff
    anchored: bool  # every run's statement is one that was made when a run of the archive ended

    @property
    def right(self) -> bool:
        """The verdict and its reason are those of the label, by the rules or, where it takes one, by an anchor."""
        return not self.anchored if self.case.anchor else self.by_rules

    @property
    def by_rules(self) -> bool:
        slugs = {reason.slug for reason in self.verdict.findings if _OUTCOMES[reason.severity] == self.case.verdict}
        named = self.case.reason is None or self.case.reason in slugs
        return self.verdict.outcome == self.case.verdict and named


def score(outcomes: list[CaseOutcome]) -> dict[str, float]:
    """How good the sign-off is: a positive is a result that is not let pass (FAIL or FLAG)."""
    pairs = [(one.case.verdict, one.verdict.outcome) for one in outcomes]
    failed = [label for label, said in pairs if said == "FAIL"]
    due = [one for one in outcomes if one.case.verdict == "FAIL"]
    detected = sum(one.verdict.outcome == "FAIL" for one in due)
    anchored = sum(one.verdict.outcome != "FAIL" and not one.anchored for one in due)
    return {
        "false PASS": sum(label != "PASS" and said in ("PASS", "ERROR") for label, said in pairs),
        "false FAIL": sum(label != "FAIL" and said in ("FAIL", "ERROR") for label, said in pairs),
        "precision": failed.count("FAIL") / len(failed),
        "recall": detected / len(due),
        "recall with an anchor": (detected + anchored) / len(due),
    }


def read_cases() -> list[Case]:
    """All cases."""
    return [Case.model_validate_json(line) for line in CASES.read_bytes().splitlines()]


def unpack(folder: Path) -> None:
    """All runs, in `folder/runs`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")


def run_cases(cases: Iterable[Case] | None = None) -> Iterator[CaseOutcome]:
    """Sign off cases anew, by default every one, on copies in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="signoff-") as temporary:
        runs, place = Path(temporary) / RUNS, Path(temporary) / "case"
        unpack(runs.parent)
        anchors = {sha256_of(path) for path in runs.glob("*/seal.json")}
        for case in read_cases() if cases is None else cases:
            verdict = _run(case, runs, place)
            seals = {sha256_of(path) for path in place.rglob("seal.json")}
            yield CaseOutcome(case, verdict, seals <= anchors)
            shutil.rmtree(place)


def lay_out(case: Case, runs: Path, place: Path) -> None:
    """Put a case's runs, with their faults, its claim and its patches' verdicts into a folder."""
    for name, source in case.runs():
        shutil.copytree(runs / source, place / name)
    for name, _ in case.runs():
        for fault, *arguments in case.faults.get(name, []):
            inject(RunDir(place / name), fault, arguments, runs)
    if case.claim is not None:
        (place / CLAIM).write_bytes(orjson.dumps(case.claim))
    for lever, sides in case.patches.items():
        write_json(place / f"{lever}.json", _sign_off("patch", sides, place, Claim(levers=[lever])).record())


def _run(case: Case, runs: Path, place: Path) -> SignOff:
    lay_out(case, runs, place)
    return _sign_off(case.scope, case, place, None if case.claim is None else read_claim(place / CLAIM))


def _sign_off(scope: SignOffScope, case_sides: Sides, place: Path, claim: Claim | None) -> SignOff:
    ref, cand = ([place / name for name in side] for side in case_sides.sides())
    return sign_off(scope, ref, cand, claim)


def main() -> int:
    """Sign off every case and print the score."""
    outcomes = list(run_cases())
    wrong = [one for one in outcomes if not one.right]
    for miss in wrong:
        print(f"WRONG {miss.case.name}: labeled {miss.case.verdict} {miss.case.reason or ''}; {miss.verdict.headline}")
    honest = sum(one.case.name.startswith("honest") for one in outcomes)
    print(f"{len(outcomes)} cases: {honest} honest, {len(outcomes) - honest} faulty; {len(wrong)} wrong")
    print(*(f"{name} {value:.4g}" for name, value in score(outcomes).items()), sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
