"""The verdict of `verify` on a result as text, and the files verify_performance.json and verify_performance.txt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.judge.record import record
from compliance.judge.text import TextLayout, text
from compliance.judge.verdict import Verdict
from compliance.results.details import (
    RECORD_NAME,
    TEXT_NAME,
    ResultVerdict,
    RunVerdict,
    has_target,
    lacks_support,
    part_of,
)
from runs.errors import SetupError
from runs.files.writing import write_atomic, write_json
from runs.wording import shortened_list

SHOWN_REASONS = 3


def _result_head(verdict: ResultVerdict) -> Iterator[str]:
    performance = part_of(verdict, "performance")
    yield "Verifying performance."
    for name in ("reference", "test"):
        score = getattr(performance.details, f"{name}_score") if performance else None
        yield f"{name} score = {'none' if score is None else f'{score:.8g}'}"
    yield _verdict_line(verdict)
    yield from (f"not eligible for submission: {reason}" for reason in verdict.unofficial)
    if not verdict.parts or verdict.error is not None:
        yield from ("", *(f"given: {path}" for path in verdict.details.directories))


def _title(verdict: ResultVerdict) -> tuple[str, ...]:
    return ("", "Both runs" if verdict.parts else "Logs") if verdict.findings else ()


def _verdict_line(verdict: ResultVerdict) -> str:
    if verdict.outcome == "PASS":
        without = next((part for part in verdict.parts if not has_target(part)), None)
        return "TEST PASS" if without is None else f"no target applies: {without.details.values['label']}"
    reasons = shortened_list(verdict.reasons or ["no run was given"], SHOWN_REASONS)
    return f"{'NO VERDICT' if lacks_support(verdict) else 'TEST FAIL'}: {' '.join(reasons.split())}"


def _run_head(part: RunVerdict) -> Iterator[str]:
    details = part.details
    score = "score: 1 / p90 latency, in 1/s" if details.scenario == "SingleStream" else "score: samples/s"
    score = f"; {score}" if details.mode == "performance" else ""
    named = f" of round {details.round}" if details.round else ""
    named += " (the round of the seeds; --round R applies another)" if named and details.round_from_seeds else ""
    held_to = (
        f"the official rules{named}"
        if part.counts_official
        else "those for any run; the manifest marks this run as not eligible for submission"
    )
    yield from ("", f"{details.mode.capitalize()}: {details.directory}", f"  rule: {details.rule}{score}")
    yield f"  rules applied: {held_to}"
    yield f"  {details.scenario}, {details.loadgen_key}, LoadGen {details.loadgen_version}"
    if scores_from := details.values.get("scores_from"):
        yield f"  scores {'recomputed' if details.scored_again else 'read'} from {scores_from}"
    yield from (f"  {line}" for line in details.lines)


RESULT = TextLayout(
    _result_head,
    part=TextLayout(
        _run_head,
        # Findings on scores are already in the lines of the head.
        shown=lambda part: (finding for finding in part.findings if "metric" not in finding.numbers),
        tail=lambda part: (f"  note: {note}" for note in part.details.notes),
    ),
    title=_title,
    with_not_applied=False,
)


def write_verdict(verdict: Verdict[Any], folder: Path, layout: TextLayout = RESULT) -> Path:
    """Write a verdict of `verify` with the hashes of the verified files, and return the path of its text.

    The JSON is written first. A text therefore never exists without its JSON.

    Raises:
        SetupError: If the directory cannot be written.
    """
    content = record(verdict) | verdict.details.hashes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Remove the earlier verdict first, so that it cannot remain if writing fails.
        (folder / TEXT_NAME).unlink(missing_ok=True)
        write_json(folder / RECORD_NAME, content)
        write_atomic(folder / TEXT_NAME, text(verdict, layout))
    except OSError as error:
        raise SetupError(
            f"the verdict {content['verdict']} on {', '.join(content['directories'])} cannot be written to {folder}: "
            f"{error.strerror}",
            "give a writable directory: --output DIR",
        ) from error
    return folder / TEXT_NAME
