"""C and H-5: the responses are a model's, a sample always has the same, and the candidate's are as accurate."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compliance.accuracy.metrics import metric_of
from compliance.accuracy.scores import TokenIds
from compliance.judge.finding import Finding, fail, note, warn
from compliance.signoff.evidence import FEW_SAMPLES, Evidence, Sides, checks
from runs.errors import HarnessError
from runs.record.fingerprint import RESPONSES
from runs.record.requests_log import RequestTable

# Coherent text, on IDs alone.
COHERENT_SHARE = 0.5  # of the responses; the embedded model, which often loops, has 0.64
UNIQUE_4GRAMS = 0.3
PRINTABLE_SHARE = 0.99  # of the decoded characters; in the responses of honest runs it is 1
ROUGE1_SHARE = 0.5  # of the reference score
MIN_ROUGE1 = 4.0  # without a reference score: any summary has words of its article
# Without official targets: limits relative to the reference run's scores.
ROUGE_SHARE = 0.99
LENGTH_SHARE = 0.10
# Greedy responses depend a little on the batch, so repetitions of a sample may differ, but not nearly all.
MIN_ALIKE = 0.1
MIN_REPETITIONS = 16
_NO_CHARACTER = "\ufffd"  # in place of bytes that are no UTF-8


def accuracy_runs(runs: list[Evidence]) -> list[Evidence]:
    """The runs with every response."""
    return [evidence for evidence in runs if not evidence.is_performance and evidence.part is not None]


@checks(
    "C-1",
    ("unverifiable_noncoherent_reference", "error", "the reference's responses are coherent"),
    ("coherence_not_seen", "warning", "the reference has an accuracy run"),
    ("not_scored_again", "error", "the responses were scored again"),
)
def coherent(runs: list[Evidence]) -> Iterator[Finding]:
    """C-1 on the reference. Without an accuracy run, a warning."""
    found = accuracy_runs(runs)
    if not found:
        text = "no accuracy run among the reference runs: whether the responses are coherent is not known"
        yield warn("C-1/coherence_not_seen", text)
    for evidence in found:
        try:
            ids = evidence.response_ids
        except HarnessError as error:
            yield fail("C-1/unverifiable_noncoherent_reference", error.message, evidence.dir.accuracy_log)
            continue
        unknown = list(ids_known(ids, evidence))
        yield from unknown
        if any(reason.severity == "error" for reason in unknown):
            continue  # such IDs cannot be decoded
        if not _reaches_target(evidence):
            yield from _ids_coherent(ids, evidence)
            yield from text_printable(ids, evidence)
        yield from _scores_coherent(evidence)


def _reaches_target(evidence: Evidence) -> bool:
    """Whether the responses were scored again and reach the targets, which shows that they are coherent."""
    part = evidence.part
    if part is None or not evidence.details.get("target") or not part.scored_again:
        return False
    means = metric_of(evidence.benchmark).means
    return all(check.passed for check in part.checks if check.numbers.get("metric") in means)


def _ids_coherent(ids: list[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    where = evidence.dir.accuracy_log
    good = sum(_is_coherent(one) for one in ids)
    if not ids or good < COHERENT_SHARE * len(ids):
        text = f"{good} of {len(ids)} responses do not repeat one stretch of text"
        yield fail("C-1/unverifiable_noncoherent_reference", text, where, coherent=good, answers=len(ids))
        return
    distinct = len({one.tobytes() for one in ids})
    if len(ids) >= FEW_SAMPLES and distinct < len(ids) / 2:
        text = f"{len(ids)} samples have {distinct} different responses"
        yield fail("C-1/unverifiable_noncoherent_reference", text, where, distinct=distinct)


def _is_coherent(ids: TokenIds) -> bool:
    if not len(ids):
        return False
    if len(ids) < 8:  # too short to repeat itself
        return True
    grams = {ids[start : start + 4].tobytes() for start in range(len(ids) - 3)}
    return len(grams) >= UNIQUE_4GRAMS * (len(ids) - 3)


def _scores_coherent(evidence: Evidence) -> Iterator[Finding]:
    scores, target = evidence.details.get("scores"), evidence.details.get("target")
    part = evidence.part
    if part is None or not scores or not part.scored_again:
        broken = part.broken if part is not None else []
        why = next(
            (one.found for one in broken if one.rule == "accuracy-scored-again"), "the responses were not scored"
        )
        yield fail("C-1/not_scored_again", f"unverifiable: {why}", evidence.dir.root)
        return
    name = metric_of(evidence.benchmark).means[0]
    score, least = scores[name], ROUGE1_SHARE * target[name] if target else MIN_ROUGE1
    if score < least:
        text = f"{name} of the responses is {score:.2f}, below {least:.2f}: they do not summarize the articles"
        yield fail("C-1/unverifiable_noncoherent_reference", text, evidence.dir.accuracy_log, **{name: score})


@checks(
    "C-1",
    ("ids_outside_vocabulary", "error", "every ID is one of the model's"),
    ("vocabulary_not_seen", "note", "the model is available"),
)
def ids_known(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """Every ID is in the model's vocabulary. Decoding would drop other IDs without an error."""
    where, size = evidence.dir.accuracy_log, evidence.vocabulary_size
    if size is None:
        text = "the model is not available: the IDs of the responses were not compared with its vocabulary"
        yield note("C-1/vocabulary_not_seen", text, where)
        return
    outside = [one[(one < 0) | (one >= size)] for one in ids]
    responses = sum(bool(len(found)) for found in outside)
    if responses:
        first = int(next(found[0] for found in outside if len(found)))
        count = sum(map(len, outside))
        text = f"{count} ids in {responses} of {len(ids)} responses, such as {first}, are not in the model's"
        text += f" vocabulary of {size}"
        yield fail("C-1/ids_outside_vocabulary", text, where, ids=count, answers=responses, vocabulary_size=size)


@checks("C-1", ("not_text", "error", "the responses are text"), ("text_not_seen", "note", "the tokenizer is available"))
def text_printable(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """The decoded responses are printable."""
    tokenizer = evidence.tokenizer
    if tokenizer is None:
        text = "the tokenizer is not available: the responses were not decoded"
        yield note("C-1/text_not_seen", text, evidence.dir.accuracy_log)
        return
    share, characters = printable_share(tokenizer.batch_decode([np.asarray(one) for one in ids]))
    if share < PRINTABLE_SHARE:
        text = f"{share:.2%} of the {characters:,} characters of the responses are printable"
        text += f", at least {PRINTABLE_SHARE:.0%} of a text are"
        yield fail("C-1/not_text", text, evidence.dir.accuracy_log, printable_share=share, characters=characters)


def printable_share(texts: Iterable[str]) -> tuple[float, int]:
    """The share of printable characters and white space, and the number of characters.

    A character that the token limit cut at the end of a response is ignored. Without characters the share is 1: other
    rules judge empty responses.
    """
    printable = characters = 0
    for text in texts:
        whole = text.rstrip(_NO_CHARACTER)
        characters += len(whole)
        printable += sum(one.isprintable() or one.isspace() for one in whole) - whole.count(_NO_CHARACTER)
    return (printable / characters if characters else 1.0), characters


@checks("C-2", ("byte_parity_pass", "note", "the responses are the reference's, byte by byte"))
@checks(
    "C-3",
    ("accuracy_gate_fail", "error", "the candidate's own scores pass"),
    ("accuracy_gate_pass", "note", "the candidate's own scores pass"),
    ("diverges_needs_accuracy_probe", "error", "a candidate with other responses has an accuracy run"),
)
def correctness(of: Sides) -> Iterator[Finding]:
    """C-1 on the reference, then C-2 and C-3: byte parity of the candidate's responses, or else its accuracy."""
    broken = [finding for finding in coherent(of.ref) if finding.severity != "note"]
    yield from broken
    if any(finding.severity == "error" for finding in broken):
        of.verdict.correctness_status = "unverifiable_noncoherent_reference"
        return
    found = _same_responses(of.ref, of.cand)
    of.verdict.correctness_status = found.slug
    yield found


def _same_responses(ref: list[Evidence], cand: list[Evidence]) -> Finding:
    reference, candidates = (accuracy_runs(ref) or ref)[0], accuracy_runs(cand)
    where, expected = reference.dir.root, _responses(reference)
    given = [pair for one in cand if one.requests is not None for pair in _digests(one.requests)]
    equal = sum(expected.get(index) == digest for index, digest in given)
    if given and equal == len(given):
        return note("C-2/byte_parity_pass", f"all {equal} responses of the candidate are the reference's", where)
    share = equal / len(given) if given else 0.0
    text = f"{share:.1%} of the candidate's responses are the reference's"
    if not candidates:
        text += ", and it has no accuracy run"
        return fail("C-3/diverges_needs_accuracy_probe", text, where, equal_share=share)
    problems = [text for one in candidates for text in (*_below_target(one, reference), *_unknown_ids(one))]
    where = candidates[0].dir.root
    if problems:
        return fail("C-3/accuracy_gate_fail", "; ".join(problems), where, equal_share=share)
    return note("C-3/accuracy_gate_pass", f"{text}; the candidate's own scores pass", where, equal_share=share)


def _digests(table: RequestTable) -> Iterator[tuple[int, str]]:
    """Sample and SHA-256 of the response, of each request."""
    return zip(table.sample_index.tolist(), table.output_sha256, strict=True)


def _responses(reference: Evidence) -> dict[int, str]:
    """SHA-256 of the response to each sample: of the logged ones, else as recorded."""
    if not reference.is_performance:
        return {entry.qsl_idx: hashlib.sha256(entry.data).hexdigest() for entry in reference.entries}
    return dict(_digests(reference.requests)) if reference.requests is not None else {}


def _unknown_ids(evidence: Evidence) -> list[str]:
    try:
        return [one.text for one in ids_known(evidence.response_ids, evidence) if one.severity == "error"]
    except HarnessError as error:
        return [error.message]


def _below_target(evidence: Evidence, reference: Evidence) -> list[str]:
    """Scores below the official targets, or without these below the reference run's scores."""
    part, scores = evidence.part, evidence.details.get("scores")
    if part is None or not scores:
        return [f"{evidence.dir.root} has no scores"]
    if evidence.details.get("target"):
        return [check.sentence for check in part.broken if "metric" in check.numbers]
    ours = reference.details.get("scores")
    if not ours:
        return [f"{reference.dir.root} has no scores to compare with"]
    metric = metric_of(evidence.benchmark)
    low = [
        f"{name} {scores[name]:.4f} is below {ROUGE_SHARE:g} of the reference run's {ours[name]:.4f}"
        for name in metric.means
        if scores[name] < ROUGE_SHARE * ours[name]
    ]
    length = metric.length
    if not np.isclose(scores[length], ours[length], rtol=LENGTH_SHARE):
        low.append(f"{length} {scores[length]} is not within 10 % of the reference run's {ours[length]}")
    return low


@checks("H-5", ("other_answers", "error", "repetitions have the response of the first time"))
def one_model(runs: list[Evidence]) -> Iterator[Finding]:
    """H-5: a greedy model gives a sample the same response in the repetitions of one run, and in all runs that record
    one model, dataset and sampling."""
    known: dict[str, tuple[dict[int, str], Evidence]] = {}
    for evidence in runs:
        table = evidence.requests
        if table is None:
            continue
        responses: dict[int, str] = {}
        same = [responses.setdefault(index, digest) == digest for index, digest in _digests(table)]
        where = "its first response; greedy decoding gives the same"
        yield from _unlike(evidence, sum(same) - len(responses), len(same) - len(responses), where)
        if evidence.manifest is None:
            continue
        system = repr(sorted(RESPONSES.of(evidence.facts).items()))
        before, other = known.setdefault(system, (responses, evidence))
        common = before.keys() & responses.keys()
        alike = sum(before[index] == responses[index] for index in common)
        yield from _unlike(evidence, alike, len(common), f"its response in {other.dir.root}, so the model is another")


def _unlike(evidence: Evidence, alike: int, again: int, where: str) -> Iterator[Finding]:
    if again >= MIN_REPETITIONS and alike < MIN_ALIKE * again:
        text = f"{alike} of {again} repetitions of a sample have {where}"
        yield fail("H-5/other_answers", text, evidence.dir.requests, alike=alike, again=again)
