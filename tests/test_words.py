"""The terms of the project: a word that the style guide replaces occurs only in keys, rule IDs and options."""

import re
import subprocess
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests.conftest import ROOT

REPLACED = {"leg", "legs", "lever", "levers", "knob", "knobs"}  # replaced by: run, changed option, option
RESPONSES = {"answer", "answers"}  # in names of Python; in a text it may be a verb
NAMES_GONE = {"look", "walk", "room", "floor", "way", "ways", "told", "latecomer", "latecomers", "gravest"}
PHRASES = re.compile(
    r"\bdata sets?\b|\b\w*(?:organis[ae]|quantis|tokenis|normalis|summaris|recognis|customis|optimis)\w*"
    r"|\b\w*(?:behaviour|favour|neighbour|honour)\w*",
    re.IGNORECASE,
)
# Keys of JSON records, and names of directories; always in quotes.
KEYS = {
    "leg", "legs", "lever", "levers", "lever_class", "lever_evidence", "lever_decomposition", "legs_found",
    "legs_shortened", "answer", "answers",
}  # fmt: skip
# Rule IDs and their parts, options and their fields
INTERFACES = {
    "submit/leg-missing", "several_levers", "G-1/several_levers", "second_knob", "G-1/second_knob", "unknown_lever",
    "G-8/unknown_lever", "search-leg-s", "search_leg_s", "SEARCH_LEG_S", "organisation", "min_tokens_honoured",
}  # fmt: skip
# Attributes and arguments whose name is a key
FIELDS = {
    "compliance/signoff/*.py": {"lever", "levers", "lever_class", "lever_evidence", "lever_decomposition"},
    "tests/compliance/signoff/*.py": {"lever", "levers", "lever_class", "lever_decomposition"},
    "tests/support/simulated/virtual_tune.py": {"levers"},
    "compliance/trees/check_tree.py": {"legs_found"},
    "tests/compliance/submission/*.py": {"legs_found"},
    "compliance/*.py": {"answers", "answers_sha256"},
    "scenarios/tune/signed_options.py": {"levers"},
    "tests/signoff/*.py": {"borrow_answers", "lever", "levers"},  # a fault that frozen cases name
    "runs/record/*.py": {"answers"},
    "tests/*.py": {"answers"},
    "docs/json.md": {"leg", "legs", "levers", "lever_class", "lever_decomposition", "lever_evidence", "answer"},
    "sut/http/*.py": {"answers", "longest_answer_ns"},
    "*": {
        "answers_with_cached_count", "answers_with_their_id", "answers_with_their_prompt", "answers_in_one_chunk",
        "answers_read_at_once",
    },
}  # fmt: skip
# Texts of others, frozen texts, and this list
LEFT_OUT = (
    "qsl/embedded/data/*", "compliance/techniques/registry/*", "requirements/*", "tests/frozen/*.txt",
    "tests/signoff/cases.jsonl", "CHANGELOG.md", "tests/test_words.py",
    "tests/test_prose.py",
)  # fmt: skip
QUOTED = ('""', "''", "``", "::")  # the last in urn:mlperf-llama-vllm:leg:v1, the type of an attestation
TOKEN = re.compile(r"[A-Za-z_]\w*(?:[-/]\w+)*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def texts() -> Iterator[tuple[str, str]]:
    """Return the text files of the repository, by path."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in listed.split():
        file = ROOT / path
        if file.is_file() and not any(fnmatch(path, pattern) for pattern in LEFT_OUT):
            content = file.read_bytes()
            if b"\0" not in content:
                yield path, content.decode()


def has_part(token: str, words: set[str]) -> bool:
    return not words.isdisjoint(part.lower() for part in PART.findall(token))


def is_field(path: str, name: str) -> bool:
    return any(name in names and fnmatch(path, pattern) for pattern, names in FIELDS.items())


def names_a_case(path: str, text: str, match: re.Match[str]) -> bool:
    """Return True for a name of a frozen case, such as the key `"a leg too many": …` in a test."""
    line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
    return path.startswith("tests/") and bool(re.match(r'\s*f?"[^"]*":', line))


def is_interface(path: str, text: str, match: re.Match[str]) -> bool:
    token = match.group()
    quoted = text[match.start() - 1 : match.start()] + text[match.end() : match.end() + 1] in QUOTED
    is_case = (path.startswith("tests/") and "-" in token) or names_a_case(path, text, match)
    is_key = token in KEYS and (quoted or path == "docs/json.md")
    return token in INTERFACES or is_key or is_field(path, token) or is_case


def test_replaced_words_occur_only_in_interfaces() -> None:
    violations = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts()
        for match in TOKEN.finditer(text)
        if has_part(match.group(), REPLACED) and not is_interface(path, text, match)
    ]
    assert violations == []


def test_replaced_phrases_do_not_occur() -> None:
    violations = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts()
        for match in PHRASES.finditer(text)
        if match.group() not in INTERFACES and not names_a_case(path, text, match)
    ]
    assert violations == []


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names in a Python file with their lines, except functions of other libraries and modules of tools."""
    with path.open("rb") as file:
        tokens = [(token.type, token.string, token.start[0]) for token in tokenize.tokenize(file.readline)]
    for (_, module, _), (kind, name, line) in zip(tokens, tokens[2:], strict=False):
        if kind == tokenize.NAME and module not in ("ast", "os", "math", "tools"):
            yield line, name


def test_replaced_words_do_not_occur_in_names() -> None:
    violations = [
        f"{path}:{line}: {name}"
        for path, _ in texts()
        if path.endswith(".py")
        for line, name in names(ROOT / path)
        if name in NAMES_GONE
        or (name == "broken" and not path.startswith("tests/"))
        or re.match(r"_?(?:MOST|LEAST)_", name)
        or (has_part(name, RESPONSES) and not is_field(path, name) and not name.startswith("test_"))
    ]
    assert violations == []
