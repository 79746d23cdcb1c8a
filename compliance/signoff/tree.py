"""G-12: the logs in a submission tree are those of the legs that were signed off, byte by byte."""

from collections.abc import Iterator
from pathlib import Path

from compliance.evidence.leg_record import hash_in_accuracy_text
from compliance.finding import Finding, fail, note
from compliance.signoff.evidence import Evidence
from runs.errors import HarnessError
from runs.files import sha256_of
from runs.reading import read_record
from runs.record.layout import RunDir

_RESULTS = "*/*/results/*/*/*"  # division, organisation, system, benchmark, scenario
_LEGS = ("performance/run_*", "accuracy")


def tree_logs(tree: Path, legs: list[Evidence]) -> Iterator[Finding]:
    """Compare; truncated accuracy logs by the SHA-256 that accuracy.txt keeps of the whole."""
    known = {digest for evidence in legs for digest in evidence.hashes.values()}
    found = [
        RunDir(path)
        for scenario in sorted(tree.glob(_RESULTS))
        for name in _LEGS
        for path in sorted(scenario.glob(name))
    ]
    if not found:
        yield fail("G-12/missing_raw", "the tree holds no legs", tree)
        return
    foreign = 0
    for run in found:
        for path in (run.summary, run.detail):
            if not path.is_file():
                yield fail("G-12/missing_raw", f"{path.name} is missing in the tree", run.root)
            elif sha256_of(path) not in known:
                foreign += 1
                yield fail("G-12/foreign_file", f"{path.name} is of none of the legs that were signed off", path)
        if run.accuracy_text.is_file() and run.accuracy_log.is_file() and _accuracy_hash(run) not in known:
            foreign += 1
            yield fail(
                "G-12/foreign_file", "the answers are of none of the legs that were signed off", run.accuracy_log
            )
    if not foreign:
        yield note("G-12/tree_of_these_legs", f"all logs of {len(found)} legs in the tree are those of the legs", tree)


def _accuracy_hash(run: RunDir) -> str | None:
    """Of the whole accuracy log: from accuracy.txt where it was truncated, else its own."""
    try:
        said = hash_in_accuracy_text(read_record(run.accuracy_text, "").decode(errors="replace"), run.accuracy_text)
    except HarnessError:
        return None
    return said or sha256_of(run.accuracy_log)
