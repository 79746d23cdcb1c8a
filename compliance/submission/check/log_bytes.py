"""Rules on the bytes of LoadGen's logs: their line ends, and the responses that accuracy logs show."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from compliance.judge.check import decides
from compliance.judge.rule import OURS, RERUN, Rank
from compliance.submission.check.findings import is_folder, is_regular, is_safe, object_or_empty
from compliance.submission.check.tree_evidence import Result
from compliance.submission.tree import MAX_FILE_BYTES
from runs.record.layout import RunDir

_ENTRY = re.compile(
    rb'"qsl_idx"\s*:\s*(\d{1,9}),\s*"data"\s*:\s*"([0-9A-Fa-f]*)"(?:,\s*"token_count"\s*:\s*(\d{1,9}))?'
)
# A response of at least so many bytes, and of so many different words of 4 bytes, is that of one prompt. Of 10,000 logs
# of v4.1, v5.1 and v6.0 none has it for three samples; 20 have it for two of many, whose prompts are the same.
_BYTES, _DIFFERENT = 64, 16
_SAMPLES = 3
_OF_TOKENS = (4, 8)  # bytes of a token ID


@decides(
    "tree",
    ("responses-shared", "warning", OURS, "samples with one and the same long response", RERUN),
    ("responses-length", "warning", "[loadgen]", "lengths of logged responses against their token counts", RERUN),
    rank=Rank.COPIES,
)  # fmt: skip
def check_responses(result: Result) -> None:
    """Check the whole entries of each log of responses."""
    for path in _logs(result):
        samples_of: defaultdict[bytes, set[int]] = defaultdict(set)
        wrong: list[str] = []
        for index, data, tokens in _ENTRY.findall(path.read_bytes()):
            if len(data) >= 2 * _BYTES and len({data[at : at + 8] for at in range(0, len(data), 8)}) >= _DIFFERENT:
                samples_of[data].add(int(index))
            if tokens and len(data) not in (2 * size * int(tokens) for size in _OF_TOKENS):
                wrong.append(f"qsl_idx {int(index)} has {len(data) // 2} bytes, token_count {int(tokens)}")
        if wrong and result.entry.token_latencies:
            found = f"{len(wrong)} differ; {wrong[0]}"
            result.findings.add("responses-length", path, found, "4 or 8 bytes for each token")
        largest = max(samples_of.values(), key=len, default=set())
        different = len(set[int]().union(*samples_of.values()))
        if len(largest) >= _SAMPLES or 1 < len(largest) == different:
            such = ", ".join(map(str, sorted(largest)[:3]))
            found = f"one response for {len(largest)} of {different} samples (qsl_idx {such})"
            result.findings.add("responses-shared", path, found, f"below {_SAMPLES} samples with one response")


@decides(
    "tree",
    ("log-line-ends", "warning", "[loadgen]", "carriage returns in a log", "submit the log as LoadGen wrote it"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_line_ends(result: Result) -> None:
    """Find logs that an editor or a converter wrote. LoadGen writes carriage returns on Windows only."""
    tree, place = result.tree, result.place
    system = object_or_empty(tree.system(place.division, place.organization, place.system))
    if "windows" in str(system.get("operating_system", "")).lower():
        return
    runs = [tree.performance(place), tree.accuracy(place)]
    runs += [RunDir(tree.audit(place, test) / "performance" / "run_1") for test in result.audits]
    for path in (log for run in runs if is_folder(run.root) for log in (run.detail, run.summary)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES and (count := path.read_bytes().count(b"\r")):
            result.findings.add("log-line-ends", path, f"{count:,} carriage returns", "none: LoadGen writes line feeds")


def _logs(result: Result) -> Iterator[Path]:
    tree, place = result.tree, result.place
    folders = [tree.accuracy(place).root, tree.performance(place).root]
    folders += [tree.audit(place, test) / "accuracy" for test in result.audits]
    for path in (RunDir(folder).accuracy_log for folder in folders if is_folder(folder) and is_safe(folder)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES:
            yield path
