"""The back-test: frozen runs, frozen cases with their labels, and the current verdict of the sign-off on each.

`python -m tests.signoff.backtest` prints precision and recall.

`runs.tar.xz` has real runs of this product, `cases.jsonl` one case per line. Add cases freely. Change a label only if
docs/signoff-rules.md requires it, never to fit the code. In cases with `anchor`, the files were edited after the run
and signed again. The attestation then differs from the one that was anchored at the end of the run. Only this
difference shows their true reason.
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

from compliance.judge.record import record
from compliance.signoff.claim import Claim, read_claim
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import SignOff, SignOffScope, headline
from runs.files.writing import sha256_of, write_json
from runs.record.layout import RunDir
from tests.signoff.forge.faults import inject

FOLDER = Path(__file__).resolve().parent
ARCHIVE, CASES = FOLDER / "runs.tar.xz", FOLDER / "cases.jsonl"
RUNS = "legs"  # in the archive
CLAIM = "claim.json"
_OUTCOMES = {"error": "FAIL", "warning": "FLAG", "note": "PASS", "pass": "PASS"}


class CaseSides(BaseModel):
    """Runs to compare, by name; `a=b` is run b under the name a. Those in `a/` are signed off as the directory a."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ref: list[str]
    cand: list[str] = Field(default_factory=list)

    def sides(self) -> tuple[list[str], list[str]]:
        """Return the directories that are signed off, of the reference and of the candidate."""
        ref, cand = ([re.split("[/=]", value)[0] for value in side] for side in (self.ref, self.cand))
        return list(dict.fromkeys(ref)), list(dict.fromkeys(cand))


class BacktestCase(CaseSides):
    """One case.

    Attributes:
        patches: By a changed option, the patch that is signed off before. Its verdict is written to `CHANGED
            OPTION.json`.
        faults: By the name of a run, its faults: [fault, argument, …] in order.
        claim: Content of the claim's file.
        verdict: The label.
        reason: Slug of the expected finding, the true reason; none for an honest case.
        anchor: True if only an anchored attestation shows the true reason.
    """

    name: str
    scope: SignOffScope
    patches: dict[str, CaseSides] = Field(default_factory=dict)
    faults: dict[str, list[list[Any]]] = Field(default_factory=dict)
    claim: dict[str, Any] | None = None
    verdict: Literal["PASS", "FLAG", "FAIL"]
    reason: str | None = None
    anchor: bool = False

    def runs(self) -> list[tuple[str, str]]:
        """Return (name here, name in the archive) of each run."""
        sides = (self, *self.patches.values())
        entries = dict.fromkeys(entry for side in sides for entry in (*side.ref, *side.cand))
        pairs = (entry.partition("=") for entry in entries)
        return [(name, source or name) for name, _, source in pairs]


@dataclass(frozen=True)
class CaseOutcome:
    """A case and its verdict."""

    case: BacktestCase
    verdict: SignOff
    anchored: bool  # the attestation of each run is one that was created at the end of a run of the archive

    @property
    def right(self) -> bool:
        """True if the verdict and its reason are those of the label, by the rules or, if required, by an anchor."""
        return not self.anchored if self.case.anchor else self.by_rules

    @property
    def by_rules(self) -> bool:
        slugs = {reason.slug for reason in self.verdict.all_findings if _OUTCOMES[reason.severity] == self.case.verdict}
        named = self.case.reason is None or self.case.reason in slugs
        return self.verdict.outcome == self.case.verdict and named


def score(outcomes: list[CaseOutcome]) -> dict[str, float]:
    """Return how good the sign-off is. A positive is a result with FAIL or FLAG."""
    pairs = [(outcome.case.verdict, outcome.verdict.outcome) for outcome in outcomes]
    failed = [label for label, outcome in pairs if outcome == "FAIL"]
    due = [outcome for outcome in outcomes if outcome.case.verdict == "FAIL"]
    detected = sum(value.verdict.outcome == "FAIL" for value in due)
    anchored = sum(value.verdict.outcome != "FAIL" and not value.anchored for value in due)
    return {
        "false PASS": sum(label != "PASS" and outcome in ("PASS", "ERROR") for label, outcome in pairs),
        "false FAIL": sum(label != "FAIL" and outcome in ("FAIL", "ERROR") for label, outcome in pairs),
        "precision": failed.count("FAIL") / len(failed),
        "recall": detected / len(due),
        "recall with an anchor": (detected + anchored) / len(due),
    }


def read_cases() -> list[BacktestCase]:
    """Return all cases."""
    return [BacktestCase.model_validate_json(line) for line in CASES.read_bytes().splitlines()]


def unpack(folder: Path) -> None:
    """Unpack all runs in `folder/runs`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")


def run_cases(cases: Iterable[BacktestCase] | None = None) -> Iterator[CaseOutcome]:
    """Sign off cases, by default all of them, on copies in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="signoff-") as temporary:
        runs, place = Path(temporary) / RUNS, Path(temporary) / "case"
        unpack(runs.parent)
        anchors = {sha256_of(path) for path in runs.glob("*/seal.json")}
        for case in read_cases() if cases is None else cases:
            verdict = _run(case, runs, place)
            seals = {sha256_of(path) for path in place.rglob("seal.json")}
            yield CaseOutcome(case, verdict, seals <= anchors)
            shutil.rmtree(place)


def lay_out(case: BacktestCase, runs: Path, place: Path) -> None:
    """Write a case into a folder: its runs with faults, its claim and the verdicts of its patches."""
    for name, source in case.runs():
        shutil.copytree(runs / source, place / name)
    for name, _ in case.runs():
        for fault, *arguments in case.faults.get(name, []):
            inject(RunDir(place / name), fault, arguments, runs)
    if case.claim is not None:
        (place / CLAIM).write_bytes(orjson.dumps(case.claim))
    for lever, sides in case.patches.items():
        write_json(place / f"{lever}.json", record(_sign_off("patch", sides, place, Claim(levers=[lever]))))


def _run(case: BacktestCase, runs: Path, place: Path) -> SignOff:
    lay_out(case, runs, place)
    return _sign_off(case.scope, case, place, None if case.claim is None else read_claim(place / CLAIM))


def _sign_off(scope: SignOffScope, case_sides: CaseSides, place: Path, claim: Claim | None) -> SignOff:
    ref, cand = ([place / name for name in side] for side in case_sides.sides())
    return sign_off(scope, ref, cand, claim)


def main() -> int:
    """Sign off each case and print the score."""
    outcomes = list(run_cases())
    wrong = [outcome for outcome in outcomes if not outcome.right]
    for miss in wrong:
        print(f"WRONG {miss.case.name}: labeled {miss.case.verdict} {miss.case.reason or ''}; {headline(miss.verdict)}")
    honest = sum(outcome.case.name.startswith("honest") for outcome in outcomes)
    print(f"{len(outcomes)} cases: {honest} honest, {len(outcomes) - honest} faulty; {len(wrong)} wrong")
    print(*(f"{name} {value:.4g}" for name, value in score(outcomes).items()), sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
