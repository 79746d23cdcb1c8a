"""The prose of the documentation: terms, American spelling, short sentences, and linked pages."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from scenarios.commands import COMMANDS
from scenarios.dispatch import cli
from tests.conftest import ROOT
from tests.support.documents.documentation import DOCUMENTS, WORKED_EXAMPLE

HISTORY = {"CHANGELOG.md"}  # entries keep the words of their time


def name_of(path: Path) -> str:
    """Return the path of the page below the root of the repository."""
    return path.relative_to(ROOT).as_posix()


PAGES = [path for path in (*DOCUMENTS, WORKED_EXAMPLE) if name_of(path) not in HISTORY]

# The first page of each kind of reader: serving engineer, submitter, reviewer, contributor
FIRST_PAGES = ("docs/start-server.md", "docs/tutorial.md", "docs/start-review.md", "CONTRIBUTING.md")
MAX_WORDS_OF_A_FIRST_PAGE = 800
WITHOUT_COMMAND = {"docs/glossary.md", "tools/README.md"}  # lists of terms and of programs
MAX_WORDS_ON_AVERAGE = 30
MAX_WORDS = 30  # maximum of one sentence; code is not counted

# Replaced words: a pattern, and the term to write.
REPLACED = {
    r"legs?": "run, or result for the two runs of a scenario",
    r"box(es)?": "SUT, system or server",
    r"made of": "built from",
    r"a tune|tunes": "tuning",
    r"criteri(on|a)": "rule",
    r"gravest": "most severe",
    r"held to|latecomers?": "rule applied, late query",
    r"outcomes?|judge?ments?": "verdict",
    r"judge[sd]?|judging": "check, verify, evaluate",
    r"(derived?|scored?|judged?|computed?|measured?|run) again": "recompute, rescore, re-evaluate, repeat",
    r"on record|of the record": "in the manifest, in the request log",
    r"seal(s|ed)?": "attestation, signed, anchored",
    r"in force|asked( for)?|is asked|was asked": "effective, requested",
    r"answer(s|ed|ing)?": "response, respond",
    r"mechanisms?|levers?|knobs?": "technique, changed option",
    r"rooms?|floors?|houses?|ways?": "package, module, layer",
    r"lack(s|ed|ing)?|at hand|(is|are|was|were) (not )?there": "is missing, is available",
    r"tells?|told|says?|said": "report, state, print",
    r"several": "multiple",
    r"known": "supported, recognized",
    r"data sets?|(?-i:ids?)|the hub": "dataset, ID, Hugging Face Hub",
    r"(licence|catalogue|centre|colour|artefact|programme|\w+iour|\w+isation)s?|whilst": "American spelling",
    r"(cancell|labell|modell)(ed|ing)|\w+yse[sd]?|\w+(gn|ar|al|im|ken|nt|om|il)is(e[sd]?|ing)": "American spelling",
}
# Permitted words by page, in another sense: parts of a name, or a term of another project.
EXCEPTIONS: dict[str, set[str]] = {"anchor": {"run again"}, "docs/json.md": {"judged"}}


def prose(path: Path) -> Iterator[str]:
    """Return the paragraphs, list items and table cells of a page, without code, targets and marks."""
    text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "\n", path.read_text())
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("|"):
            for row in block.strip().splitlines():
                yield from (cell.strip() for cell in row.strip("|").split("|"))
        else:
            for item in re.split(r"(?m)^ *(?:[-*]|\d+\.|#+|\|) +", block):
                yield " ".join(item.split())


def sentences(path: Path) -> list[list[str]]:
    """Return the sentences of a page, each as its words."""
    sentence_words = [part.split() for text in prose(path) for part in re.split(r"(?<=[.!?:])[*)\"]*\s+", text)]
    sentence_words = [[word for word in words if not word.startswith("CODE")] for words in sentence_words]
    return [words for words in sentence_words if len(words) > 2]  # shorter ones are names in tables


def links(path: Path) -> set[Path]:
    """Return the Markdown pages that a page links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+\.md)", path.read_text())
    return {(path.parent / target).resolve() for target in targets}


def replaced_words(text: str, name: str) -> list[str]:
    """Return the words of a text that another term replaces, except those that its name permits."""
    return [
        f"{name}: {match.group()!r}: write {term}"
        for pattern, term in REPLACED.items()
        for match in re.finditer(rf"(?i)(?<![\w-])(?:{pattern})(?![\w-])", text)
        if match.group().lower() not in EXCEPTIONS.get(name, set())
    ]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_use_the_terms_of_the_glossary(path: Path) -> None:
    replaced = replaced_words("\n".join(prose(path)), name_of(path))
    assert not replaced, "\n".join(replaced)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_use_the_terms_of_the_glossary(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "--help-all"]).output
    assert "Usage" in text
    replaced = replaced_words(re.sub(r"\S*(?:seal\.json|MECHANISM|mechanisms?)\S*", "", " ".join(text.split())), name)
    assert not replaced, "\n".join(replaced)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_sentences_are_short(path: Path) -> None:
    page_sentences = sentences(path)
    assert [" ".join(words) for words in page_sentences if len(words) > MAX_WORDS] == []
    assert sum(map(len, page_sentences)) / len(page_sentences) <= MAX_WORDS_ON_AVERAGE


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_has_a_title_and_a_command(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# ")
    assert name_of(path) in WITHOUT_COMMAND or re.search(r"(?m)^```(sh|bash)?$\n\S", text)


@pytest.mark.parametrize("path", [*DOCUMENTS, WORKED_EXAMPLE], ids=name_of)
def test_rows_of_a_table_have_equal_columns(path: Path) -> None:
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        columns = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in table.splitlines()}
        assert len(columns) == 1, table


@pytest.mark.parametrize("name", FIRST_PAGES)
def test_first_pages_are_short(name: str) -> None:
    assert len((ROOT / name).read_text().split()) <= MAX_WORDS_OF_A_FIRST_PAGE


def test_each_page_is_within_two_clicks() -> None:
    first = links(ROOT / "README.md")
    second = {page for path in first for page in links(path)}
    assert {path.resolve() for path in (*DOCUMENTS, WORKED_EXAMPLE)} - {ROOT / "README.md"} <= first | second


def test_each_exception_is_needed() -> None:
    """An exception that no page needs must be removed."""
    for name, words in EXCEPTIONS.items():
        if name in COMMANDS:
            continue
        text = "\n".join(prose(ROOT / name)).lower()
        assert all(re.search(rf"(?<![\w-]){word}(?![\w-])", text) for word in words), name
