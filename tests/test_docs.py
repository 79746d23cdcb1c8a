"""The documentation says what the programs say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_help_blocks_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/update_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_has_its_help_in_the_documentation() -> None:
    text = "".join(path.read_text() for path in DOCUMENTS)
    programs = ("scripts/get_model.py", "scripts/prepare_dataset.py", "scripts/make_rehearsal_dataset.py")
    commands = (
        "run",
        "audit",
        "campaign",
        "tune",
        "verify",
        "submit",
        "check",
        "signoff",
        "gate",
        "store",
        "doctor",
        "status",
        "results",
    )
    for command in (*(f"main.py {name}" for name in commands), *programs):
        assert f"<!-- help: {command} -->" in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
    for named in re.findall(r"`((?:sut|qsl|runs|scenarios|compliance|scripts|configs|tests)/[\w./-]+)`", text):
        assert (ROOT / named).exists(), f"{path.name} names {named}"
