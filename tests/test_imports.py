"""How many lines of the product a judging command imports: its reader may have to know all of them."""

from pathlib import Path

import pytest

from compliance.endpoints import JUDGES
from scenarios.commands.check import REBUILD
from tests.support.import_graph import ROOT, closure, heaviest_edges, imported_by, size

# Lines, by command; `endpoints`: together with the modules that are imported by name for run directories; `audit`: and
# for those with an audit; `runs`: for --runs.
BY_NAME = {
    "": [], "endpoints": [JUDGES["verdict"]], "audit": [JUDGES["verdict"], JUDGES["audit"]],
    "curve": [*JUDGES.values()], "runs": [REBUILD],
}  # fmt: skip
MAX_LINES = {
    "verify": 13_400,
    "verify endpoints": 16_120,
    "verify audit": 16_570,
    "check": 19_300,
    "check curve": 22_750,
    "check runs": 28_050,
    "signoff": 32_980,
    "gate": 16_370,
    "store": 16_530,
    "results": 7_180,
    "status": 6_690,
}


@pytest.mark.parametrize("what", MAX_LINES)
def test_a_command_imports_few_lines(what: str) -> None:
    command, _, by_name = what.partition(" ")
    named = (ROOT / f"{name.replace('.', '/')}.py" for name in BY_NAME[by_name])
    files = [ROOT / f"scenarios/commands/{command}.py", *named]
    if (found := size(closure(files))) > MAX_LINES[what]:
        edges = [f"{lines:6,} {one.relative_to(ROOT)} -> {other.relative_to(ROOT)}"
                 for lines, (one, other) in heaviest_edges(files, 20)]  # fmt: skip
        pytest.fail(f"{what}: {found:,} lines, at most {MAX_LINES[what]:,}; by import:\n" + "\n".join(edges))


def test_modules_are_imported_by_name_in_few_places() -> None:
    """A budget says nothing about a module that is imported by name, unless it is named there."""
    packages = ("compliance", "qsl", "runs", "scenarios", "sut")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if "import_module(" in path.read_text()} == {
        "compliance/audits/discovery.py",  # audits; those that a command names are counted
        "compliance/endpoints/__init__.py",  # judges of run folders
        "compliance/judge/rule.py",  # the catalog of all rules
        "runs/machine/accelerators.py",  # vendors' libraries
        "scenarios/command_line/dispatch.py",  # commands
        "scenarios/commands/check.py",  # the comparison with --runs
        *("sut/vllm/core_process.py", "sut/vllm/kind.py"),  # vLLM
    }


def test_imports_inside_functions_count_and_those_for_types_do_not(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import runs.errors\n"
        "if TYPE_CHECKING:\n    from runs.wording import printable\n"
        "def function():\n    from qsl import cache\n"
    )
    found = {str(path.relative_to(ROOT)) for path in imported_by(file)}
    assert found == {"runs/__init__.py", "runs/errors.py", "qsl/__init__.py", "qsl/cache.py"}
