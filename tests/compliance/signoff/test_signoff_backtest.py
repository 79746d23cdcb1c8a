"""The frozen cases of the sign-off: every verdict and every true reason, and labels that nobody changed."""

import hashlib
import io
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from compliance.finding import fail, warn
from compliance.signoff.backtest import (
    CASES_NAME,
    DEFAULT_FOLDER,
    FORGED,
    LEGS,
    CaseOutcome,
    Score,
    read_cases,
    run_cases,
)
from compliance.signoff.signoff_verdict import SignOff
from runs.errors import InputError
from tests.signoff.forge.archive import forge_all, read_recipes, unpack
from tests.signoff.forge.faults import FAULTS
from tests.signoff.make_runs import LEGS as MADE

# A label is never changed. Cases may be added: then this is the digest over the old ones and the new ones.
FROZEN = "4edde9a1059b741924b745c9742cfecd5146c23d8fe9d9bc4d4f2c02b1766676"


def test_the_labels_are_frozen() -> None:
    labels = [[case.name, case.verdict, case.reason] for case in read_cases(DEFAULT_FOLDER)]
    assert hashlib.sha256(json.dumps(labels).encode()).hexdigest() == FROZEN


def test_there_are_enough_cases_of_each_kind_and_every_fault_is_used() -> None:
    cases = read_cases(DEFAULT_FOLDER)
    honest = [case for case in cases if case.name.startswith("honest")]
    assert len(honest) >= 20
    assert len(cases) - len(honest) >= 40
    assert all(case.verdict != "FAIL" for case in honest)
    assert Counter(case.scope for case in cases).keys() == {"baseline", "profile", "harness", "patch", "bundle"}
    recipes = read_recipes()
    assert {fault for recipe in recipes for faults in recipe.faults.values() for fault, *_ in faults} == FAULTS.keys()
    used = {source for case in cases for _, source in case.legs()}
    assert used <= MADE.keys() | {"vllm-off", "vllm-off-acc"}


@pytest.mark.slow
def test_every_forgery_is_stored_as_its_recipe_makes_it(tmp_path: Path) -> None:
    unpack(tmp_path)
    stored = {path.name for path in (tmp_path / FORGED).iterdir()}
    for case, forged in forge_all(tmp_path / LEGS):
        folder = tmp_path / FORGED / case.name
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        assert {name: path.read_bytes() for name, path in files.items()} == forged.changed, case.name
        assert case.removed == forged.removed, case.name
        stored.discard(case.name)
    assert stored == set()


@pytest.mark.slow
def test_every_case_gets_its_verdict_and_its_true_reason() -> None:
    score = Score(list(run_cases()))
    assert [f"{one.case.name}: {one.verdict.headline}" for one in score.wrong] == []
    assert (score.false_pass, score.false_fail, score.precision, score.recall) == (0, 0, 1.0, 1.0)


@pytest.mark.quick
@pytest.mark.parametrize("only", ["honest-patch", "regenerate", "swap-requests", "flag-"])
def test_some_of_the_cases(only: str) -> None:
    outcomes = list(run_cases(cases=[case for case in read_cases(DEFAULT_FOLDER) if only in case.name]))
    assert outcomes
    assert [one.case.name for one in outcomes if not one.right] == []


def test_the_score_counts_what_it_says() -> None:
    case = read_cases(DEFAULT_FOLDER)[0]

    def outcome(label: str, *said: str) -> CaseOutcome:
        reasons = [{"FAIL": fail, "FLAG": warn}[word]("P-5/clock", "text") for word in said]
        return CaseOutcome(
            case.model_copy(update={"verdict": label, "reason": None}),
            SignOff("harness", 0.5, "open", findings=reasons),
        )

    score = Score([outcome("PASS"), outcome("PASS", "FAIL"), outcome("FAIL"), outcome("FAIL", "FAIL"), outcome("FLAG")])
    assert (score.false_pass, score.false_fail, score.precision, score.recall) == (2, 1, 0.5, 0.5)
    assert len(score.wrong) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        ('{"name": "a", "scope": "harness", "ref": [], "verdict": "MAYBE"}', "line 1"),
        ('{"name": "a", "scope": "harness", "ref": [], "verdict": "PASS"}\n' * 2, "two cases are named a"),
    ],
)
def test_damaged_cases_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / CASES_NAME).write_text(line)
    with pytest.raises(InputError, match=said):
        read_cases(tmp_path)


def archive_of(size: int) -> bytes:
    """Some kilobytes that unpack to a file of so many bytes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:xz", preset=0) as archive:
        member = tarfile.TarInfo("legs/x/requests.jsonl")
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    return written.getvalue()


@pytest.mark.parametrize(
    "content", [b"no archive", b"", archive_of(5_000_000), archive_of(50_000)[:-40], archive_of(50_000)[:90]]
)
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CASES_NAME).write_text('{"name": "a", "scope": "harness", "ref": ["x"], "verdict": "PASS"}')
    (tmp_path / "runs.tar.xz").write_bytes(content)
    with pytest.raises(InputError, match="cannot be unpacked"):
        list(run_cases(tmp_path, max_bytes=1_000_000))
