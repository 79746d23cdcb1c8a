"""The documentation: its commands are valid, and its links exist."""

import importlib
import re
from pathlib import Path

import pytest

from compliance.judge.rule import all_rules
from scenarios.dispatch import COMMANDS
from tests.conftest import ROOT
from tests.support.documents.documentation import DOCUMENTS, CommandLine, command_lines, parse
from tools import command_page
from tools.false_alarms import BEGIN, END, PAGE, own_rules
from tools.peers.__main__ import peers
from tools.product_lines import PACKAGES

LINES = [line for path in DOCUMENTS for line in command_lines(path)]

# Programs of others, and those of the shell
OTHERS = (
    "bash",
    "cd",
    "curl",
    "eval",
    "export",
    "git",
    "hf",
    "kubectl",
    "mkdir",
    "pip",
    "podman",
    "ray",
    "set",
    "sha256sum",
    "tail",
    "tar",
    "test",
    "sed",
    "vllm",
)


MAIN = ("main.py", "mlperf-llama-vllm")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize("line", LINES, ids=str)
def test_documented_commands_are_valid(line: CommandLine) -> None:
    if line.head in MAIN:
        parse(line.arguments)
    elif line.head == "make":
        assert f"\n{line.arguments[0]}:" in (ROOT / "Makefile").read_text()
    elif line.head == "tools.peers":
        peers.make_context("peers", list(line.arguments))
    elif line.head.startswith(("scripts", "tools")):
        program = importlib.import_module(line.head.removesuffix(".py").replace("/", "."))
        program._parser().parse_args(line.arguments)
    elif line.head == "sh" or line.head.startswith("examples/"):
        assert (ROOT / (line.arguments[0] if line.head == "sh" else line.head)).is_file()
    else:
        assert line.head in OTHERS, line


def test_the_page_of_commands_has_the_first_sentence_of_each() -> None:
    assert command_page.documented() == command_page.table(), "run: python -m tools.command_page"


def test_each_command_is_documented() -> None:
    assert {parse(line.arguments) for line in LINES if line.head in MAIN} >= set(COMMANDS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        page = path.parent / target if target else path
        assert page.exists(), f"{path.name} links to {target}"
        if anchor:
            titles = re.findall(r"(?m)^#+ (.*)$", page.read_text())
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor
    for named in re.findall(
        r"`((?:sut|qsl|runs|scenarios|compliance|scripts|tools(?!/submission/)|configs|tests)/[\w./-]+)`", text
    ):
        assert (ROOT / named).exists(), f"{path.name} names {named}"


def test_pages_named_by_messages_exist() -> None:
    """The names are in messages, help texts and comments of the product."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            # A page of another project is named after it, such as [git-lfs, docs/spec.md].
            for page in re.findall(r"(?<![\w/])(?<!\w, )docs/([\w-]+\.md)", file.read_text()):
                assert (ROOT / "docs" / page).is_file(), f"{file.relative_to(ROOT)} names docs/{page}"


def test_each_own_rule_has_a_count_of_false_alarms() -> None:
    """The counts need checkouts of the rounds. A rule without counts is permitted."""
    _, _, rest = PAGE.read_text().partition(BEGIN)
    section = rest.partition(END)[0]
    counted = set(re.findall(r"`([\w/-]+)`", section))
    assert counted <= set(own_rules())
    assert not [rule for rule in set(own_rules()) - counted if all_rules()[rule].severity == "error"]
    for rule, severity in re.findall(r"(?m)^\| `([\w/-]+)` \| (\w+) ", section):
        assert severity == all_rules()[rule].severity, rule
