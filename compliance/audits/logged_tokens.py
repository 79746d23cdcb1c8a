"""Rules of TEST06 on the token IDs of logged responses.

The official script does not find Llama 3's end-of-sequence IDs, compares first tokens only over the shorter length, and
passes an empty log. These rules are stricter. `official_text` returns the text of the official script.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from compliance.audits.base import NAMED_IN_MESSAGES
from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.plausibility import shared_responses
from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS, Scenario
from runs.loadgen.accuracy_log import AccuracyEntry

# Maximum share of responses with a begin-of-sequence ID. In published logs of some systems, 1 or 2 of 100 responses
# contain it, but never as the first token.
MAX_WITH_BEGIN = 0.05
# Limit of the number of responses that LoadGen drew at random, in standard errors. Published logs have 87 to 108.
DRAWN_ERRORS = 4.0
OFFICIAL_STOP_ID = 2  # end-of-sequence ID of Llama 2, the default of the official script
# Lines that the official script writes to verify_accuracy.txt. [compliance/TEST06/run_verification.py]
TEST06 = "TEST06"
_FIRST, _END, _LENGTH = "First token check pass", "EOS check pass", "Sample length check pass"
_SKIPPED = f"{_FIRST}: Skipped"
COMPLETE, _INCOMPLETE = "TEST06 verification complete", "TEST06 verification failed"
# The text must contain at least one line of each group. [checker: compliance_check.accuracy_check]
_KEPT = ((f"{_FIRST}: True", _SKIPPED), (f"{_END}: True",), (f"{_LENGTH}: True",))

Ids = npt.NDArray[np.int64]


@decides(
    "audit",
    ("test06-count", "error", "compliance/TEST06/audit.config", "number of logged responses",
    AUDIT_AGAIN),
    ("test06-ids", "error", OURS, "token IDs of the logged responses", AUDIT_AGAIN),
    ("test06-length", "error", "[rules] generation settings", "length of the logged responses", AUDIT_AGAIN),
    ("test06-token-count", "error", "compliance/TEST06/README.md", "token_count of the logged responses", AUDIT_AGAIN),
    ("test06-first-token", "error", "compliance/TEST06/README.md", "reported first tokens",
    AUDIT_AGAIN),
    ("test06-begin", "error", OURS, "begin-of-sequence IDs", AUDIT_AGAIN),
    ("test06-special-ids", "error", OURS, "other special IDs", AUDIT_AGAIN),
    ("test06-end-once", "error", "compliance/TEST06/README.md", "end-of-sequence IDs per response", AUDIT_AGAIN),
    ("test06-end-last", "error", OURS, "tokens after an end-of-sequence ID", AUDIT_AGAIN),
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
    issued: int | None = None,
) -> list[Finding]:
    """Check logged responses, and return the findings.

    Args:
        scenario: Name of the scenario. All scenarios but Offline report first tokens.
        stop_ids: End-of-sequence IDs of the model.
        bos_ids: Begin-of-sequence IDs. An ID that is also a stop ID counts as a stop ID.
        expected_count: Number of responses.
        max_tokens: Maximum number of token IDs in a response, or None if unknown.
        special_ids: Special IDs of the tokenizer, if known.
        issued: Number of samples that the run issued, or None if unknown. Of more samples than `expected_count`,
            LoadGen draws the logged responses at random, so that their number differs.

    Returns:
        A finding for each rule. An empty log violates the first rule.
    """
    dtype, total = dtype_of(entries), len(entries)
    read = [(entry, as_ids(entry.data, dtype)) for entry in entries]
    complete = [(entry, ids) for entry, ids in read if ids is not None and np.all(ids >= 0)]
    torn = [(entry, _place(entry)) for entry, ids in read if ids is None or np.any(ids < 0)]
    stops, begins = {*stop_ids}, {*bos_ids} - {*stop_ids}
    begin_is_first = any(len(ids) and int(ids[0]) in begins for _, ids in complete)
    rules = [
        *_form_rules(max_tokens, dtype, first_tokens=scenario != "Offline"),
        *_special_id_rules(stops, begins, {*special_ids} - {*bos_ids} - stops),
    ]
    checks = [
        compared("test06-count", total == expected_count, f"{total}", f"{expected_count}",
                 text="number of logged responses",
                 severity="warning" if _is_drawn(total, expected_count, issued) else "error"),
        ResponseRule(
            "test06-ids", "responses with damaged token IDs", f"none (IDs are whole {dtype.name} numbers, 0 or above)",
        ).check(torn, total),
    ]  # fmt: skip
    for rule in rules:
        faults = [(entry, f"{_place(entry)}: {fault}") for entry, ids in complete if (fault := rule.fault(entry, ids))]
        check = rule.check(faults, total)
        few = 0 < len(faults) <= MAX_WITH_BEGIN * total and not begin_is_first
        checks.append(replace(check, severity="note") if rule.id == "test06-begin" and few else check)
    if shared := shared_responses([(entry.qsl_idx, ids) for entry, ids in complete]):
        checks.append(shared)
    return checks


def _is_drawn(count: int, expected: int, issued: int | None) -> bool:
    """Return True if LoadGen can have drawn this number of responses, each with equal probability."""
    if issued is None or issued <= expected:
        return False
    return abs(count - expected) <= DRAWN_ERRORS * math.sqrt(expected * (1 - expected / issued))


@dataclass(frozen=True)
class ResponseRule:
    """A rule on each logged response."""

    id: str
    name: str  # noun phrase for responses that violate the rule
    required: str
    fault: Callable[[AccuracyEntry, Ids], str] = lambda entry, ids: ""  # returns its problem, or an empty text

    def check(self, faults: Sequence[tuple[AccuracyEntry, str]], total: int) -> Finding:
        """Return the finding on all responses."""
        share, count = f"{len(faults)} of {total}" if total else "unknown (no response is logged)", len(faults)
        if faults:
            named = "; ".join(text for _, text in faults[:NAMED_IN_MESSAGES])
            more = f"; and {count - NAMED_IN_MESSAGES} more" if count > NAMED_IN_MESSAGES else ""
            share += f" ({named}{more})"
        keys = [f"seq_id {entry.seq_id}" for entry, _ in faults[:NAMED_IN_MESSAGES]]
        passed = not faults and total > 0
        return compared(self.id, passed, share, self.required, answers=count, text=self.name, decided_by=keys)


def _form_rules(max_tokens: int | None, dtype: np.dtype[Any], *, first_tokens: bool) -> Iterator[ResponseRule]:
    """Yield the rules on lengths, counts and first tokens."""
    least, most = MIN_TOKENS_LOADGEN_ACCEPTS, max_tokens or np.inf
    yield ResponseRule(
        "test06-length", "responses with a wrong length",
        f"none (a response has {least} {f'to {max_tokens}' if max_tokens else 'or more'} token IDs)",
        lambda _, ids: "" if least <= len(ids) <= most else f"{len(ids)} token IDs",
    )  # fmt: skip
    yield ResponseRule(
        "test06-token-count", "responses with a wrong token_count", "none (token_count is the number of token IDs)",
        lambda entry, ids: "" if entry.token_count == len(ids) else f"{entry.token_count} for {len(ids)} IDs",
    )  # fmt: skip
    yield ResponseRule(
        "test06-first-token", "responses with a wrong reported first token",
        f"none (the reported token begins the response{'' if first_tokens else '; it may be missing in Offline'})",
        lambda entry, ids: _first_token_problem(entry, ids, dtype, first_tokens),
    )  # fmt: skip


def _special_id_rules(stops: set[int], begins: set[int], specials: set[int]) -> Iterator[ResponseRule]:
    """Yield the rules on special token IDs."""

    begin, special, stop = (np.array(sorted(ids), np.int64) for ids in (begins, specials, stops))

    def any_of(wanted: Ids) -> Callable[[AccuracyEntry, Ids], str]:
        return lambda _, ids: _first_of(_places_of(wanted, ids), ids)

    def too_many(_: AccuracyEntry, ids: Ids) -> str:
        count = len(_places_of(stop, ids))
        return f"{count} of {len(ids)} token IDs" if count > 1 else ""

    def too_early(_: AccuracyEntry, ids: Ids) -> str:
        places = _places_of(stop, ids)
        return _first_of(places, ids) if np.any(places < len(ids) - 1) else ""

    required = f"at most {MAX_WITH_BEGIN:.0%} (and never {listed(begins)} as the first token)"
    yield ResponseRule("test06-begin", "responses with a begin-of-sequence ID", required, any_of(begin))
    if specials:
        required = f"none (the tokenizer has {len(specials)} other special IDs)"
        yield ResponseRule("test06-special-ids", "responses with another special ID", required, any_of(special))
    required = f"none (at most one of the IDs {listed(stops)})"
    yield ResponseRule("test06-end-once", "responses with multiple end-of-sequence IDs", required, too_many)
    required = f"none (no token after {listed(stops)})"
    yield ResponseRule("test06-end-last", "responses that continue after an end-of-sequence ID", required, too_early)


def official_text(entries: Sequence[AccuracyEntry], *, scenario: str) -> str:
    """Return the `verify_accuracy.txt` that the official script writes for these responses.

    It uses the data type found here and OFFICIAL_STOP_ID, because the script compares other IDs as texts and never
    finds them. A check that would end in a traceback counts as False.
    """
    dtype = dtype_of(entries)
    responses = [(entry, as_ids(entry.data, dtype)) for entry in entries]

    def all_are(predicate: Callable[[AccuracyEntry, Ids], bool]) -> bool:
        return all(ids is not None and predicate(entry, ids) for entry, ids in responses)

    def first_token(entry: AccuracyEntry, ids: Ids) -> bool:
        first = None if entry.token_data is None else as_ids(entry.token_data, dtype)
        if first is None:
            return False
        both = min(len(first), len(ids))  # the script compares only as many IDs as the shorter list has
        return np.array_equal(first[:both], ids[:both])

    # The script requires that at most one stop ID ends a response. It ignores the first ID of the response.
    ends = all_are(lambda _, ids: not (len(ids) > 2 and ids[-1] == ids[-2] == OFFICIAL_STOP_ID))
    lengths = all_are(lambda entry, ids: len(ids) == entry.token_count)
    first = "Skipped" if scenario == "Offline" else str(all_are(first_token))
    passed = ends and lengths and first != "False"
    return f"{_FIRST}: {first}\n{_END}: {ends}\n{_LENGTH}: {lengths}\n{COMPLETE if passed else _INCOMPLETE}\n"


def faults_in_text(lines: Collection[str], scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """Yield each line of a text that does not show a passed check, as (found, required, line number)."""
    for wanted in _KEPT:
        if not set(wanted) & set(lines):
            yield f"missing line: {' or '.join(map(repr, wanted))}", "three passed checks", ""
    # Beginnings of the lines that state the result of a check, in any letter case.
    beginnings = tuple(name.casefold() for name in (_FIRST, _END, _LENGTH, TEST06))
    for line in sorted(set(lines) - {line for wanted in _KEPT for line in wanted} - {COMPLETE}):
        if line.casefold().startswith(beginnings):
            yield f"line {line!r}", "no failed check", line
    if _SKIPPED in lines and scenario != "Offline":
        yield f"the first token check was skipped in {scenario}", _KEPT[0][0], _SKIPPED


def text_not_of(
    entries: Sequence[AccuracyEntry], lines: Collection[str], scenario: Scenario
) -> Iterator[tuple[str, str, str]]:
    """Yield each line of a text that contradicts the responses, as (found, required, line number)."""
    for line in official_text(entries, scenario=scenario).splitlines():
        name = line.partition(":")[0]
        # The check of end-of-sequence IDs is left out, because it depends on an option of the script.
        if name in (_FIRST, _LENGTH) and line not in lines:
            stated_line = next((line for line in sorted(lines) if line.startswith(name)), "")
            yield stated_line or f"missing line: {name!r}", line, stated_line


def dtype_of(entries: Sequence[AccuracyEntry]) -> np.dtype[Any]:
    """Return int64 if every response can be int64 (whole 8-byte IDs with high words of 0), otherwise int32."""
    responses = [entry.data for entry in entries if entry.data]
    wide = all(len(data) % 8 == 0 and not np.frombuffer(data, "<u4")[1::2].any() for data in responses)
    return np.dtype("<i8") if responses and wide else np.dtype("<i4")


def as_ids(data: bytes, dtype: np.dtype[Any]) -> Ids | None:
    """Return token IDs as int64 numbers, or None if the bytes are not whole IDs."""
    return np.frombuffer(data, dtype).astype(np.int64) if len(data) % dtype.itemsize == 0 else None


def _places_of(wanted: Ids, ids: Ids) -> Ids:
    """Return the sorted positions in `ids` of the IDs in `wanted`. `np.isin` is slower on short responses."""
    if not len(wanted):
        return np.empty(0, np.int64)
    nearest = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    return np.flatnonzero(wanted[nearest] == ids)


def _first_of(places: Ids, ids: Ids) -> str:
    return f"token {places[0] + 1} of {len(ids)} is the ID {ids[places[0]]}" if len(places) else ""


def _first_token_problem(entry: AccuracyEntry, ids: Ids, dtype: np.dtype[Any], needed: bool) -> str:
    if not entry.token_data:
        return "not reported" if needed else ""
    first = as_ids(entry.token_data, dtype)
    if first is None:
        return f"{len(entry.token_data)} bytes are no whole token ID"
    if len(first) > len(ids) or not np.array_equal(first, ids[: len(first)]):
        return f"{first[:4].tolist()} for a response that starts with {ids[:4].tolist()}"
    return ""


def _place(entry: AccuracyEntry) -> str:
    return f"sample {entry.qsl_idx} (seq_id {entry.seq_id})"


def listed(ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "(unknown)"
