"""Rules of TEST06: the logged responses of a performance run are honest token lists.

The official script does not find a Llama 3 end-of-sequence ID, compares first tokens over the length of the shorter
list only, and passes an empty log. These rules are stricter; `official_text` is what the script would write.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from compliance.audits.base import NAMED_IN_MESSAGES
from compliance.evidence.plausibility import shared_responses
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS
from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS, Scenario
from runs.loadgen.accuracy_log import AccuracyEntry

# A model may generate its begin-of-sequence ID: so do 1 or 2 of 100 published responses of some systems, never as the
# first token. Above this share, or as the first token, the system puts it there.
MAX_WITH_BEGIN = 0.05
OFFICIAL_STOP_ID = 2  # the default of the official script; Llama 2's
# What the official script writes to verify_accuracy.txt, and its last line. [compliance/TEST06/run_verification.py]
TEST06 = "TEST06"
_FIRST, _END, _LENGTH = "First token check pass", "EOS check pass", "Sample length check pass"
_SKIPPED = f"{_FIRST}: Skipped"
COMPLETE, _INCOMPLETE = "TEST06 verification complete", "TEST06 verification failed"
# [checker] compliance_check.accuracy_check: one of each
_KEPT = ((f"{_FIRST}: True", _SKIPPED), (f"{_END}: True",), (f"{_LENGTH}: True",))

Ids = npt.NDArray[np.int64]


@decides(
    "audit",
    ("test06-count", "error", "compliance/TEST06/audit.config", "as many responses are logged as required",
    AUDIT_AGAIN),
    ("test06-ids", "error", OURS, "responses are whole token IDs", AUDIT_AGAIN),
    ("test06-length", "error", "[rules] generation settings", "responses are as long as allowed", AUDIT_AGAIN),
    ("test06-token-count", "error", "compliance/TEST06/README.md", "token_count is the number of IDs", AUDIT_AGAIN),
    ("test06-first-token", "error", "compliance/TEST06/README.md", "the first token is the response's own",
    AUDIT_AGAIN),
    ("test06-begin", "error", OURS, "begin-of-sequence ID as the first token, or in many responses", AUDIT_AGAIN),
    ("test06-special-ids", "error", OURS, "no response has other special IDs", AUDIT_AGAIN),
    ("test06-end-once", "error", "compliance/TEST06/README.md", "a response has one end-of-sequence ID", AUDIT_AGAIN),
    ("test06-end-last", "error", OURS, "no token follows an end-of-sequence ID", AUDIT_AGAIN),
)  # fmt: skip
def judge_entries(
    entries: Sequence[AccuracyEntry],
    *,
    scenario: str,
    stop_ids: Collection[int],
    bos_ids: Collection[int],
    expected_count: int,
    max_tokens: int | None,
    special_ids: Collection[int] = (),
) -> list[Finding]:
    """Judge logged responses.

    Args:
        scenario: ours or LoadGen's name; all but Offline have first-token records.
        stop_ids: end-of-sequence IDs of the model; one may end a response.
        bos_ids: begin-of-sequence IDs. No response starts with one, and few have one. One that is also a stop ID counts
            as a stop ID.
        expected_count: of responses.
        max_tokens: most IDs a response may have; None where that is not known.
        special_ids: of the tokenizer, if known; a response has none but stop IDs.

    Returns:
        All checks, passed or not; an empty log breaks the first.
    """
    dtype, total = dtype_of(entries), len(entries)
    read = [(entry, as_ids(entry.data, dtype)) for entry in entries]
    whole = [(entry, ids) for entry, ids in read if ids is not None and np.all(ids >= 0)]
    torn = [_place(entry) for entry, ids in read if ids is None or np.any(ids < 0)]
    stops, begins = {*stop_ids}, {*bos_ids} - {*stop_ids}
    begin_is_first = any(len(ids) and int(ids[0]) in begins for _, ids in whole)
    rules = [
        *_form_rules([len(ids) for _, ids in whole], max_tokens, dtype, first_tokens=scenario != "Offline"),
        *_special_id_rules(stops, begins, {*special_ids} - {*bos_ids} - stops),
    ]
    checks = [
        compared("test06-count", "number of logged responses", total == expected_count, f"{total}",
        f"{expected_count}"),
        ResponseRule(
            "test06-ids", "whole token IDs", "are not whole IDs", f"{dtype.name} IDs of at least 0",
            kept=f"all {total} are {dtype.name}",
        ).check(torn, total),
    ]  # fmt: skip
    for rule in rules:
        faults = [f"{_place(entry)}: {fault}" for entry, ids in whole if (fault := rule.fault(entry, ids))]
        check = rule.check(faults, total)
        few = 0 < len(faults) <= MAX_WITH_BEGIN * total and not begin_is_first
        checks.append(replace(check, severity="note") if rule.id == "test06-begin" and few else check)
    if shared := shared_responses([(entry.qsl_idx, ids) for entry, ids in whole]):
        checks.append(shared)
    return checks


@dataclass(frozen=True)
class ResponseRule:
    """A rule on each logged response."""

    id: str
    name: str
    broken: str  # what responses do that violate it
    required: str
    fault: Callable[[AccuracyEntry, Ids], str] = lambda entry, ids: ""  # of a response; empty where it meets the rule
    kept: str = ""  # what was found where all responses meet it

    def check(self, faults: Sequence[str], total: int) -> Finding:
        """The finding on all responses."""
        found, count = self.kept or f"all {total} responses meet it", len(faults)
        if faults:
            more = f" and {count - NAMED_IN_MESSAGES} more" if count > NAMED_IN_MESSAGES else ""
            found = f"{count} of {total} responses {self.broken} ({'; '.join(faults[:NAMED_IN_MESSAGES])}{more})"
        return compared(self.id, self.name, not faults and total > 0, found, self.required, answers=count)


def _form_rules(
    lengths: Sequence[int], max_tokens: int | None, dtype: np.dtype[Any], *, first_tokens: bool
) -> Iterator[ResponseRule]:
    """Rules on lengths, counts and first tokens."""
    least, most = MIN_TOKENS_LOADGEN_ACCEPTS, max_tokens or max(lengths, default=0)
    yield ResponseRule(
        "test06-length", "length", "have another number of IDs",
        f"{least} {f'to {max_tokens}' if max_tokens else 'or more'} IDs",
        lambda _, ids: "" if least <= len(ids) <= most else f"{len(ids)}",
        f"{min(lengths)} to {max(lengths)} IDs" if lengths else "no IDs",
    )  # fmt: skip
    yield ResponseRule(
        "test06-token-count", "token count", "have another token_count", "the number of IDs",
        lambda entry, ids: "" if entry.token_count == len(ids) else f"{entry.token_count} for {len(ids)} IDs",
    )  # fmt: skip
    yield ResponseRule(
        "test06-first-token", "first token", "have another first token",
        f"{'a record' if first_tokens else 'none in Offline, or'} equal to the response's start",
        lambda entry, ids: _first_token_problem(entry, ids, dtype, first_tokens),
    )  # fmt: skip


def _special_id_rules(stops: set[int], begins: set[int], others: set[int]) -> Iterator[ResponseRule]:
    """Rules on the tokenizer's IDs without a text."""

    begin, other, stop = (np.array(sorted(ids), np.int64) for ids in (begins, others, stops))

    def any_of(wanted: Ids) -> Callable[[AccuracyEntry, Ids], str]:
        return lambda _, ids: _first_of(_places_of(wanted, ids), ids)

    def too_many(_: AccuracyEntry, ids: Ids) -> str:
        count = len(_places_of(stop, ids))
        return f"{count} of {len(ids)} tokens" if count > 1 else ""

    def too_early(_: AccuracyEntry, ids: Ids) -> str:
        places = _places_of(stop, ids)
        return _first_of(places, ids) if np.any(places < len(ids) - 1) else ""

    required = f"no first token {listed(begins)}, which at most {MAX_WITH_BEGIN:.0%} of the responses contain"
    yield ResponseRule("test06-begin", "begin-of-sequence ID", "have one", required, any_of(begin))
    if others:
        required = f"none of the tokenizer's {len(others)} special IDs that end no response"
        yield ResponseRule("test06-special-ids", "other special IDs", "have one", required, any_of(other))
    required, broken = f"at most one of the IDs {listed(stops)}", "have more than one"
    yield ResponseRule("test06-end-once", "end-of-sequence ID once", broken, required, too_many)
    required, broken = f"no token after the ID {listed(stops)}", "go on after an end-of-sequence ID"
    yield ResponseRule("test06-end-last", "end-of-sequence ID last", broken, required, too_early)


def official_text(entries: Sequence[AccuracyEntry], *, scenario: str) -> str:
    """What the official script writes to `verify_accuracy.txt` for these responses.

    With the data type found here, and OFFICIAL_STOP_ID: another ID on its command line is compared as a text and never
    found. A check that would end in a traceback is False.
    """
    dtype = dtype_of(entries)
    responses = [(entry, as_ids(entry.data, dtype)) for entry in entries]

    def all_are(predicate: Callable[[AccuracyEntry, Ids], bool]) -> bool:
        return all(ids is not None and predicate(entry, ids) for entry, ids in responses)

    def first_token(entry: AccuracyEntry, ids: Ids) -> bool:
        first = None if entry.token_data is None else as_ids(entry.token_data, dtype)
        if first is None:
            return False
        both = min(len(first), len(ids))  # over the shorter length
        return np.array_equal(first[:both], ids[:both])

    # Not two stop IDs at the end; the script ignores the first ID.
    ends = all_are(lambda _, ids: not (len(ids) > 2 and ids[-1] == ids[-2] == OFFICIAL_STOP_ID))
    lengths = all_are(lambda entry, ids: len(ids) == entry.token_count)
    first = "Skipped" if scenario == "Offline" else str(all_are(first_token))
    passed = ends and lengths and first != "False"
    return f"{_FIRST}: {first}\n{_END}: {ends}\n{_LENGTH}: {lengths}\n{COMPLETE if passed else _INCOMPLETE}\n"


def faults_in_text(lines: Collection[str], scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """How a text fails to show that all three checks passed: (found, required, the line)."""
    for wanted in _KEPT:
        if not set(wanted) & set(lines):
            yield f"no line {' or '.join(map(repr, wanted))}", "all three checks passed", ""
    # Lines with the outcome of a check, in any spelling.
    beginnings = tuple(name.casefold() for name in (_FIRST, _END, _LENGTH, TEST06))
    for line in sorted(set(lines) - {line for wanted in _KEPT for line in wanted} - {COMPLETE}):
        if line.casefold().startswith(beginnings):
            yield f"it says {line!r}", "no check failed", line
    if _SKIPPED in lines and scenario != "Offline":
        yield f"the first token check was skipped in {scenario}", _KEPT[0][0], _SKIPPED


def text_not_of(
    entries: Sequence[AccuracyEntry], lines: Collection[str], scenario: Scenario
) -> Iterator[tuple[str, str, str]]:
    """Lines of a text that these responses do not give: (found, expected, the line)."""
    for line in official_text(entries, scenario=scenario).splitlines():
        name = line.partition(":")[0]
        # The outcome on end-of-sequence IDs depends on an option of the script.
        if name in (_FIRST, _LENGTH) and line not in lines:
            there = next((one for one in sorted(lines) if one.startswith(name)), "")
            yield there or f"no line {name!r}", line, there


def dtype_of(entries: Sequence[AccuracyEntry]) -> np.dtype[Any]:
    """int64 if every response can be (whole 8-byte IDs whose high words are 0), else int32."""
    responses = [entry.data for entry in entries if entry.data]
    wide = all(len(data) % 8 == 0 and not np.frombuffer(data, "<u4")[1::2].any() for data in responses)
    return np.dtype("<i8") if responses and wide else np.dtype("<i4")


def as_ids(data: bytes, dtype: np.dtype[Any]) -> Ids | None:
    """IDs as int64 numbers; None where the bytes are not whole IDs."""
    return np.frombuffer(data, dtype).astype(np.int64) if len(data) % dtype.itemsize == 0 else None


def _places_of(wanted: Ids, ids: Ids) -> Ids:
    """The places in `ids` of any ID of `wanted`, which is sorted; on short responses much faster than `np.isin`."""
    if not len(wanted):
        return np.empty(0, np.int64)
    nearest = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    return np.flatnonzero(wanted[nearest] == ids)


def _first_of(places: Ids, ids: Ids) -> str:
    return f"token {places[0] + 1} of {len(ids)} is the ID {ids[places[0]]}" if len(places) else ""


def _first_token_problem(entry: AccuracyEntry, ids: Ids, dtype: np.dtype[Any], needed: bool) -> str:
    if not entry.token_data:
        return "not recorded" if needed else ""
    first = as_ids(entry.token_data, dtype)
    if first is None:
        return f"{len(entry.token_data)} bytes"
    if len(first) > len(ids) or not np.array_equal(first, ids[: len(first)]):
        return f"{first[:4].tolist()} for a response that starts with {ids[:4].tolist()}"
    return ""


def _place(entry: AccuracyEntry) -> str:
    return f"sample {entry.qsl_idx} (seq_id {entry.seq_id})"


def listed(ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "(none known)"
