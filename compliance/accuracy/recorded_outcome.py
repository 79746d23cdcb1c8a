"""The outcome of a finished run as its own records state it, for `status`, `results` and pages."""

from typing import NamedTuple

from compliance.accuracy.accuracy_files import ACCURACY_OUTCOMES, ScoresRecord, read_scores_record
from runs.attestation.attestation import changed_records
from runs.numbers.result import RunNumbers
from runs.record.engines.server_notes import stated_verdict
from runs.record.layout import RunDir
from runs.record.manifest import Manifest


class RecordedOutcome(NamedTuple):
    """The outcome in words, and the records that it comes from."""

    text: str
    scores: ScoresRecord | None  # None for a performance run


def recorded_outcome(run: RunDir, manifest: Manifest, result: RunNumbers) -> RecordedOutcome:
    """Return the outcome of a finished run; name its records that changed since the attestation.

    Raises:
        InputError: If accuracy.json of an accuracy run is missing or damaged.
    """
    scores = read_scores_record(run) if result.verdict == "DONE" else None
    text = stated_verdict(result.verdict, manifest.observed) if scores is None else ACCURACY_OUTCOMES[scores.passed]
    if changed := changed_records(run):
        text += f", but {' and '.join(changed)} changed since the attestation"
    return RecordedOutcome(text, scores)
