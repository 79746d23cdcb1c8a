"""The Python API: read runs of MLPerf LoadGen, recompute and verify their results, and start runs.

The functions return plain values (dictionaries, lists, NumPy arrays), with the unit at the end of a name: `_ns`, `_ms`,
`_s`. All other modules may change without notice. For large inputs `verify` and `check_tree` start processes: call them
in a script below `if __name__ == "__main__":`. In the examples, `result` is a directory with performance/run_1 and
accuracy in it.

Every function raises `HarnessError` for a missing, damaged or unsupported file, with `message`, `fix` and `exit_code`.
"""

import importlib
import subprocess
import sys
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The packages lie beside this directory in a clone, and in this directory in a wheel: no other distribution shares it.
_HERE = Path(__file__).resolve().parent
ROOT = _HERE if (_HERE / "runs").is_dir() else _HERE.parent
PACKAGES = ("runs", "sut", "qsl", "compliance", "scenarios")


def _import_packages() -> None:
    """Import the packages by their absolute names, without hiding modules of the user that have the same names.

    `ROOT` comes first in the module path for these imports only. It stays last for the processes that Python starts.

    Raises:
        ImportError: If another package with one of the names is already imported.
    """
    sys.path.insert(0, str(ROOT))
    try:
        for name in PACKAGES:
            location = importlib.import_module(name).__file__
            if location is None or Path(location).resolve().parent != ROOT / name:
                raise ImportError(f"package {name!r} is imported from {location}: import mlperf_llama_vllm first")
    finally:
        sys.path.remove(str(ROOT))
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))


_import_packages()

from runs.errors import HarnessError, InputError, error_of  # noqa: E402

if TYPE_CHECKING:
    from compliance.judge.verdict import Verdict
    from runs.record.finished_run import FinishedRun

__all__ = [
    "HarnessError", "Run", "VerdictSummary", "ab", "check_tree", "open_run", "read_bench", "read_detail_log",
    "read_requests", "rederive", "rules", "run", "verify",
]  # fmt: skip
Location = str | PathLike[str]


@dataclass(frozen=True)
class Run:
    """A finished run, or LoadGen's logs of one.

    Attributes:
        scenario: Offline, Server, Interactive or SingleStream.
        benchmark: LoadGen's key of the benchmark, such as llama3_1-8b.
        mode: PerformanceOnly or AccuracyOnly.
        verdict: VALID or INVALID; DONE for a complete accuracy run.
        reasons: Why the verdict is not VALID, and advice.
        numbers: LoadGen's numbers of a performance run: samples_per_second, tokens_per_second, ttft_p99_ms, …
        manifest: manifest.json; None for logs without it.
    """

    directory: Path
    scenario: str
    benchmark: str
    mode: str
    verdict: str
    reasons: list[str]
    numbers: dict[str, float]
    manifest: dict[str, Any] | None


@dataclass(frozen=True)
class VerdictSummary:
    """The verdict on a result or a tree.

    Attributes:
        outcome: PASS, FLAG (only warnings), FAIL, or ERROR: no verdict was reached.
        exit_code: Exit code of the command for this outcome.
        reasons: Why the outcome is FAIL or ERROR, most severe first.
        findings: For each rule and file: rule, severity (error, warning, note, pass), text, found, expected, files,
            numbers, source, fix.
        record: The JSON object of the command (docs/json.md).
    """

    outcome: str
    exit_code: int
    reasons: list[str]
    findings: list[dict[str, Any]]
    record: dict[str, Any]


def open_run(directory: Location) -> Run:
    """Read a run directory, or a directory with LoadGen's logs.

    Examples:
        >>> one = open_run(result / "performance" / "run_1")
        >>> one.scenario, one.mode, one.verdict
        ('Offline', 'PerformanceOnly', 'VALID')
        >>> one.numbers["tokens_per_second"] > 0
        True
    """
    from runs.numbers.derive_result import derive_result

    run = _finished(directory)
    outcome, manifest = derive_result(run, scenario=run.scenario), run.manifest
    numbers = outcome.reported.flat("mean", "p50", "p90", "p99", "max") if outcome.reported else {}
    record = None if manifest is None else manifest.model_dump(mode="json")
    key = run.benchmark.loadgen_key
    return Run(run.dir.root, run.scenario, key, run.mode, outcome.verdict, outcome.reasons, numbers, record)


def read_detail_log(path: Location) -> dict[str, Any]:
    """Return the keys and values of LoadGen's mlperf_log_detail.txt; a repeated key has its last value.

    Examples:
        >>> read_detail_log(result / "performance/run_1/mlperf_log_detail.txt")["effective_scenario"]
        'Offline'
    """
    from runs.loadgen.detail_log import read_detail

    return read_detail(Path(path)).values


def read_requests(path: Location) -> dict[str, Any]:
    """Return the columns of requests.jsonl, of equal length, in the order of issue.

    seq, sample_index, prompt_tokens, output_tokens, issue_ns, first_token_ns (-1: none, as in Offline), complete_ns
    and, with replicas, replica are int64 arrays; times are `time.time_ns()`. finish_reason and output_sha256 (of the
    output's token IDs as int32) are lists of strings.

    Examples:
        >>> requests = read_requests(result / "performance/run_1/requests.jsonl")
        >>> bool((requests["complete_ns"] > requests["issue_ns"]).all())
        True
    """
    from runs.record import requests_log

    table = requests_log.read_request_table(Path(path))
    columns = {name: getattr(table, name) for name in requests_log.FIELDS if name != "token_gaps_us"}
    return {**columns, "output_sha256": list(table.output_sha256)}


def rederive(directory: Location) -> dict[str, Any]:
    """Recompute the result of a run from its request log, and compare it with LoadGen's numbers.

    The keys are those of result.json (docs/run-directory.md): reported (by LoadGen), derived (recomputed; None without
    a request log) and disagreements, the numbers that differ by more than their tolerance.

    Examples:
        >>> found = rederive(result / "performance" / "run_1")
        >>> found["disagreements"], found["derived"]["samples_per_second"] > 0
        ([], True)
    """
    from runs.numbers.derive_result import derive_result

    run = _finished(directory)
    return derive_result(run, scenario=run.scenario).model_dump(mode="json")


def verify(*directories: Location, official: bool = False, in_round: str | None = None) -> list[VerdictSummary]:
    """Verify results from their logs, as `main.py verify` does; write nothing. Return one verdict for each result.

    A damaged log gives the outcome ERROR.

    Args:
        directories: Run directories, results, campaigns, or run directories of the MLPerf Endpoints client. A
            performance and an accuracy run are one result.
        official: Apply the official rules also to runs whose manifest marks them as not eligible for submission.
        in_round: Round whose seeds, limits and sample counts apply, such as v6.1. Default: the round that the
            seeds in the logs name.

    Examples:
        >>> [(one.outcome, one.exit_code) for one in verify(result / "performance/run_1")]
        [('PASS', 0)]
    """
    from compliance.results.scoring import with_scorer
    from compliance.sources import VerdictRequest, find

    with with_scorer(None) as (scores, _):
        request = VerdictRequest(scores, official=official, round=None if in_round is None else _round(in_round))
        return [_summary(case.judge()) for case in find("verify", list(map(Path, directories)), request)]


def check_tree(tree: Location, in_round: str = "v6.1") -> VerdictSummary:
    """Check a submission tree by the rules of a round, as `main.py check` does. `tree` contains closed/ or open/.

    `tree` can also be run directories of the MLPerf Endpoints client, or a submission of them.

    Examples:
        >>> check_tree("nowhere")
        Traceback (most recent call last):
            ...
        runs.errors.InputError: nowhere does not exist
          fix: name a submission tree: the directory with closed/ or open/ in it
    """
    from compliance.results.scoring import ScoreSources
    from compliance.sources import VerdictRequest, find

    (case,) = find("check", [Path(tree)], VerdictRequest(ScoreSources(), round=_round(in_round)))
    return _summary(case.judge())


def rules() -> dict[str, dict[str, Any]]:
    """Return the rules of `verify` and `check_tree` by ID: kind, severity, source, summary and fix.

    Examples:
        >>> rules()["perf-duration"]["severity"]
        'error'
    """
    from compliance.judge.rule import all_rules

    return {
        name: {"kind": rule.kind, "severity": rule.severity, "source": rule.source_in_full, "summary": rule.summary,
               "fix": rule.fix}
        for name, rule in all_rules().items()
    }  # fmt: skip


def read_bench(directory: Location) -> dict[str, Any]:
    """Read bench.json of a `main.py bench` directory; times in ms, rates in queries/s and tokens/s, None if unmeasured.

    The keys are status, label, conditions, limits, runs, best and others; docs/json.md has them all.
    """
    from runs.bench.bench_record import read_bench_record
    from runs.record.layout import BENCH_FILE

    return read_bench_record(Path(directory) / BENCH_FILE).model_dump(mode="json")


def run(*options: Location) -> Run:
    """Start a run with the options of `main.py run`, wait for its end, and open it. Progress goes to standard error.

    Raises:
        HarnessError: If the run is refused or fails. A run whose result is INVALID is returned.
    """
    return open_run(_command("run", *options)["run_directory"])


def ab(*options: Location) -> dict[str, Any]:
    """Compare systems with the arguments and options of `main.py ab`, wait for the end, and return ab.json.

    The keys `changes` and `sentences` state each change with its interval (docs/ab.md).

    Raises:
        HarnessError: If the comparison is refused or fails. A change that --fail-if-slower forbids is returned.
    """
    content: dict[str, Any] = _command("ab", *options)["ab"]
    return content


def _command(name: str, *options: Location) -> dict[str, Any]:
    """Run a command, and return the content of its JSON object."""
    import orjson

    words = [sys.executable, ROOT / "main.py", name, *options, "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    try:
        record = orjson.loads(done.stdout)
    except ValueError:
        raise HarnessError(f"{name} ended with code {done.returncode}") from None
    if record["error"]:
        raise error_of({"cause": "", **record["error"], "exit_code": done.returncode})
    content: dict[str, Any] = record["answer"]
    return content


def _finished(directory: Location) -> "FinishedRun":
    from runs.record.finished_run import finished_run
    from runs.record.layout import RunDir

    return finished_run(RunDir(Path(directory)))


def _round(name: str) -> Any:
    from runs.rounds import ROUNDS

    if name not in ROUNDS:
        raise InputError(f"in_round {name!r}: unknown round", f"use {', '.join(ROUNDS)}")
    return ROUNDS[name]


def _summary(verdict: "Verdict[Any]") -> VerdictSummary:
    from compliance.judge.record import finding_record, record

    findings = [finding_record(finding) for member in (verdict, *verdict.parts) for finding in member.findings]
    return VerdictSummary(verdict.outcome, int(verdict.exit_code()), verdict.reasons, findings, record(verdict))
