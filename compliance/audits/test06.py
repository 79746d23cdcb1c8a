"""TEST06: whether the answers of a performance leg are honest token lists. Official legs and text, own verdict.

The official script does not find a Llama 3 end-of-sequence id, compares first tokens over the length of the shorter
list only, and passes an empty log. So the text is what it would write, and the verdict is by stricter rules.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from compliance.audits.base import (
    NAMED_IN_MESSAGES,
    PERFORMANCE,
    PERFORMANCE_MODE,
    AuditRequest,
    AuditResult,
    AuditTest,
    LegArtifacts,
    LegSpec,
)
from compliance.evidence.plausibility import shared_answers
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS, Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.loadgen.accuracy_log import AccuracyEntry

# [mlcommons/inference compliance/TEST06/audit.config]
LOGGED_SAMPLES = 100
SETTINGS = {
    "mode": PERFORMANCE_MODE,
    "accuracy_log_rng_seed": 720381539243781796,
    "accuracy_log_sampling_target": LOGGED_SAMPLES,
    "min_query_count": LOGGED_SAMPLES,
    "min_duration": 0,
    "sample_concatenate_permutation": 0,
}
# A model may generate its begin-of-sequence id: so do 1 or 2 of 100 published responses of some systems, never as the
# first token. Above this share, or as the first token, the system puts it there.
MOST_WITH_BEGIN = 0.05
OFFICIAL_STOP_ID = 2  # the default of the official script; Llama 2's
# What the official script writes to verify_accuracy.txt, and its last line. [compliance/TEST06/run_verification.py]
_FIRST, _END, _LENGTH = "First token check pass", "EOS check pass", "Sample length check pass"
_SKIPPED = f"{_FIRST}: Skipped"
_COMPLETE, _INCOMPLETE = "TEST06 verification complete", "TEST06 verification failed"
# [checker] compliance_check.accuracy_check: one of each
_KEPT = ((f"{_FIRST}: True", _SKIPPED), (f"{_END}: True",), (f"{_LENGTH}: True",))

Ids = npt.NDArray[np.int64]


class OfficialTest06(AuditTest):
    name = "TEST06"
    official = True
    text_name = "verify_accuracy.txt"

    def validate(self, request: AuditRequest) -> None:
        super().validate(request)
        if not request.stop_ids:
            raise InputError(
                "TEST06 needs the model's end-of-sequence ids, and its generation_config.json has none",
                "give --model-path a folder with generation_config.json",
            )

    def legs(self, request: AuditRequest) -> list[LegSpec]:
        return [LegSpec(PERFORMANCE, settings=SETTINGS, scenario=request.scenario, requested=LOGGED_SAMPLES)]

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        self.need(legs, 1)
        leg = legs[0]
        scenario = leg.detail.scenario
        max_tokens = BENCHMARKS[request.loadgen_key].sampling["performance"].max_tokens
        checks = judge_entries(
            leg.entries,
            scenario=scenario,
            stop_ids=request.stop_ids,
            bos_ids=request.bos_ids,
            special_ids=request.special_ids,
            expected_count=LOGGED_SAMPLES,
            max_tokens=max_tokens,
        )
        text = official_text(leg.entries, scenario=scenario)
        return self.result(
            checks,
            [leg],
            kept=f"{len(leg.entries)} logged answers kept every rule",
            rule=f"exactly {LOGGED_SAMPLES} logged answers, each of {MIN_TOKENS_LOADGEN_ACCEPTS} to {max_tokens} ids "
            "and as many as were counted; outside Offline a first-token record equal to the answer's start; no "
            f"begin-of-sequence id {_listed(request.bos_ids)} as the first token, and one in at most "
            f"{MOST_WITH_BEGIN:.0%} of the answers; an end-of-sequence id {_listed(request.stop_ids)} at "
            "most once and only last; no other special id of the tokenizer",
            text=text,
            details={
                "official_text": text,
                "official_passed": text.endswith(f"{_COMPLETE}\n"),
                "dtype": dtype_of(leg.entries).name,
                "stop_ids": sorted(request.stop_ids),
                "bos_ids": sorted(request.bos_ids),
                "special_ids": sorted(request.special_ids),
            },
            copies={f"accuracy/{leg.run.accuracy_log.name}": leg.run.accuracy_log},
        )


@decides(
    "audit",
    ("test06-count", "error", "compliance/TEST06/audit.config", "as many answers are logged as required", AUDIT_AGAIN),
    ("test06-ids", "error", OURS, "answers are whole token ids", AUDIT_AGAIN),
    ("test06-length", "error", "[rules] generation settings", "answers are as long as allowed", AUDIT_AGAIN),
    ("test06-token-count", "error", "compliance/TEST06/README.md", "token_count is the number of ids", AUDIT_AGAIN),
    ("test06-first-token", "error", "compliance/TEST06/README.md", "the first token is the answer's own", AUDIT_AGAIN),
    ("test06-begin", "error", OURS, "begin-of-sequence id as the first token, or in many responses", AUDIT_AGAIN),
    ("test06-special-ids", "error", OURS, "no answer has other special ids", AUDIT_AGAIN),
    ("test06-end-once", "error", "compliance/TEST06/README.md", "an answer has one end-of-sequence id", AUDIT_AGAIN),
    ("test06-end-last", "error", OURS, "no token follows an end-of-sequence id", AUDIT_AGAIN),
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
    """Judge logged answers.

    Args:
        scenario: ours or LoadGen's name; all but Offline have first-token records.
        stop_ids: end-of-sequence ids of the model; one may end an answer.
        bos_ids: begin-of-sequence ids. No answer starts with one, and few have one. One that is also a stop id counts
            as a stop id.
        expected_count: of answers.
        max_tokens: most ids an answer may have; None where that is not known.
        special_ids: of the tokenizer, if known; an answer has none but stop ids.

    Returns:
        All checks, passed or not; an empty log breaks the first.
    """
    dtype, total, needs_first = dtype_of(entries), len(entries), scenario != "Offline"
    stops = np.array(sorted(stop_ids), np.int64)
    begins = np.array(sorted(set(bos_ids) - set(stop_ids)), np.int64)
    others = np.array(sorted(set(special_ids) - set(stop_ids) - set(bos_ids)), np.int64)
    wrong: defaultdict[str, list[str]] = defaultdict(list)  # by the rule that is broken
    answers: list[tuple[int, Ids]] = []
    starts_with_begin = 0
    for entry in entries:
        place = f"sample {entry.qsl_idx} (seq_id {entry.seq_id})"
        ids = as_ids(entry.data, dtype)
        if ids is None or np.any(ids < 0):
            wrong["test06-ids"].append(place)
            continue
        answers.append((entry.qsl_idx, ids))
        count, most = len(ids), max_tokens or len(ids)
        begin, other, stop = (_places_of(wanted, ids) for wanted in (begins, others, stops))
        faults = {
            "test06-length": "" if MIN_TOKENS_LOADGEN_ACCEPTS <= count <= most else f"{count}",
            "test06-token-count": "" if entry.token_count == count else f"{entry.token_count} for {count} ids",
            "test06-first-token": _first_token_problem(entry, ids, dtype, needs_first),
            "test06-begin": _first_of(begin, ids),
            "test06-special-ids": _first_of(other, ids),
            "test06-end-once": f"{len(stop)} of {count} tokens" if len(stop) > 1 else "",
            "test06-end-last": _first_of(stop, ids) if np.any(stop < count - 1) else "",
        }
        for rule, fault in faults.items():
            if fault:
                wrong[rule].append(f"{place}: {fault}")
        starts_with_begin += bool(len(begin) and begin[0] == 0)
    lengths = [len(ids) for _, ids in answers]
    span = f"{min(lengths)} to {max(lengths)} ids" if lengths else "no ids"
    longest = f"to {max_tokens}" if max_tokens else "or more"
    first = "a record" if needs_first else "none in Offline, or"
    ends = _listed(stops.tolist())
    rows = [  # rule, title, found where all answers keep it, found where some break it, required
        ("test06-ids", "whole token ids", f"all {total} are {dtype.name}", "are not whole ids",
         f"{dtype.name} ids of at least 0"),
        ("test06-length", "length", span, "have another number of ids", f"{MIN_TOKENS_LOADGEN_ACCEPTS} {longest} ids"),
        ("test06-token-count", "token count", "", "have another token_count", "the number of ids"),
        ("test06-first-token", "first token", "", "have another first token", f"{first} equal to the answer's start"),
        ("test06-begin", "begin-of-sequence id", "", "have one",
         f"no first token {_listed(begins.tolist())}, which at most {MOST_WITH_BEGIN:.0%} of the responses contain"),
        ("test06-special-ids", "other special ids", "", "have one",
         f"none of the tokenizer's {len(others)} special ids that end no answer"),
        ("test06-end-once", "end-of-sequence id once", "", "have more than one", f"at most one of the ids {ends}"),
        ("test06-end-last", "end-of-sequence id last", "", "go on after an end-of-sequence id",
         f"no token after the id {ends}"),
    ]  # fmt: skip
    name = "number of logged answers"
    checks = [applied("test06-count", name, total == expected_count, str(total), f"{expected_count}")]
    for rule, name, kept, broken, required in rows:
        if rule == "test06-special-ids" and not len(others):
            continue
        found, bad = kept or f"all {total} answers keep it", wrong[rule]
        if bad:
            more = f" and {len(bad) - NAMED_IN_MESSAGES} more" if len(bad) > NAMED_IN_MESSAGES else ""
            found = f"{len(bad)} of {total} answers {broken} ({'; '.join(bad[:NAMED_IN_MESSAGES])}{more})"
        check = applied(rule, name, not bad and total > 0, found, required, answers=len(bad))
        if rule == "test06-begin" and bad and not starts_with_begin and len(bad) <= MOST_WITH_BEGIN * total:
            check = replace(check, severity="note")
        checks.append(check)
    if shared := shared_answers(answers):
        checks.append(shared)
    return checks


def official_text(entries: Sequence[AccuracyEntry], *, scenario: str) -> str:
    """What the official script writes to `verify_accuracy.txt` for these answers.

    With the data type found here, and OFFICIAL_STOP_ID: another id on its command line is compared as a text and never
    found. A check that would end in a traceback is False.
    """
    dtype = dtype_of(entries)
    answers = [(entry, as_ids(entry.data, dtype)) for entry in entries]

    def all_are(look: Callable[[AccuracyEntry, Ids], bool]) -> bool:
        return all(ids is not None and look(entry, ids) for entry, ids in answers)

    def first_token(entry: AccuracyEntry, ids: Ids) -> bool:
        first = None if entry.token_data is None else as_ids(entry.token_data, dtype)
        if first is None:
            return False
        both = min(len(first), len(ids))  # over the shorter length
        return np.array_equal(first[:both], ids[:both])

    # Not two stop ids at the end; the script ignores the first id.
    ends = all_are(lambda _, ids: not (len(ids) > 2 and ids[-1] == ids[-2] == OFFICIAL_STOP_ID))
    lengths = all_are(lambda entry, ids: len(ids) == entry.token_count)
    first = "Skipped" if scenario == "Offline" else str(all_are(first_token))
    passed = ends and lengths and first != "False"
    return f"{_FIRST}: {first}\n{_END}: {ends}\n{_LENGTH}: {lengths}\n{_COMPLETE if passed else _INCOMPLETE}\n"


def faults_in_text(lines: Collection[str], scenario: Scenario) -> Iterator[tuple[str, str]]:
    """How a text fails to show that all three checks passed: (found, required)."""
    for wanted in _KEPT:
        if not set(wanted) & set(lines):
            yield f"no line {' or '.join(map(repr, wanted))}", "all three checks passed"
    # Lines with the outcome of a check, in any spelling.
    beginnings = tuple(name.casefold() for name in (_FIRST, _END, _LENGTH, OfficialTest06.name))
    for line in sorted(set(lines) - {line for wanted in _KEPT for line in wanted} - {_COMPLETE}):
        if line.casefold().startswith(beginnings):
            yield f"it says {line!r}", "no check failed"
    if _SKIPPED in lines and scenario != "Offline":
        yield f"the first token check was skipped in {scenario}", _KEPT[0][0]


def text_not_of(
    entries: Sequence[AccuracyEntry], lines: Collection[str], scenario: Scenario
) -> Iterator[tuple[str, str]]:
    """Lines of a text that these answers do not give: (found, expected)."""
    for line in official_text(entries, scenario=scenario).splitlines():
        name = line.partition(":")[0]
        # The outcome on end-of-sequence ids depends on an option of the script.
        if name in (_FIRST, _LENGTH) and line not in lines:
            yield next((one for one in sorted(lines) if one.startswith(name)), f"no line {name!r}"), line


def dtype_of(entries: Sequence[AccuracyEntry]) -> np.dtype[Any]:
    """int64 if every answer can be (whole 8-byte ids whose high words are 0), else int32."""
    answers = [entry.data for entry in entries if entry.data]
    wide = all(len(data) % 8 == 0 and not np.frombuffer(data, "<u4")[1::2].any() for data in answers)
    return np.dtype("<i8") if answers and wide else np.dtype("<i4")


def as_ids(data: bytes, dtype: np.dtype[Any]) -> Ids | None:
    """Ids as int64 numbers; None where the bytes are not whole ids."""
    return np.frombuffer(data, dtype).astype(np.int64) if len(data) % dtype.itemsize == 0 else None


def _places_of(wanted: Ids, ids: Ids) -> Ids:
    """The places in `ids` of any id of `wanted`, which is sorted; on short answers much faster than `np.isin`."""
    if not len(wanted):
        return np.empty(0, np.int64)
    nearest = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    return np.flatnonzero(wanted[nearest] == ids)


def _first_of(places: Ids, ids: Ids) -> str:
    return f"token {places[0] + 1} of {len(ids)} is the id {ids[places[0]]}" if len(places) else ""


def _first_token_problem(entry: AccuracyEntry, ids: Ids, dtype: np.dtype[Any], needed: bool) -> str:
    if not entry.token_data:
        return "not recorded" if needed else ""
    first = as_ids(entry.token_data, dtype)
    if first is None:
        return f"{len(entry.token_data)} bytes"
    if len(first) > len(ids) or not np.array_equal(first, ids[: len(first)]):
        return f"{first[:4].tolist()} for an answer that starts with {ids[:4].tolist()}"
    return ""


def _listed(ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "(none known)"
