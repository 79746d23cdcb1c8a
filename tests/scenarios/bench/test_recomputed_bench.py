"""A bench is compared with its run directories: an honest bench, and forged copies."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.benches.bench_verdict import BENCH, BenchVerdict, bench_cases
from compliance.judge.text import text
from compliance.results.scoring import ScoreSources
from compliance.sources import VerdictRequest
from runs.attestation.attestation import read_attestation
from runs.bench.bench_record import BENCH_FILE, read_bench_record
from runs.bench.points import POINTS
from runs.bench.recomputed import BenchAspect, RecomputedBench, recompute_bench
from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import run_here
from tests.signoff.forge.faults import drop_processes
from tests.support.files.editing import edit_lines, reseal, set_at, set_record
from tests.support.once import make_once
from tests.support.processes import warm

LABEL, TTFT_LIMIT_MS = "truth", 2000
# Latencies so long that the client is not late on a busy machine.
COMMAND = (
    "bench --engine dummy --dummy-slots 256 --dummy-ttft-ms 600 --dummy-tpot-ms 50 --input-len 32 --output-len 8 "
    f"--duration 2 --rates 40,60 --limits ttft={TTFT_LIMIT_MS},tpot=200 --label {LABEL} --output-dir"
).split()


def _make(home: Path) -> None:
    code, stdout, stderr = warm.run([*COMMAND, home / "bench"], home)
    assert code == ExitCode.OK, stdout + stderr


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a bench with two rates, of which the best one was measured again."""
    bench = make_once(tmp_path_factory, "dummy-bench", _make) / "bench"
    return Path(shutil.copytree(bench, tmp_path / "bench"))


def checked(folder: Path) -> RecomputedBench:
    return recompute_bench(folder, read_bench_record(folder / BENCH_FILE))


def value_at(folder: Path, place: str) -> Any:
    value = json.loads((folder / BENCH_FILE).read_bytes())
    for name in place.split("."):
        value = value[int(name) if name.isdecimal() else name]
    return value


def multiplied(place: str, factor: float) -> Callable[[Path], None]:
    return lambda folder: set_at(folder / BENCH_FILE, place, value_at(folder, place) * factor)


def replaced(place: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: set_at(folder / BENCH_FILE, place, value)


def with_fact(name: str, value: Any) -> Callable[[Path], None]:
    """Return a function that sets a fact of the system, or removes it with the value None."""

    def change(folder: Path) -> None:
        content = json.loads((folder / BENCH_FILE).read_bytes())
        facts = content["conditions"]["system"]
        assert facts.pop(name) is not None
        facts |= {} if value is None else {name: value}
        (folder / BENCH_FILE).write_text(json.dumps(content))

    return change


def without_the_first_entry(folder: Path) -> None:
    set_at(folder / BENCH_FILE, "runs", value_at(folder, "runs")[1:])


def best_rate_as_a_copy(folder: Path) -> None:
    """The second run at the best rate is a copy of the first one."""
    first, again = (RunDir(folder / value_at(folder, f"runs.{place}.run_dir")) for place in (1, 2))
    shutil.rmtree(again.root)
    shutil.copytree(first.root, again.root)
    set_at(folder / BENCH_FILE, "runs.2", value_at(folder, "runs.1") | {"again": True, "number": 3})
    set_at(folder / BENCH_FILE, "runs.2.run_dir", f"runs/{again.root.name}")


def run_signed_again(folder: Path) -> None:
    """The times of the first tokens are earlier in requests.jsonl, which is signed again."""
    run = RunDir(folder / value_at(folder, "runs.0.run_dir"))
    edit_lines(run.requests, lambda line: line | {"first_token_ns": line["first_token_ns"] - 5_000_000})
    reseal(run)
    set_at(folder / BENCH_FILE, "runs.0.seal_sha256", read_attestation(run).digest)


def exchanged_directories(folder: Path) -> None:
    names = [value_at(folder, f"runs.{place}.run_dir") for place in (0, 1)]
    for place, name in enumerate(reversed(names)):
        set_at(folder / BENCH_FILE, f"runs.{place}.run_dir", name)


def as_failed(folder: Path) -> None:
    """A run that ended well is recorded as a failed run, so that its latencies do not count."""
    entry = value_at(folder, "runs.1")
    kept = {name: entry[name] for name in ("number", "kind", "scenario", "asked_qps", "run_dir")}
    set_at(folder / BENCH_FILE, "runs.1", kept | {"verdict": "failed"})


def without_numbers(folder: Path) -> None:
    entry = value_at(folder, "runs.0")
    kept = {name: entry[name] for name in ("number", "kind", "scenario", "asked_qps", "run_dir", "verdict")}
    set_at(folder / BENCH_FILE, "runs.0", kept)


def faster_system(folder: Path) -> None:
    """A later run has another engine option, which the conditions of the bench do not state, and is signed again."""
    run = RunDir(folder / value_at(folder, "runs.1.run_dir"))
    set_record(run, {"plan.engine_options.slots": 512, "engine.configuration.slots": 512, "asked.dummy_slots": 512})
    set_at(folder / BENCH_FILE, "runs.1.seal_sha256", read_attestation(run).digest)


def other_limits_in_the_conditions(folder: Path) -> None:
    limits = f"{value_at(folder, 'conditions.equal.limits')},e2el=9000.0"
    set_at(folder / BENCH_FILE, "conditions.equal.limits", limits)


def points_with_other_rates(folder: Path) -> None:
    points = folder / POINTS
    points.write_text(points.read_text().replace(",within,", ",measured,"))


FORGERIES: dict[str, tuple[Callable[[Path], None], BenchAspect, str]] = {
    "a halved latency": (multiplied("runs.0.ttft.p90", 0.5), "numbers", "run 1: ttft.p90 is"),
    "a third of the open queries": (multiplied("runs.0.open.mean", 0.3), "numbers", "run 1: open.mean is"),
    "three times the throughput": (
        multiplied("runs.1.output_tokens_per_s", 3), "numbers", "run 2: output_tokens_per_s is"
    ),
    "more queries": (multiplied("runs.0.queries", 2), "numbers", "run 1: queries is"),
    "other processes": (replaced("runs.0.contention", 0.123456), "numbers", "run 1: contention is"),
    "another rate": (
        replaced("runs.1.asked_qps", 75.0), "load", "run 2: rate 75.0 queries/s, but LoadGen's target was 60"
    ),
    "another verdict": (replaced("runs.0.verdict", "maximum"), "numbers", "run 1: verdict is"),
    "a looser limit": (replaced("limits.ttft", 8000.0), "load", "TTFT limit 8000 ms, but LoadGen's was 2000 ms"),
    "a looser percentile": (replaced("percentile", "p99"), "load", "percentile p99, but LoadGen's was p90"),
    "a higher best rate": (replaced("best.low", 75.0), "summary", "the best rate is 75 queries/s"),
    "another label": (replaced("label", "faster"), "summary", "the label is faster, and truth in the recorded command"),
    "another label, without a command": (
        lambda folder: (replaced("label", "faster")(folder), replaced("command", ["bench"])(folder))[-1],
        "conditions",
        "a run of bench truth, not of faster",
    ),
    "another engine option": (
        with_fact("engine_options.slots", 64), "conditions", "engine_options.slots is 64 in bench.json"
    ),
    "a hidden engine option": (
        with_fact("engine_options.slots", None), "conditions", "engine_options.slots = 256 is missing in bench.json"
    ),
    "a later run of another system": (faster_system, "conditions", "run 2: engine_options.slots is 256 in bench.json"),
    "more accelerators": (replaced("accelerators", 8), "conditions", "accelerators is 8 in bench.json, and 0 in"),
    "another tokenizer": (replaced("tokenizer", "/models/other"), "conditions", "tokenizer is /models/other in"),
    "other limits in the conditions": (other_limits_in_the_conditions, "summary", "e2el=9000.0 in the conditions"),
    "an entry less": (without_the_first_entry, "runs", "a complete run without an entry in bench.json"),
    "a copy as the second run at the best rate": (best_rate_as_a_copy, "runs", "runs 2 and 3 have one attestation"),
    "a changed run with a new signature": (run_signed_again, "numbers", "run 1: ttft.mean is"),
    "the directory of another entry": (exchanged_directories, "numbers", "run 1:"),
    "a complete run as a failed run": (as_failed, "runs", "run 2: failed in bench.json, complete in"),
    "an entry without a run": (without_numbers, "runs", "run 1: within without numbers"),
    "changed points": (points_with_other_rates, "summary", "points.csv differs from bench.json"),
}  # fmt: skip


def test_an_honest_bench_has_no_contradiction(folder: Path) -> None:
    bench = checked(folder)
    assert bench.contradictions == []
    assert bench.unverified == ""
    assert bench.record == read_bench_record(folder / BENCH_FILE)
    assert [run.kind for run in bench.record.runs] == ["server"] * 3


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_bench_contradicts_its_runs(name: str, folder: Path) -> None:
    forge, aspect, sentence = FORGERIES[name]
    forge(folder)
    contradictions = checked(folder).contradictions
    assert any(entry.aspect == aspect and sentence in str(entry) for entry in contradictions), contradictions


def test_a_bench_without_run_directories_is_compared_as_not_verified(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "second")
    shutil.rmtree(folder / "runs")
    done = run_here("compare", folder, tmp_path / "second", "-o", tmp_path / "comparison")
    assert done.code == ExitCode.OK, done.stderr
    assert done.stdout.splitlines()[0].startswith(f"{LABEL}: not verified: 3 runs without a run directory")


def verify_bench(folder: Path) -> BenchVerdict:
    (case,) = bench_cases([folder], VerdictRequest(ScoreSources()))
    return case.judge()


def test_a_bench_that_agrees_with_its_runs_passes(folder: Path) -> None:
    verdict = verify_bench(folder)
    assert (verdict.outcome, verdict.exit_code(), verdict.all_findings) == ("PASS", ExitCode.OK, [])
    assert text(verdict, BENCH).startswith(f"PASS: 3 runs of bench {LABEL}")


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_bench_ends_without_a_verdict(name: str, folder: Path) -> None:
    forge, aspect, _ = FORGERIES[name]
    forge(folder)
    verdict = verify_bench(folder)
    assert f"bench-{aspect}" in {finding.rule for finding in verdict.findings}
    assert verdict.exit_code() == ExitCode.FAILED


def test_parts_that_no_run_records_are_listed(folder: Path) -> None:
    set_at(folder / BENCH_FILE, "metadata", {"machine": "another"})
    verdict = verify_bench(folder)
    assert {"command", "metadata", "duration_s", "seed"} <= set(verdict.details.stated)
    assert not {"engine", "engine_options.slots", "sampling.max_tokens"} & set(verdict.details.stated)
    assert text(verdict, BENCH).splitlines()[-1].startswith("stated in bench.json, recorded by no run: command, ")


def test_a_bench_with_a_removed_run_directory_is_not_verified(folder: Path) -> None:
    shutil.rmtree(folder / value_at(folder, "runs.1.run_dir"))
    verdict = verify_bench(folder)
    assert (verdict.findings, verdict.exit_code()) == ([], ExitCode.REFUSED)
    verified = run_here("verify", folder)
    assert verified.code == ExitCode.REFUSED
    assert "not verified: 1 run without a run directory" in verified.stdout.splitlines()[0]


def test_a_log_that_contradicts_itself_is_a_finding_on_the_run_of_the_bench(folder: Path) -> None:
    """The records of a log name no process, and its run is signed again."""
    run = RunDir(folder / value_at(folder, "runs.0.run_dir"))
    drop_processes(run)
    reseal(run)
    set_at(folder / BENCH_FILE, "runs.0.seal_sha256", read_attestation(run).digest)
    verdict = verify_bench(folder)
    assert "log-clock" in {finding.rule for part in verdict.parts for finding in part.findings}
    assert verdict.exit_code() == ExitCode.FAILED


def test_verify_writes_its_verdict_into_the_bench(folder: Path) -> None:
    verified = run_here("verify", folder)
    assert verified.code == ExitCode.OK, verified.stdout + verified.stderr
    record = json.loads((folder / "verify_performance.json").read_bytes())
    assert (record["verdict"], record["bench"], len(record["runs"])) == ("PASS", LABEL, 3)
    assert len(record["log_sha256"]) == 4
    assert [part["verdict"] for part in record["parts"]] == ["PASS"] * 3
    multiplied("runs.0.ttft.p90", 0.5)(folder)
    assert run_here("verify", folder).code == ExitCode.FAILED


def test_options_for_results_are_refused_for_a_bench(folder: Path) -> None:
    refused = run_here("verify", folder, "--official")
    assert refused.code == ExitCode.BAD_INPUT
    assert "--official: not supported for" in refused.stderr


def test_a_damaged_bench_file_is_bad_input(folder: Path) -> None:
    (folder / BENCH_FILE).write_text("{")
    assert verify_bench(folder).exit_code() == ExitCode.BAD_INPUT


def test_compare_and_report_refuse_a_forged_bench(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "second")
    multiplied("runs.0.ttft.p90", 0.5)(folder)
    compared = run_here("compare", folder, tmp_path / "second", "-o", tmp_path / "comparison")
    assert compared.code == ExitCode.REFUSED
    assert "run 1: ttft.p90 is" in compared.stdout
    reported = run_here("report", folder)
    assert reported.code == ExitCode.REFUSED
    assert "run 1: ttft.p90 is" in reported.stderr
