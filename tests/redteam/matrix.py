"""Each cheat with each check, in the real LoadGen; writes the tables of docs/red-team.md.

`python -m tests.redteam.matrix` in the root of the repository runs everything (some minutes) and rewrites the tables.
"""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runs.errors import ExitCode
from tests.support.engines.cheats import CHEAT, CHEAT_KINDS, STORE
from tests.support.processes import warm
from tests.untrusted.contracts import call

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "red-team.md"
SAMPLES = 32
# Systems are examined in parallel. Their runs sleep, and compute little in Python.
WORKERS = 6
# About 33 ms per sample, nearly all of it for the prompt (1,450 byte tokens). So a change of the output length, which
# several cheats make, does not look like a cache. The milliseconds of a busy host do not, either.
MODEL = ("--dummy-ttft-ms", "2", "--dummy-prefill-us", "20", "--dummy-tpot-ms", "0.02", "--dummy-slots", "4")
# TEST06 compares no times.
FAST_MODEL = (*MODEL, "--dummy-prefill-us", "2")
# An early first token differs clearly from 150 ms per sample, also if a busy host delays it.
SLOW_MODEL = (*MODEL, "--dummy-prefill-us", "100")
# A run of half of the samples in sequence takes the time that output_caching needs to compare runs.
CACHING_MODEL = (*MODEL, "--dummy-prefill-us", "120", "--dummy-slots", "1")
# The engine keeps queries with delayed first tokens, and needs slots for them.
WIDE_MODEL = (*MODEL, "--dummy-slots", "0")
# Each sample is issued twice, so that there are repetitions. The rate of Server is far below the capacity.
USER_CONF = f"""
*.Offline.min_duration = 1
*.Offline.min_query_count = {SAMPLES}
*.Offline.target_qps = 1
*.SingleStream.min_duration = 1
*.SingleStream.target_latency = 35
*.SingleStream.min_query_count = {2 * SAMPLES}
*.Server.min_duration = 1
*.Server.target_qps = 40
*.Server.min_query_count = {4 * SAMPLES}
"""
CHECKS = ("run", "verify", "output_caching", "TEST06", "output_consistency", "output_length")
SCENARIOS = ("SingleStream", "Server", "Offline")
# All cheats in one scenario; in the others, the cheats that a scenario may hide. '' is the honest system.
_BY_TIME = (
    "cache-index", "cache-prompt", "cache-not-in-a-row", "cache-late", "cache-on-disk", "cache-part", "share-prefixes",
)  # fmt: skip
_BY_FIRST_TOKEN = ("first-other", "first-early", "first-forced", "first-late")
KINDS: dict[str, tuple[str, ...]] = {
    # First tokens have no limit there, so delaying them gains nothing.
    "SingleStream": ("", *(kind for kind in CHEAT_KINDS if kind != "first-late")),
    "Server": ("", *_BY_TIME, "cache-first", *_BY_FIRST_TOKEN, "answer-early", "other-model-in-bursts"),
    "Offline": ("", *_BY_TIME, "merge-equal", "answer-early", "drop"),
}

# Outcomes of a check on a system. STOPPED: the run or the audit ended with an error that names the contradiction.
PASSES, CAUGHT, STOPPED, REFUSED, NO_VERDICT = "–", "FAIL", "stopped", "n/a", "no verdict"
Row = dict[str, str]


def execute_runs(kind: str, scenario: str, folder: Path) -> Row:
    """Run each check that starts runs, on a system with one cheat or an honest one ('').

    Return the outcomes by check.
    """
    by_first_token = scenario == "SingleStream" and kind in ("first-early", "first-forced")
    model = WIDE_MODEL if kind == "first-late" else SLOW_MODEL if by_first_token else MODEL
    system = _system(scenario, folder, model)
    accuracy, performance = folder / "accuracy", folder / "performance"
    runs = [
        _main(folder, kind, *system, "--accuracy", "--output-log-dir", accuracy),
        _main(folder, kind, *system, "--output-log-dir", performance),
    ]
    row = {"run": STOPPED if ExitCode.FAILED in runs else PASSES}
    for test in ("output_caching", "TEST06"):
        # The system has not seen the dataset before. Later, its files on disk would look like honest work.
        row[test] = run_audit(test, scenario, folder / f"new-{test}", kind)
    return row


def judge(folder: Path) -> Row:
    """Return the outcomes of the checks that only need the two runs."""
    accuracy, performance = folder / "accuracy", folder / "performance"
    row = {"verify": _verify_outcome(folder, accuracy, performance)}
    for test in ("output_consistency", "output_length"):
        row[test] = judge_runs(test, accuracy, performance, folder)
    return row


def run_audit(test: str, scenario: str, folder: Path, kind: str = "") -> str:
    """Run one audit with its own runs. Return its outcome."""
    system = _system(scenario, folder, {"TEST06": FAST_MODEL, "output_caching": CACHING_MODEL}.get(test, MODEL))
    code = _main(folder, kind, "audit", "--test", test, *system, "--output-log-dir", folder / test)
    ran = (folder / test / "audit" / test).is_dir()
    return NO_VERDICT if code == ExitCode.REFUSED and ran else _outcome_of_code(code)


def judge_runs(test: str, accuracy: Path, performance: Path, folder: Path) -> str:
    """Let one audit judge two existing runs. Return its outcome. Do not call it in threads."""
    existing = ("--ref", accuracy, "--run", performance, "--output-log-dir", folder / test)
    return _outcome_of_code(_run_and_log(folder, call("audit", "--test", test, *existing)))


def _system(scenario: str, folder: Path, model: tuple[str, ...]) -> list[object]:
    """Return the options of a system's runs."""
    folder.mkdir(parents=True, exist_ok=True)
    user_conf = folder / "user.conf"
    user_conf.write_text(USER_CONF)
    return [
        "--scenario", scenario, "--engine", "dummy", "--user-conf", user_conf, "--total-sample-count", SAMPLES, *model,
    ]  # fmt: skip


def _verify_outcome(folder: Path, accuracy: Path, performance: Path) -> str:
    record = folder / "verify.json"
    _run_and_log(folder, call("verify", accuracy, performance, "--output", folder / "verify", "--json", record))
    failed = failed_checks(json.loads(record.read_bytes()))
    return CAUGHT if failed - NOT_FOR_THE_DUMMY else PASSES


# Without a model there are no target scores, and such short runs are not VALID on each host.
NOT_FOR_THE_DUMMY = {"accuracy-no-target", "perf-validity"}


def failed_checks(record: dict[str, Any]) -> set[str]:
    """Return the violated rules of results that are not eligible, with `contradictions` if there are any."""
    names = set()
    for result in record["results"]:
        findings = result["findings"]
        broken = [
            finding
            for finding in findings
            if finding["severity"] not in ("pass", "note") and finding["kind"] != "official"
        ]
        names |= {"contradictions" if finding["kind"] == "contradiction" else finding["rule"] for finding in broken}
        names |= {"contradictions"} if result["error"] else set()
    return names


def _outcome_of_code(code: int) -> str:
    words = {
        ExitCode.OK: PASSES,
        ExitCode.NEGATIVE: CAUGHT,
        ExitCode.REFUSED: REFUSED,
        ExitCode.FAILED: STOPPED,
    }
    return words[ExitCode(code)]


def _main(folder: Path, kind: str, *arguments: object) -> int:
    # Each cheat has its own files on disk
    code, stdout, stderr = warm.run(arguments, folder, {STORE: str(folder / "store"), CHEAT: kind})
    return _run_and_log(folder, (code, stdout + stderr))


def _run_and_log(folder: Path, ended: tuple[int, str]) -> int:
    """Run a command and keep its output. Return the exit code."""
    code, output = ended
    with (folder / "said.txt").open("a") as log:
        log.write(f"{output}exit code {code}\n\n")
    assert "Traceback" not in output, output
    return code


def examine_all(scenario: str, folder: Path) -> dict[str, Row]:
    """Examine all systems of the scenario, some in parallel. Return the outcomes by cheat and check."""
    folders = {kind: folder / (kind or "honest") for kind in KINDS[scenario]}
    with ThreadPoolExecutor(WORKERS) as pool:
        ran = list(pool.map(lambda kind: execute_runs(kind, scenario, folders[kind]), folders))
    rows = {kind: row | judge(folders[kind]) for kind, row in zip(folders, ran, strict=True)}
    return {kind: {check: row[check] for check in CHECKS} for kind, row in rows.items()}


# The document ---------------------------------------------------------------------------------------------------------


def table(rows: dict[str, Row]) -> str:
    """Return the rows as Markdown table: for each system, the checks that it does not pass."""
    lines = ["| the system | caught by |", "|---|---|"]
    for kind, row in rows.items():
        named = {CAUGHT: "{}", STOPPED: "{} (stopped)", REFUSED: "{} (n/a)", NO_VERDICT: "{} (no verdict)"}
        outcome = ", ".join(named[word].format(check) for check, word in row.items() if word != PASSES)
        lines.append(f"| {kind or 'honest'} | {outcome or PASSES} |")
    return "\n".join(lines) + "\n"


def _marks(scenario: str) -> tuple[str, str]:
    return f"<!-- measured: {scenario} -->\n", f"<!-- end: {scenario} -->\n"


def documented(scenario: str) -> dict[str, Row]:
    """Return the rows of the document for a scenario."""
    start, end = _marks(scenario)
    lines = DOCUMENT.read_text().split(start)[1].split(end)[0].splitlines()[2:]
    rows = {}
    for line in lines:
        kind, outcome = (cell.strip() for cell in line.strip("|").split("|"))
        row = dict.fromkeys(CHECKS, PASSES)
        for word in [] if outcome == PASSES else outcome.split(", "):
            check, _, how = word.partition(" ")
            row[check] = how.strip("()") or CAUGHT
        rows["" if kind == "honest" else kind] = row
    return rows


def write_table(scenario: str, rows: dict[str, Row]) -> None:
    """Replace the rows of the document for the scenario."""
    start, end = _marks(scenario)
    text = DOCUMENT.read_text()
    before, rest = text.split(start)
    DOCUMENT.write_text(before + start + table(rows) + end + rest.split(end)[1])


def main() -> None:
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            write_table(scenario, examine_all(scenario, Path(folder)))


if __name__ == "__main__":
    main()
