"""TEST04: the official comparison of two summaries, and ours against the official scripts where there is a checkout."""

import subprocess
import sys
from pathlib import Path

import pytest

from compliance.audits.audit_registry import find_audit
from compliance.audits.base import AuditRequest, LegArtifacts, LegSpec
from compliance.audits.test04 import official_outcome
from runs.errors import InputError, SetupError
from runs.record.layout import RunDir
from runs.record.leg import FinishedLeg
from tests.support.published import CHECKOUT, PUBLISHED, needs_checkout, needs_published


def summary(*lines: str) -> str:
    return "\n".join(["=" * 48, "MLPerf Results Summary", "=" * 48, "SUT name : PySUT", *lines, ""])


def offline(score: float | str, result: str = "VALID", errors: str = "No errors encountered during test.") -> str:
    return summary(
        "Scenario : Offline",
        "Mode     : PerformanceOnly",
        f"Samples per second: {score}",
        f"Result is : {result}",
        errors,
    )


def single_stream(*estimates: float) -> str:
    return summary(
        "Scenario : SingleStream",
        "Result is : VALID",
        *(f" * Early stopping 90th percentile estimate: {value}" for value in estimates),
    )


def server(score: float, result: str = "VALID") -> str:
    return summary("Scenario : Server", f"Completed samples per second    : {score}", f"Result is : {result}")


# (reference, test, passes, scores as printed)
PAIRS = {
    "offline pass": (offline("100.5"), offline("110.0"), True, ("100.5", "110.0")),
    "offline at the limit": (offline(100), offline(111), False, ("100", "111")),
    "offline fail": (offline(100), offline(2000), False, ("100", "2000")),
    "server pass": (server(5.5), server(5.4), True, ("5.5", "5.4")),
    "single stream: the last estimate counts": (
        single_stream(30e6, 1.2e6),
        single_stream(30e6, 1.0e6),
        False,
        (str(1e9 / 1.2e6), str(1e9 / 1.0e6)),
    ),
    "single stream: wide threshold": (
        single_stream(1.19e6),
        single_stream(1.0e6),
        True,
        (str(1e9 / 1.19e6), str(1e9 / 1.0e6)),
    ),
    "single stream: narrow above 200000": (
        single_stream(1_150),
        single_stream(1_000),
        False,
        (str(1e9 / 1_150), str(1e9 / 1_000)),
    ),
    "reference invalid": (offline(100, "INVALID"), offline(100), False, None),
    "test invalid": (
        offline(100, errors="3 ERRORs encountered. See detailed log."),
        offline(1, "INVALID"),
        False,
        None,
    ),
    "other scenario": (offline(100), server(100), False, None),
    "errors are told": (
        offline(100, errors="1 ERROR encountered"),
        offline(99, errors="12 ERRORs"),
        True,
        ("100", "99"),
    ),
    "accuracy logs": (summary("No errors"), summary("No errors"), False, ("0", "0")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_official_outcome(tmp_path: Path, name: str) -> None:
    reference, test, passes, scores = PAIRS[name]
    paths = write_pair(tmp_path, reference, test)
    outcome = official_outcome(*paths)
    assert outcome.passed is passes
    assert ("TEST PASS" in outcome.text) is passes
    assert (scores or (None, None)) == (outcome.reference_score, outcome.test_score)
    if scores:
        assert f"reference score = {scores[0]}\ntest score = {scores[1]}\n" in outcome.text


def write_pair(folder: Path, reference: str, test: str) -> tuple[Path, Path]:
    paths = (RunDir(folder / "results" / "performance" / "run_1").summary, RunDir(folder / "test").summary)
    for path, text in zip(paths, (reference, test), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return paths


@pytest.mark.parametrize("text", ["Scenario Offline", "Scenario : Offline\nSamples per second: many"])
def test_damaged_summaries_are_input_errors(tmp_path: Path, text: str) -> None:
    paths = write_pair(tmp_path, text, offline(1))
    with pytest.raises(InputError, match="LoadGen"):
        official_outcome(*paths)


def test_bytes_that_are_no_text_are_an_input_error(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, "", offline(1))
    paths[0].write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text"):
        official_outcome(*paths)


def test_verdict_says_that_it_is_not_required(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, *PAIRS["offline pass"][:2])
    legs = [
        LegArtifacts(LegSpec(label), FinishedLeg(RunDir(path.parent))) for label, path in zip("ab", paths, strict=True)
    ]
    request = AuditRequest(scenario="Offline", loadgen_key="", loaded_count=64)
    result = find_audit("TEST04").verify(request, legs)
    assert result.passed
    assert not result.required
    assert result.text.startswith("Verifying performance.\nreference score = 100.5\ntest score = 110.0\nTEST PASS\n")
    assert "Not required" in result.text


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(SetupError, match="place 3"):
        find_audit("TEST04").validate(AuditRequest(scenario="Offline", loadgen_key="", loaded_count=3))


# Against the official scripts -----------------------------------------------------------------------------------------


@needs_checkout
@pytest.mark.parametrize("name", PAIRS)
def test_text_and_score_are_those_of_the_official_script(tmp_path: Path, name: str) -> None:
    paths = write_pair(tmp_path, *PAIRS[name][:2])
    assert official_outcome(*paths).text == run_official_test04(tmp_path, paths)


@needs_checkout
@needs_published
def test_published_summaries_too(tmp_path: Path) -> None:
    found = sorted(PUBLISHED.glob("**/performance/run_1/mlperf_log_summary.txt"))
    assert found
    for number, (one, other) in enumerate(zip(found, found[1:] + found[:1], strict=True)):
        folder = tmp_path / str(number)
        paths = write_pair(folder, one.read_text(), other.read_text())
        assert official_outcome(*paths).text == run_official_test04(folder, paths), (one, other)


def run_official_test04(folder: Path, paths: tuple[Path, Path]) -> str:
    script = Path(CHECKOUT) / "compliance" / "TEST04" / "run_verification.py"
    subprocess.run(
        [sys.executable, script, "-r", folder / "results", "-c", paths[1].parent, "-o", folder / "out"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    return (folder / "out" / "TEST04" / "verify_performance.txt").read_text()
