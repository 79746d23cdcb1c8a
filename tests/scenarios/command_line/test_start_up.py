"""Imports of a command before it acts: names and counts of modules limit the start-up time."""

import json
import pkgutil
import subprocess
import sys

import pytest

import scenarios.commands
from scenarios.dispatch import COMMANDS, COMPLETION
from tests.conftest import ROOT

# Libraries that a command line may import
NONE: frozenset[str] = frozenset()
SCHEMAS = frozenset({"pydantic"})
SHOWN = SCHEMAS | {"psutil", "rich"}
LIGHT = ("anchor", "campaign", "curve", "doctor", "init", "quantize", "report", "results", "status")
# Words of a command line → maximum number of imported modules, those of Python included, and the permitted libraries
CASES: dict[str, tuple[int, frozenset[str]]] = {
    "--help": (170, NONE),
    "docter": (170, NONE),
    f"{COMPLETION} sta": (170, NONE),
    **{f"{name} --help": (175, NONE) for name in LIGHT},
    **{f"{name} --help": (300, SCHEMAS) for name in ("check", "gate", "signoff", "store", "submit", "verify")},
    **{f"{name} --help": (330, SCHEMAS) for name in ("run", "tune")},
    "audit --help": (360, SCHEMAS),
    "ab --help": (340, SCHEMAS),
    "bench --help": (335, SCHEMAS),
    "compare --help": (300, SCHEMAS),
    "verify RUN --accuracy-only --performance-only": (300, SCHEMAS),
    "run --scenario Offline --engine none": (330, SCHEMAS),
    "status .": (370, SHOWN),
    "results .": (370, SHOWN),
}
LIBRARIES = frozenset(
    {
        *("cryptography", "datasets", "filelock", "httptools", "httpx", "jinja2", "matplotlib", "mlperf_loadgen"),
        *("msgspec", "nltk", "numpy", "optuna", "pandas", "psutil", "pydantic", "ray", "requests", "rich"),
        *("securesystemslib", "tokenizers", "torch", "transformers", "vllm", "yaml"),
    }
)
# One interpreter that has imported nothing of the harness. A fork of it runs each command line.
PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
for line in sys.stdin.read().splitlines():
    print(line, flush=True)
    if not os.fork():
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        words = line.split()
        if words[0].isupper():
            os.environ |= {words[0]: "bash_complete", "COMP_WORDS": "main.py " + words[1], "COMP_CWORD": "1"}
        import main
        try:
            main.main(words)
        finally:
            os.write(out, json.dumps(sorted(sys.modules)).encode() + b"\\n")
            os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported_modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the modules of each command line."""
    empty = tmp_path_factory.mktemp("empty")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT)],
        cwd=empty,
        input="\n".join(CASES),
        text=True,
        capture_output=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    return {line: set(json.loads(modules)) for line, modules in zip(lines[::2], lines[1::2], strict=True)}


def test_each_command_has_one_module() -> None:
    assert [module.name for module in pkgutil.iter_modules(scenarios.commands.__path__)] == sorted(COMMANDS)


def test_each_command_has_an_import_limit() -> None:
    assert {line.split()[0] for line in CASES} >= COMMANDS.keys()


@pytest.mark.parametrize("line", CASES)
def test_each_command_imports_only_its_libraries(line: str, imported_modules: dict[str, set[str]]) -> None:
    most, allowed = CASES[line]
    assert {name.partition(".")[0] for name in imported_modules[line]} & LIBRARIES <= allowed
    assert len(imported_modules[line]) <= most
