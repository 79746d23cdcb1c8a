"""C-1 on what the ids of answers stand for: has the model such ids, and are they text?"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compliance.accuracy.scores import TokenIds
from compliance.finding import Finding, fail, note
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.limits import PRINTABLE_SHARE

_NO_CHARACTER = "\ufffd"  # what bytes that are no UTF-8 become


@checks(
    "C-1",
    ("ids_outside_vocabulary", "error", "every id is one of the model's"),
    ("vocabulary_not_seen", "note", "the model is available"),
)
def ids_known(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """Every id is one that the model can give. Decoding would leave other ids out in silence."""
    where, size = evidence.run.accuracy_log, evidence.vocabulary_size
    if size is None:
        text = "the model is not available: whether it has the ids of the answers was not seen"
        yield note("C-1/vocabulary_not_seen", text, where)
        return
    outside = [one[(one < 0) | (one >= size)] for one in ids]
    answers = sum(bool(len(found)) for found in outside)
    if answers:
        first = int(next(found[0] for found in outside if len(found)))
        count = sum(map(len, outside))
        text = (
            f"{count} ids in {answers} of {len(ids)} answers, such as {first}, are none of the model's 0 to {size - 1}"
        )
        yield fail("C-1/ids_outside_vocabulary", text, where, ids=count, answers=answers, vocabulary_size=size)


@checks("C-1", ("not_text", "error", "the answers are text"), ("text_not_seen", "note", "the tokenizer is available"))
def text_printable(ids: Sequence[TokenIds], evidence: Evidence) -> Iterator[Finding]:
    """The answers, decoded, are characters that can be read."""
    tokenizer = evidence.tokenizer
    if tokenizer is None:
        text = "the tokenizer is not available: whether the answers are text was not seen"
        yield note("C-1/text_not_seen", text, evidence.run.accuracy_log)
        return
    share, characters = printable_share(tokenizer.batch_decode([np.asarray(one) for one in ids]))
    if share < PRINTABLE_SHARE:
        text = (
            f"{share:.2%} of the {characters:,} characters of the answers can be printed, of text {PRINTABLE_SHARE:.0%}"
        )
        yield fail("C-1/not_text", text, evidence.run.accuracy_log, printable_share=share, characters=characters)


def printable_share(texts: Iterable[str]) -> tuple[float, int]:
    """Which part of all characters is printable or white space, and how many characters there are.

    An answer that is cut at the token limit may end within a character: what stands for that at its end does not count.
    Without characters the share is 1: empty answers are for other rules.
    """
    printable = characters = 0
    for text in texts:
        whole = text.rstrip(_NO_CHARACTER)
        characters += len(whole)
        printable += sum(one.isprintable() or one.isspace() for one in whole) - whole.count(_NO_CHARACTER)
    return (printable / characters if characters else 1.0), characters
