"""Checks C and H-5: coherent responses, equal responses to equal samples, and the accuracy of the candidate."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compliance.accuracy.metrics import metric_of
from compliance.accuracy.scores import TokenIds
from compliance.judge.verdict import Finding, stated
from compliance.results.details import rule_findings
from compliance.signoff.evidence import FEW_SAMPLES, Evidence, Sides, checks
from runs.errors import HarnessError
from runs.record.fingerprint import RESPONSES
from runs.record.requests_log import RequestTable

# Limits for coherent text. Repetition is measured on token IDs.
COHERENT_SHARE = 0.5  # minimum share of coherent responses; the embedded model often loops and reaches 0.64
UNIQUE_4GRAMS = 0.3
PRINTABLE_SHARE = 0.99  # minimum share of printable characters; honest runs have a share of 1
ROUGE1_SHARE = 0.5  # minimum ROUGE-1 as a share of the reference score
MIN_ROUGE1 = 4.0  # minimum ROUGE-1 if there is no reference score
# Limits relative to the reference run's scores, for benchmarks without accuracy targets.
ROUGE_SHARE = 0.99
LENGTH_SHARE = 0.10
# Greedy decoding depends slightly on the batch, so the response to a repeated sample may differ.
MIN_ALIKE = 0.1
MIN_REPETITIONS = 16
_NO_CHARACTER = "\ufffd"  # replaces bytes that are not UTF-8


def accuracy_runs(runs: list[Evidence]) -> list[Evidence]:
    """Return the accuracy runs. An accuracy run logs every response."""
    return [evidence for evidence in runs if not evidence.is_performance and evidence.part is not None]


@checks(
    "C-1",
    ("unverifiable_noncoherent_reference", "error", "coherence of the reference responses"),
    ("coherence_not_seen", "warning", "missing accuracy run of the reference"),
    ("not_scored_again", "error", "rescored responses"),
)
def coherent(runs: list[Evidence]) -> Iterator[Finding]:
    """Check that the reference's responses are coherent (C-1); warn if it has no accuracy run."""
    accuracy = accuracy_runs(runs)
    if not accuracy:
        text = "the accuracy run of the reference is missing: the coherence of its responses is unknown"
        yield stated("C-1/coherence_not_seen", text)
    for evidence in accuracy:
        try:
            ids = evidence.response_ids
        except HarnessError as error:
            yield stated("C-1/unverifiable_noncoherent_reference", error.message, evidence.dir.accuracy_log)
            continue
        unknown = list(ids_known(ids, evidence))
        yield from unknown
        if any(reason.severity == "error" for reason in unknown):
            continue  # IDs outside the vocabulary cannot be decoded
        if not _reaches_target(evidence):
            yield from _ids_coherent(ids, evidence)
            yield from text_printable(ids, evidence)
        yield from _scores_coherent(evidence)


def _reaches_target(evidence: Evidence) -> bool:
    """Return True if the rescored responses reach the accuracy targets. Then they are coherent."""
    part = evidence.part
    if part is None or not evidence.details.get("target") or not part.details.scored_again:
        return False
    means = metric_of(evidence.benchmark).means
    return all(check.passed for check in rule_findings(part) if check.numbers.get("metric") in means)


def _ids_coherent(ids: list[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    where = evidence.dir.accuracy_log
    good = sum(_is_coherent(response) for response in ids)
    if not ids or good < COHERENT_SHARE * len(ids):
        text = f"responses without looping text: {good} of {len(ids)}, required: at least {COHERENT_SHARE:.0%}"
        yield stated("C-1/unverifiable_noncoherent_reference", text, where, coherent=good, answers=len(ids))
        return
    distinct = len({response.tobytes() for response in ids})
    if len(ids) >= FEW_SAMPLES and distinct < len(ids) / 2:
        text = f"distinct responses: {distinct} of {len(ids)} samples, required: at least half"
        yield stated("C-1/unverifiable_noncoherent_reference", text, where, distinct=distinct)


def _is_coherent(ids: TokenIds) -> bool:
    if not len(ids):
        return False
    if len(ids) < 8:  # too short for a repetition
        return True
    grams = {ids[start : start + 4].tobytes() for start in range(len(ids) - 3)}
    return len(grams) >= UNIQUE_4GRAMS * (len(ids) - 3)


def _scores_coherent(evidence: Evidence) -> Iterator[Finding]:
    scores, target = evidence.details.get("scores"), evidence.details.get("target")
    part = evidence.part
    if part is None or not scores or not part.details.scored_again:
        violated = part.violated if part is not None else []
        why = next(
            (finding.found for finding in violated if finding.rule == "accuracy-scored-again"),
            "the responses have no scores",
        )
        yield stated("C-1/not_scored_again", f"the responses were not rescored: {why}", evidence.dir.root)
        return
    name = metric_of(evidence.benchmark).means[0]
    score, least = scores[name], ROUGE1_SHARE * target[name] if target else MIN_ROUGE1
    if score < least:
        text = f"{name} of the responses: {score:.2f}, required: at least {least:.2f}"
        yield stated("C-1/unverifiable_noncoherent_reference", text, evidence.dir.accuracy_log, **{name: score})


@checks(
    "C-1",
    ("ids_outside_vocabulary", "error", "token IDs outside the model's vocabulary"),
    ("vocabulary_not_seen", "note", "missing model, whose vocabulary is needed"),
)
def ids_known(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """Check that every token ID is in the model's vocabulary. A tokenizer silently drops other IDs."""
    where, size = evidence.dir.accuracy_log, evidence.vocabulary_size
    if size is None:
        text = "the model is missing: the token IDs of the responses were not compared with its vocabulary"
        yield stated("C-1/vocabulary_not_seen", text, where)
        return
    outside = [response[(response < 0) | (response >= size)] for response in ids]
    responses = sum(bool(len(outside_ids)) for outside_ids in outside)
    if responses:
        first = int(next(outside_ids[0] for outside_ids in outside if len(outside_ids)))
        count = sum(map(len, outside))
        text = f"token IDs outside the model's vocabulary of {size}: {count} in {responses} of {len(ids)} responses"
        text += f" (for example {first}), required: none"
        yield stated("C-1/ids_outside_vocabulary", text, where, ids=count, answers=responses, vocabulary_size=size)


@checks(
    "C-1",
    ("not_text", "error", "share of printable characters in the responses"),
    ("text_not_seen", "note", "missing tokenizer, which decodes the responses"),
)
def text_printable(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """Check that the decoded responses are printable."""
    tokenizer = evidence.tokenizer
    if tokenizer is None:
        text = "the tokenizer is missing: the responses were not decoded"
        yield stated("C-1/text_not_seen", text, evidence.dir.accuracy_log)
        return
    share, characters = printable_share(tokenizer.batch_decode([np.asarray(response) for response in ids]))
    if share < PRINTABLE_SHARE:
        text = f"printable characters in the responses: {share:.2%} of {characters:,}"
        text += f", required: at least {PRINTABLE_SHARE:.0%}"
        yield stated("C-1/not_text", text, evidence.dir.accuracy_log, printable_share=share, characters=characters)


def printable_share(texts: Iterable[str]) -> tuple[float, int]:
    """Return the share of printable characters and white space, and the number of characters.

    A character that the token limit cut at the end of a response is ignored. Without characters the share is 1, because
    other rules check empty responses.
    """
    printable = characters = 0
    for text in texts:
        complete = text.rstrip(_NO_CHARACTER)
        characters += len(complete)
        printable += sum(character.isprintable() or character.isspace() for character in complete) - complete.count(
            _NO_CHARACTER
        )
    return (printable / characters if characters else 1.0), characters


@checks("C-2", ("byte_parity_pass", "note", "byte-identical responses of candidate and reference"))
@checks(
    "C-3",
    ("accuracy_gate_fail", "error", "scores of the candidate's accuracy run"),
    ("accuracy_gate_pass", "note", "scores of the candidate's accuracy run"),
    ("diverges_needs_accuracy_probe", "error", "missing accuracy run of a candidate with other responses"),
)
def correctness(sides: Sides) -> Iterator[Finding]:
    """Check the reference (C-1). Then check that the candidate has equal responses (C-2) or good scores (C-3)."""
    violated = [finding for finding in coherent(sides.ref) if finding.severity != "note"]
    yield from violated
    if any(finding.severity == "error" for finding in violated):
        sides.details.correctness_status = "unverifiable_noncoherent_reference"
        return
    finding = _same_responses(sides.ref, sides.cand)
    sides.details.correctness_status = finding.slug
    yield finding


def _same_responses(ref: list[Evidence], cand: list[Evidence]) -> Finding:
    reference, candidates = (accuracy_runs(ref) or ref)[0], accuracy_runs(cand)
    where, expected = reference.dir.root, _responses(reference)
    responses = [pair for evidence in cand if evidence.requests is not None for pair in _digests(evidence.requests)]
    equal = sum(expected.get(index) == digest for index, digest in responses)
    if responses and equal == len(responses):
        text = f"all {equal} responses of the candidate are identical to the reference responses"
        return stated("C-2/byte_parity_pass", text, where)
    share = equal / len(responses) if responses else 0.0
    text = f"{share:.1%} of the candidate's responses are identical to the reference responses"
    if not candidates:
        text += ", and the candidate's accuracy run is missing"
        return stated("C-3/diverges_needs_accuracy_probe", text, where, equal_share=share)
    problems = [
        text for candidate in candidates for text in (*_below_target(candidate, reference), *_unknown_ids(candidate))
    ]
    where = candidates[0].dir.root
    if problems:
        return stated("C-3/accuracy_gate_fail", "; ".join(problems), where, equal_share=share)
    return stated("C-3/accuracy_gate_pass", f"{text}; its accuracy run meets the targets", where, equal_share=share)


def _digests(table: RequestTable) -> Iterator[tuple[int, str]]:
    """Return sample index and SHA-256 of the response of each request."""
    return zip(table.sample_index.tolist(), table.output_sha256, strict=True)


def _responses(reference: Evidence) -> dict[int, str]:
    """Return sample index → SHA-256 of the response, from LoadGen's accuracy log or else from the request log."""
    if not reference.is_performance:
        return {entry.qsl_idx: hashlib.sha256(entry.data).hexdigest() for entry in reference.entries}
    return dict(_digests(reference.requests)) if reference.requests is not None else {}


def _unknown_ids(evidence: Evidence) -> list[str]:
    try:
        return [finding.text for finding in ids_known(evidence.response_ids, evidence) if finding.severity == "error"]
    except HarnessError as error:
        return [error.message]


def _below_target(evidence: Evidence, reference: Evidence) -> list[str]:
    """Return the scores below the accuracy targets. Without targets, compare with the scores of the reference run."""
    part, scores = evidence.part, evidence.details.get("scores")
    if part is None or not scores:
        return [f"{evidence.dir.root} has no scores"]
    if evidence.details.get("target"):
        return [check.sentence for check in part.violated if "metric" in check.numbers]
    recomputed = reference.details.get("scores")
    if not recomputed:
        return [f"{reference.dir.root} has no scores, so the candidate's scores cannot be compared"]
    metric = metric_of(evidence.benchmark)
    low = [
        f"{name} is {scores[name]:.4f}, required: at least {ROUGE_SHARE:.0%} of {recomputed[name]:.4f} (reference run)"
        for name in metric.means
        if scores[name] < ROUGE_SHARE * recomputed[name]
    ]
    length = metric.length
    if not np.isclose(scores[length], recomputed[length], rtol=LENGTH_SHARE):
        low.append(
            f"{length} is {scores[length]}, not within {LENGTH_SHARE:.0%} of the reference run's {recomputed[length]}"
        )
    return low


@checks("H-5", ("other_answers", "error", "responses to repeated samples"))
def one_model(runs: list[Evidence]) -> Iterator[Finding]:
    """Compare responses to equal samples, in a run and between runs of equal model, dataset and sampling (H-5)."""
    first_of: dict[str, tuple[dict[int, str], Evidence]] = {}
    for evidence in runs:
        table = evidence.requests
        if table is None:
            continue
        responses: dict[int, str] = {}
        same = [responses.setdefault(index, digest) == digest for index, digest in _digests(table)]
        repeated = len(same) - len(responses)
        yield from _unlike(evidence, sum(same) - len(responses), repeated, "the sample's first response")
        if evidence.manifest is None:
            continue
        responses = {evidence.manifest.plan.row_of(index): digest for index, digest in responses.items()}
        system = repr(sorted(RESPONSES.of(evidence.facts).items()))
        before, first_evidence = first_of.setdefault(system, (responses, evidence))
        common = before.keys() & responses.keys()
        alike = sum(before[index] == responses[index] for index in common)
        yield from _unlike(evidence, alike, len(common), f"the sample's response in {first_evidence.dir.root}")


def _unlike(evidence: Evidence, alike: int, again: int, where: str) -> Iterator[Finding]:
    if again >= MIN_REPETITIONS and alike < MIN_ALIKE * again:
        text = f"repetitions with {where}: {alike} of {again}, required with greedy decoding: at least {MIN_ALIKE:.0%}"
        yield stated("H-5/other_answers", text, evidence.dir.requests, alike=alike, again=again)
