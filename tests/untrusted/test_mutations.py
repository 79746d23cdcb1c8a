"""Whatever lies in a run directory, each judge ends with an exit code of the contract, and names what was changed."""

import random
import shutil
from pathlib import Path

import pytest

from runs.record.layout import RunDir
from tests.support.editing import reseal
from tests.support.verify_legs import DummyLegs
from tests.untrusted.box import in_box
from tests.untrusted.judges import call, of_legs, wrong
from tests.untrusted.mutations import clear, mutate

LEGS = ("performance/run_1", "accuracy")
QUICK, MANY = 10, 2000


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A performance and an accuracy leg, judged once so that nothing is left to import."""
    root = tmp_path_factory.mktemp("untrusted")
    legs = DummyLegs()
    for name, mode in zip(LEGS, ("performance", "accuracy"), strict=True):
        shutil.copytree(legs("Offline", mode), root / "result" / name)
    for command, words in of_legs(root / "result", root / "out").items():
        code, said = call(*words)
        assert wrong(command, code, said) == ""
    return root / "result"


def one_mutation(result: Path, folder: Path, number: int) -> str:
    """Change a file of a copy by its number, and ask some judges, or all; says what is wrong."""
    chance = random.Random(f"run directory {number}")
    copy, out = folder / "result", folder / "out"
    clear(folder)
    shutil.copytree(result, copy)
    leg = RunDir(copy / chance.choice(LEGS))
    path = chance.choice(sorted(one for one in leg.root.iterdir() if one.is_file()))
    how = mutate(path, chance)
    covered = chance.random() < 0.5 and path.name != leg.seal.name and _reseal(leg)
    problems = [_verify(copy, out, path, tell=bool(how) and not covered and path != leg.seal)]
    commands = of_legs(copy, out)
    asked = chance.sample(sorted(commands.keys() - {"verify"}), 2) + (["signoff"] if covered else [])
    problems += [wrong(name, *call(*commands[name])) for name in asked]
    problems = [one for one in problems if one]
    clear(folder)
    return (
        f"{number}: {how} of {path.name}{', sealed anew' if covered else ''}: {'; '.join(problems)}" if problems else ""
    )


def _reseal(leg: RunDir) -> bool:
    """Seal anew, where every file can be read."""
    if any(path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20 for path in leg.root.iterdir()):
        return False
    reseal(leg)
    return True


def _verify(copy: Path, out: Path, path: Path, *, tell: bool) -> str:
    """verify finds every byte that was changed since the leg was sealed, and names the file."""
    code, said = call(*of_legs(copy, out)["verify"])
    if problem := wrong("verify", code, said):
        return problem
    if tell and code not in (2, 4):
        return f"verify: exit code {code}: {said[-400:]}"
    return f"verify does not name {path.name}: {said[-600:]}" if tell and path.name not in said else ""


def run(result: Path, folder: Path, numbers: range) -> list[str]:
    def work(place: int) -> str:
        return one_mutation(result, folder, numbers[place])

    return [said for _, said in in_box(work, len(numbers)) if said]


def test_some_mutations(result: Path, tmp_path: Path) -> None:
    assert run(result, tmp_path / "one", range(QUICK)) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_mutations(result: Path, tmp_path: Path, part: int) -> None:
    begin = QUICK + part * MANY // 4
    assert run(result, tmp_path / "one", range(begin, begin + MANY // 4)) == []
