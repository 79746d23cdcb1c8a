"""docs/tutorial.md up to the check before the upload, typed line by line in a fresh clone.

The runs are short runs of the dummy engine with the embedded model's tokenizer. External inputs are replaced, and the
files are edited that the reader should edit. The benchmark is small in each process, and the tree is a rehearsal. All
other lines are typed as they are.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from qsl.embedded.default_model import ensure_default_model
from tests.conftest import ROOT
from tests.support.documents.documentation import CommandLine, command_lines

ROWS = 128
WALK = ROOT / "docs" / "tutorial.md"
MODEL, DATA = "../Llama-3.1-8B-Instruct", "../mlperf/cnn_eval.json"
REHEARSAL_DATA = "../mlperf/rehearsal.json"

# A benchmark of 128 rows with short runs. The targets of the scores are the official ones per sample.
SMALL = """
import sys
sys.path.insert(0, {harness!r})
from runs.benchmarks import BENCHMARKS
from runs.rounds import CURRENT_ROUND
from tests.support.official import changed
sys.path.pop(0)
for key, one in list(BENCHMARKS.items()):
    if one.submission_name == "llama3.1-8b":
        scale = {rows} / one.accuracy_samples
        scores = {{name: target.reference * (scale if name.startswith("gen") else 1)
                  for name, target in one.targets.items()}}
        BENCHMARKS[key] = small = changed(one, {rows}, min_duration_ms=500, targets=one.targets_for(scores))
        CURRENT_ROUND.table.benchmarks[one.submission_name] = small.entry
object.__setattr__(CURRENT_ROUND.table, "min_duration_ms", 500)
"""
USER_CONF = """
*.Offline.target_qps = 60
*.Offline.min_duration = 600
*.Offline.min_query_count = 128
*.Server.target_qps = 400
*.Server.min_duration = 600
*.Server.min_query_count = 512
"""
DUMMY = {"engine": "dummy", "dummy_shortest_tokens": 120, "dummy_slots": 64, "dummy_ttft_ms": 2, "dummy_tpot_ms": 0.5}
ACCELERATOR = {"accelerators_per_node": 1, "accelerator_model_name": "NVIDIA H100"}  # as in the name of the system
SKIPPED = (
    "git",
    "cd",
    "make",
    "export",
    "hf",
    "curl",
    "sha256sum",
    "tar",
)  # the clone, the environment and the model exist


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of the committed files, with an environment in it and a model beside it."""
    home = tmp_path_factory.mktemp("walk")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(home / "harness")], check=True)
    (home / "harness" / ".venv").symlink_to(Path(sys.prefix))
    (home / "Llama-3.1-8B-Instruct").symlink_to(ensure_default_model())
    (home / "small").mkdir()
    (home / "small" / "sitecustomize.py").write_text(SMALL.format(harness=str(home / "harness"), rows=ROWS))
    return home


def run_line(line: CommandLine, home: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    words = [word.replace(DATA, REHEARSAL_DATA) for word in line.words]
    environment = {
        **os.environ,
        "PYTHONPATH": str(home / "small"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [*words, *(word.replace(DATA, REHEARSAL_DATA) for word in more)],
        cwd=home / "harness",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(line, *words, *more, done.returncode, done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    assert "Traceback" not in done.stderr
    return done


def edit(path: Path, **values: object) -> None:
    content = yaml.safe_load(path.read_text())
    for name in ("dtype", "engine_arg"):
        content.pop(name, None)
    path.write_text(yaml.safe_dump({**content, **values}))


def edit_files(folder: Path) -> None:
    """Edit the files as a person would: the available engine, the measured rates, facts of the system."""
    (folder / "user.conf").write_text(USER_CONF)
    edit(folder / "run.yaml", **DUMMY)
    scenarios = {"Offline": {"dummy_ttft_ms": 700}, "Server": {}, "Interactive": {}}
    edit(folder / "campaign.yaml", **DUMMY, user_conf=str(folder / "user.conf"), scenarios=scenarios)
    system = yaml.safe_load((folder / "system.yaml").read_text())
    facts = {name: "filled in" if value == "REPLACE-ME" else value for name, value in system["system"].items()}
    (folder / "system.yaml").write_text(yaml.safe_dump({"system": {**facts, **ACCELERATOR, "status": "available"}}))


@pytest.mark.long
def test_the_tutorial_runs_as_written(home: Path) -> None:
    seen = []
    for line in command_lines(WALK):
        if line.head in SKIPPED:
            continue
        name = line.arguments[0] if line.head == "main.py" else line.head
        seen.append(name)
        if line.head == "bash":
            rehearse = ("scripts/make_rehearsal_dataset.py", "--model-path", MODEL, "--output", DATA)
            line = CommandLine(line.page, line.line, ("python", *rehearse, "--count", str(ROWS)))
            assert run_line(line, home).returncode == 0
        elif name == "init":
            assert run_line(line, home, "--dataset-path", DATA).returncode == 0
            edit_files(home / "mlperf")
        elif name == "tune":
            more = (
                ("--dummy-ttft-ms", "700", "--offline-qps", "200") if "Offline" in line.words else ("--estimate-s", "1")
            )
            assert run_line(line, home, *more, "--max-probes", "2").returncode in (0, 1)
        elif name in ("run", "verify"):  # short runs at a rate of two probes: VALID or not, PASS or FAIL
            assert run_line(line, home).returncode in (0, 1)
        elif name == "campaign" and "--dry-run" not in line.words:
            finished = run_line(line, home)
            assert finished.returncode == 0
            for scenario in ("Offline", "Server", "Interactive"):
                for run in ("performance", "accuracy", "TEST06"):
                    assert re.search(rf"(?m)^{scenario} {run} +done", finished.stdout)
        elif name == "submit":
            assert run_line(line, home, "--rehearsal").returncode == 0
        elif name == "check":
            # The official checker has no small benchmark. The harness reports only the marks of a rehearsal.
            rehearsal = CommandLine(line.page, line.line, line.words[: line.words.index("--official")])
            findings = json.loads(run_line(rehearsal, home, "--json").stdout)["answer"]["findings"]
            assert {finding["rule"] for finding in findings} == {"rehearsal"}
        else:
            assert run_line(line, home).returncode == 0
    assert set(seen) == {
        *("init", "bash", "doctor", "tune", "run", "verify", "report"),
        *("campaign", "submit", "check"),
    }
    clean = subprocess.run(
        ["git", "-C", str(home / "harness"), "status", "--porcelain", "-uno"], capture_output=True, check=True
    )
    assert clean.stdout == b""
