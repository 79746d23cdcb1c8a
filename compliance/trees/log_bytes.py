"""Rules on the bytes of LoadGen's logs: line ends, and responses in accuracy logs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from compliance.judge.rule import OURS, RERUN, Rank, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.run_claim import RunClaim
from compliance.trees.findings import is_folder, is_regular, is_safe, object_or_empty
from compliance.trees.scenario_directory import ScenarioDirectory
from compliance.trees.tree import MAX_FILE_BYTES
from runs.errors import HarnessError
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.record.layout import RunDir

# Minimum bytes and minimum distinct 4-byte words of a response that only one prompt can have. In 10,000 logs of v4.1,
# v5.1 and v6.0 no three samples share such a response; in 20 logs two samples with equal prompts do.
_BYTES, _DIFFERENT = 64, 16
_SAMPLES = 3


@decides(
    "tree",
    ("responses-shared", "warning", OURS, "samples with an identical long response", RERUN),
    ("responses-length", "warning", "[loadgen]", "length of logged responses, compared with token counts", RERUN),
    rank=Rank.COPIES,
)  # fmt: skip
def check_responses(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check the complete entries of each accuracy log: response lengths, and samples with identical responses."""
    for path in _logs(directory):
        with suppress(HarnessError):  # other checks report the error
            yield from _check_entries(directory.claim, path, directory.logged_samples(path).shown)


def _check_entries(claim: RunClaim, path: Path, entries: Sequence[AccuracyEntry]) -> Iterator[Finding]:
    if claim.entry.token_latencies:
        counted = [
            (counted_entry, len(counted_entry.data), counted_entry.token_count)
            for counted_entry in entries
            if counted_entry.token_count
        ]
        wrong = [
            (counted_entry, size, tokens)
            for counted_entry, size, tokens in counted
            if size not in (4 * tokens, 8 * tokens)
        ]
        if wrong:
            first, size, tokens = wrong[0]
            value = f"{len(wrong)} differ; qsl_idx {first.qsl_idx} has {size} bytes, token_count {tokens}"
            yield compared("responses-length", False, value, "4 or 8 bytes for each token", path)
    samples_of: defaultdict[bytes, set[int]] = defaultdict(set)
    for entry in entries:
        samples_of[entry.data].add(entry.qsl_idx)
    if all(len(samples) == 1 for samples in samples_of.values()):
        return
    long = [samples for data, samples in samples_of.items() if _is_long(data)]
    largest = max(long, key=len, default=set())
    different = len(set[int]().union(*long))
    if len(largest) >= _SAMPLES or 1 < len(largest) == different:
        examples = ", ".join(map(str, sorted(largest)[:3]))
        value = f"{len(largest)} of {different} (for example qsl_idx {examples})"
        yield compared("responses-shared", False, value, f"below {min(_SAMPLES, different)}", path)


def _is_long(data: bytes) -> bool:
    return len(data) >= _BYTES and len({data[at : at + 4] for at in range(0, len(data), 4)}) >= _DIFFERENT


@decides(
    "tree",
    ("log-line-ends", "warning", "[loadgen]", "carriage returns in a log", "submit the file that LoadGen wrote"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_line_ends(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Find logs that an editor or a converter changed. LoadGen writes carriage returns on Windows only."""
    tree, place = directory.tree, directory.place
    system = object_or_empty(tree.system(place.division, place.organization, place.system))
    if "windows" in str(system.get("operating_system", "")).lower():
        return
    runs = [run.dir for run in directory.parts]
    runs += [RunDir(directory.audit(test) / "performance" / "run_1") for test in directory.audits]
    for path in (log for run in runs if is_folder(run.root) for log in (run.detail, run.summary)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES and (count := path.read_bytes().count(b"\r")):
            yield compared("log-line-ends", False, f"{count:,}", "0", path)


def _logs(directory: ScenarioDirectory) -> Iterator[Path]:
    folders = [directory.accuracy.dir.root, directory.performance.dir.root]
    folders += [directory.audit(test) / "accuracy" for test in directory.audits]
    for path in (RunDir(folder).accuracy_log for folder in folders if is_folder(folder) and is_safe(folder)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES:
            yield path
