"""Commands on directories of other commands: they name these commands, and the named commands accept the directory."""

import re
import shlex
from pathlib import Path

import pytest

from runs.errors import ExitCode
from tests.conftest import run_here
from tests.support.runs.dummy_runs import DummyRuns

COMMANDS = (
    "report {}",
    "results {}",
    "results {} --json",
    "status {}",
    "status {} --json",
    "audit --test TEST06 --run {}",
    "audit --test TEST06 --ref {} --run {}",
    "check {}",
    "verify {}",
    "store ingest {} --db {}.sqlite",
    "gate {}",
    "submit {} --output {}.tree --organization A --system-name B",
    "anchor {} --ledger {}.ledger",
)
# Commands that read the directory, or describe it in their own words
READ = {
    "logs": {"verify", "store", "gate", "submit"},
    "tree": {"check"},
    "bench": {"report", "results", "status", "verify"},
    "empty": {"status"},
    "missing": {"gate"},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("places")
    DummyRuns().copy(root / "logs", "Offline", bare=True)
    (root / "tree/closed/Example/results").mkdir(parents=True)
    for name in ("bench", "empty"):
        (root / name).mkdir()
    (root / "bench" / "bench.json").write_text("{}")
    return {name: root / name for name in READ}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unsuitable_directory_is_described_by_each_command(places: dict[str, Path], command: str) -> None:
    name = command.partition(" ")[0]
    for kind, path in places.items():
        if name in READ[kind]:
            continue
        finished = run_here(*shlex.split(command.replace("{}", str(path))))
        assert finished.code == ExitCode.BAD_INPUT, (kind, finished)
        assert "Traceback" not in finished.stderr
        reasons = {"logs": "LoadGen's logs", "tree": "is a submission tree", "bench": "is the directory of a bench",
                   "empty": "is empty", "missing": "does not"}  # fmt: skip
        assert f"{path} {'has ' * (kind == 'logs')}{reasons[kind]}" in finished.stderr, (kind, finished.stderr)
        named = set(re.findall(r"`(?:\S+ )?main\.py (\w+)", finished.stderr))
        suggested = {"logs": {"verify", "store", "check"}, "tree": {"check"}, "bench": {"verify", "results", "report"}}
        assert named == suggested.get(kind, set()), finished.stderr


def test_commands_named_in_a_refusal_accept_the_directory(places: dict[str, Path]) -> None:
    refused = run_here("report", places["logs"])
    for words in re.findall(r"`main\.py (.*?)`", refused.stderr):
        if "TREE" not in words:
            finished = run_here(
                *shlex.split(words), *(["--db", places["logs"].with_suffix(".db")] * ("store" in words))
            )
            assert "required: " not in finished.stderr, finished.stderr


def test_a_directory_without_runs_is_named_beside_one_with_runs(places: dict[str, Path], tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Offline").root
    message = f"{places['logs']} has LoadGen's logs"
    assert message in run_here("results", run, places["logs"]).stderr
    status = run_here("status", run, places["logs"])
    assert (status.code, message in status.stdout) == (ExitCode.OK, True)
    page = tmp_path / "page.html"
    assert run_here("report", run, places["logs"], "--output", page).code == ExitCode.OK
    assert "has LoadGen&#39;s logs" in page.read_text()


def test_status_names_an_empty_directory(places: dict[str, Path]) -> None:
    finished = run_here("status", places["empty"])
    assert finished.code == ExitCode.OK
    assert f"{places['empty']} is empty" in finished.stdout


def test_an_audit_of_existing_runs_needs_logs(places: dict[str, Path]) -> None:
    finished = run_here("audit", "--test", "TEST04", "--ref", places["logs"], "--run", places["empty"])
    assert finished.code == ExitCode.BAD_INPUT
    assert f"--run {places['empty']} is empty" in finished.stderr
