"""Complete runs as a user starts them: the dummy engine through the real LoadGen, and all written files."""

import hashlib
import json
import re
from array import array
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

from qsl.dataset import Dataset, load_dataset
from runs.benchmark import LOADGEN_SCENARIO, SCENARIOS
from runs.benchmarks import default_benchmark
from runs.files.writing import sha256_of
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.numbers.result import read_result
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.observed import Contention
from runs.record.requests_log import read_request_table
from sut.dummy.dummy_engine import DummyEngine
from tests.conftest import Finished, StartedMain
from tests.support.official import SAMPLING
from tests.support.once import make_and_keep
from tests.support.processes.warm import RUN_CODE
from tests.support.runs.run_commands import USER_CONF, arguments, progress

OURS = {"seal.json", "manifest.json", "requests.jsonl", "user.conf", "engine.log", "progress.json", "result.json"}
ACCURACY_FILES = {"accuracy.txt", "accuracy.json"}

MODES = ("performance", "accuracy")
# Each scenario and each mode. `make test-long` has the other pairs, which run the same code.
FIRST = [
    ("Offline", "accuracy"),
    ("Server", "performance"),
    ("SingleStream", "performance"),
    ("Interactive", "accuracy"),
]


def _marks(scenario: str, mode: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] * ((scenario, mode) not in FIRST)


ACCURACY = [pytest.param(scenario, marks=_marks(scenario, "accuracy")) for scenario in SCENARIOS]

# Patterns of the official checker for the scores in accuracy.txt, which it matches with each line
OFFICIAL_PATTERNS = {
    **{name: rf".*'{name}':\s+'?([\d.]+)'?.*" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")},
    "gen_len": r".*'gen_len':\s([\d.]+).*",
}


@dataclass
class LaunchedRun:
    """A finished run."""

    scenario: str
    mode: str
    finished: Finished
    dir: RunDir
    working_directory: Path

    @cached_property
    def manifest(self) -> Manifest:
        return read_manifest(self.dir.manifest)

    @cached_property
    def dataset(self) -> Dataset:
        return load_dataset(self.manifest.plan.dataset_path)

    @cached_property
    def responses(self) -> list[list[int]]:
        """Return the response of the dummy engine to each sample."""
        engine = DummyEngine(SAMPLING, lead_tokens=self.manifest.plan.engine_options["lead_tokens"])
        return [engine.response(prompt) for prompt in self.dataset.prompts]


@cache
def run_of(scenario: str, mode: str) -> LaunchedRun:
    """Return the run. It is kept until its code changes."""

    def make(home: Path) -> None:
        (home / "here").mkdir()
        flags = ["--accuracy"] if mode == "accuracy" else []
        words = tuple(arguments(scenario, home / "run", *flags))
        finished = StartedMain(words, home / "here", {}, anew=True).wait()
        assert finished.code == 0, finished.stdout + finished.stderr
        (home / "output.json").write_text(json.dumps(asdict(finished)))

    home = make_and_keep(f"complete-{scenario}-{mode}", make, programs=RUN_CODE)
    finished = Finished(**json.loads((home / "output.json").read_bytes()))
    return LaunchedRun(scenario, mode, finished, RunDir(home / "run"), home / "here")


@pytest.fixture(
    params=[
        pytest.param((scenario, mode), id=f"{scenario}-{mode}", marks=_marks(scenario, mode))
        for scenario in SCENARIOS
        for mode in MODES
    ]
)
def run(request: pytest.FixtureRequest) -> LaunchedRun:
    return run_of(*request.param)


def test_a_run_writes_its_files_and_prints_its_verdict(run: LaunchedRun) -> None:
    assert run.finished.stderr == ""
    outcome = "performance: VALID" if run.mode == "performance" else "accuracy: no target applies"
    assert f"{run.scenario} {outcome}" in run.finished.stdout
    assert "eligible for submission: no" in run.finished.stdout
    assert str(run.dir.root) in run.finished.stdout
    expected = OURS | set(LOADGEN_LOGS) | (ACCURACY_FILES if run.mode == "accuracy" else set())
    assert {path.name for path in run.dir.root.iterdir()} == expected
    assert list(run.working_directory.iterdir()) == []  # no file outside of the run directory
    assert run.dir.user_conf.read_text() == USER_CONF
    assert run.dir.trace.stat().st_size == 0  # LoadGen creates the file although the trace is off


def test_the_manifest_records_the_run(run: LaunchedRun) -> None:
    manifest, plan = run.manifest, run.manifest.plan
    assert (manifest.status, manifest.exit_code, manifest.error) == ("finished", 0, None)
    assert manifest.start_time_ns < manifest.end_time_ns  # type: ignore[operator]  # both are there
    assert manifest.pid != manifest.parent_pid
    assert not manifest.official
    assert any("dummy engine" in reason for reason in manifest.unofficial_reasons)

    assert (plan.scenario, plan.mode) == (run.scenario, run.mode)
    assert plan.loadgen_scenario == LOADGEN_SCENARIO[plan.scenario]
    assert plan.loadgen_key == default_benchmark(plan.scenario).loadgen_key
    assert plan.sample_count == len(run.dataset) == 64
    assert plan.dataset_sha256 == sha256_of(Path(plan.dataset_path))
    assert manifest.asked["scenario"] == run.scenario
    assert manifest.asked.get("accuracy", False) == (run.mode == "accuracy")
    content = json.loads(run.dir.manifest.read_bytes())
    assert content["record"] == 4
    options, differs = content["asked"], content["plan"]  # the plan omits the requested options
    assert "scenario" not in differs
    assert not [name for name in differs if name in options and options[name] == differs[name]]

    observed = manifest.observed
    assert observed.loadgen.extension_sha256 == sha256_of(Path(observed.loadgen.extension))
    assert observed.software["mlcommons-loadgen"] == observed.loadgen.version
    assert observed.harness.version
    assert observed.host.memory_bytes > 0
    assert observed.cached_prompt_tokens == 0
    assert isinstance(observed.contention, Contention)
    assert observed.contention.usable_cores == observed.host.cores_usable
    assert observed.contention.window_s > 0
    assert 0 <= observed.loop_lag.p99_ms <= observed.loop_lag.worst_ms
    assert manifest.engine.configuration.items() <= plan.engine_options.items()
    assert manifest.engine.warm_up.prompts == plan.warmup_prompts


def test_result_and_request_log_agree(run: LaunchedRun) -> None:
    result, table = read_result(run.dir.result), read_request_table(run.dir.requests)
    assert result.disagreements == []
    assert result.scenario == run.scenario
    assert len(table) == result.counts.samples == result.counts.samples_expected
    heartbeat = progress(run.dir.root)
    assert heartbeat["phase"] == "done"
    assert heartbeat["issued"] == heartbeat["completed"] == result.counts.samples
    unknown_before = (run.scenario, run.mode) == ("SingleStream", "performance")
    assert heartbeat["expected"] == (None if unknown_before else result.counts.samples)
    if run.mode == "accuracy":
        assert (result.verdict, result.counts.samples) == ("DONE", 64)
    else:
        assert result.verdict == result.loadgen_verdict == "VALID"
        assert result.reasons == []
        assert result.derived is not None
        assert f"{result.reported.tokens_per_second:,.2f} tokens/s" in run.finished.stdout
    assert table.seq.tolist() == list(range(len(table)))
    samples = table.sample_index.tolist()
    assert set(samples) == set(range(64))
    assert set(table.finish_reason) <= {"stop", "length"}
    assert (table.issue_ns <= table.first_token_ns).all()
    assert (table.first_token_ns <= table.complete_ns).all()
    hashes = [hashlib.sha256(array("i", ids)).hexdigest() for ids in run.responses]
    assert list(table.output_sha256) == [hashes[index] for index in samples]
    assert table.output_tokens.tolist() == [len(run.responses[index]) for index in samples]
    assert table.prompt_tokens.tolist() == [len(run.dataset.prompts[index]) for index in samples]


@pytest.mark.parametrize("scenario", ACCURACY)
def test_the_official_checker_reads_responses_and_scores(scenario: str) -> None:
    run = run_of(scenario, "accuracy")
    entries = read_accuracy_log(run.dir.accuracy_log)
    assert sorted(entry.qsl_idx for entry in entries) == list(range(64))
    for entry in entries:
        response = run.responses[entry.qsl_idx]
        assert list(memoryview(entry.data).cast("i")) == response
        assert entry.token_count == len(response)
        first = None if scenario == "Offline" else array("i", response[:1]).tobytes()
        assert entry.token_data == first
    text = run.dir.accuracy_text.read_text()
    scores = json.loads(run.dir.accuracy_json.read_bytes())["scores"]
    for name, pattern in OFFICIAL_PATTERNS.items():
        (value,) = [match.group(1) for line in text.splitlines() if (match := re.match(pattern, line))]
        assert float(value) == pytest.approx(scores[name])
        assert float(value) > 0
    assert scores["gen_num"] == 64
    assert text == run_of("Offline", "accuracy").dir.accuracy_text.read_text()  # equal in all scenarios
