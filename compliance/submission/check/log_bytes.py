"""Rules on the bytes of LoadGen's logs: line ends, and responses in accuracy logs."""

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
# Minimum of bytes, and of distinct 4-byte words, of a response that only one prompt can have. In 10,000 logs of v4.1,
# v5.1 and v6.0 no three samples share such a response; in 20 logs two samples with equal prompts do.
_BYTES, _DIFFERENT = 64, 16
_SAMPLES = 3
_OF_TOKENS = (4, 8)  # bytes of a token ID


@decides(
    "tree",
    ("responses-shared", "warning", OURS, "samples with an identical long response", RERUN),
    ("responses-length", "warning", "[loadgen]", "length of logged responses, compared with token counts", RERUN),
    rank=Rank.COPIES,
)  # fmt: skip
def check_responses(result: Result) -> None:
    """Check the complete entries of each accuracy log."""
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
            found = f"{len(largest)} of {different} (for example qsl_idx {such})"
            result.findings.add("responses-shared", path, found, f"below {min(_SAMPLES, different)}")


@decides(
    "tree",
    ("log-line-ends", "warning", "[loadgen]", "carriage returns in a log", "submit the file that LoadGen wrote"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_line_ends(result: Result) -> None:
    """Find logs that an editor or a converter changed. LoadGen writes carriage returns on Windows only."""
    tree, place = result.tree, result.place
    system = object_or_empty(tree.system(place.division, place.organization, place.system))
    if "windows" in str(system.get("operating_system", "")).lower():
        return
    runs = [tree.performance(place), tree.accuracy(place)]
    runs += [RunDir(tree.audit(place, test) / "performance" / "run_1") for test in result.audits]
    for path in (log for run in runs if is_folder(run.root) for log in (run.detail, run.summary)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES and (count := path.read_bytes().count(b"\r")):
            result.findings.add("log-line-ends", path, f"{count:,}", "0")


def _logs(result: Result) -> Iterator[Path]:
    tree, place = result.tree, result.place
    folders = [tree.accuracy(place).root, tree.performance(place).root]
    folders += [tree.audit(place, test) / "accuracy" for test in result.audits]
    for path in (RunDir(folder).accuracy_log for folder in folders if is_folder(folder) and is_safe(folder)):
        if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES:
            yield path
