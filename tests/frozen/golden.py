"""The text that each command prints for some inputs, as files in tests/frozen/golden.

The frozen facts are unordered. These texts also protect the order of findings and the form of the output. A wording
changes here and in no other test. `make freeze` writes the files.
"""

import contextlib
import os
import re
import tempfile
from pathlib import Path

from tests.conftest import ROOT
from tests.frozen.cases import FrozenCase, PageCase, cases_of, let_remove

GOLDEN = Path(__file__).parent / "golden"
# Command → its inputs, one or more for each kind of source. The names are those of tests/frozen/cases.py.
INPUTS = {
    "verify": (
        "Server", "pair Server: bare logs", "pair Server: answers cut", "pair Server: runs swapped",
        "Server by the rules of short runs", "campaign", "caching", "null/server-too-few", "null/server-same",
        "any tree/resnet50/SingleStream", "concurrency", "audit-cached", "server-died",
    ),
    "document": ("pair Server", "null/server-too-few"),
    "check": (
        "short tree", "short tree by the rules of whole runs", "short tree: no_audit", "any tree",
        "closed tree of content 0", "tree of its runs: audit_text_says_no", "concurrency",
    ),
    "signoff": ("Server", "null/server", "campaign (bundle)", "pair Server: answers cut"),
    "gate": ("campaign", "campaign (strict)", "Server (declared)", "rows 0"),
    "submit": ("campaign", "campaign: an edited log", "campaign: no performance leg", "campaign (official)"),
    "results": ("campaign", "null/server", "concurrency"),
    "audit": ("TEST04 Server", "output_length Server"),
}  # fmt: skip
# Texts that differ from host to host or from day to day, and their replacements.
VOLATILE = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA-256"),
    (re.compile(r"(manifest|seal)\.json \| [\d,]+ "), r"\1.json | SIZE "),
    (re.compile(r"\(commit [0-9a-f]{40}(, changed)?\)"), "(COMMIT)"),
    (re.compile(r"frozen-\w+"), "TEMPORARY"),
    (re.compile(r"(runs/[a-z-]+)-[0-9a-f]{16}"), r"\1"),
    (re.compile(r"(host_processor_caches|operating_system): .*"), r"\1: DETECTED"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z)?"), "TIME"),
)


def texts(command: str) -> dict[str, str]:
    """Return what the command prints today for each input, by file name."""
    cases = cases_of(command)
    return {f"{command}-{_file_name(name)}": _text(cases[name]) for name in INPUTS[command]}


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower() + ".txt"


def _text(case: object) -> str:
    assert isinstance(case, FrozenCase | PageCase)
    with tempfile.TemporaryDirectory(prefix="frozen-") as folder, contextlib.chdir(ROOT):
        text = case.text(Path(folder))
        let_remove(Path(folder))
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def write(command: str) -> int:
    """Write the files of a command, and return their number."""
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob(f"{command}-*.txt"):
        path.unlink()
    today = texts(command)
    for name, text in today.items():
        (GOLDEN / name).write_text(text, "utf-8", "backslashreplace")
    return len(today)


def read(command: str) -> dict[str, str]:
    """Return the texts in the files of a command, by file name."""
    return {path.name: path.read_text() for path in sorted(GOLDEN.glob(f"{command}-*.txt"), key=os.fspath)}
