"""A synthetic dataset of any size, for the rehearsal of a submission with an engine without a model.

The rows resemble the benchmark's rows: they have the official prompt and articles of the official lengths. The
reference summaries overlap with the lead of their article about as much as the reference model's responses overlap with
the official summaries. An engine that returns the lead of each article, with the length of a model's response,
therefore meets the official accuracy targets. The texts are random sequences of the bundled articles' words, by pairs
of words. Every reference summary states that it is synthetic.
"""

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from qsl.dataset import SYNTHETIC_MARK
from qsl.datasets.cnn_dailymail import Articles, article_prompt
from qsl.embedded.articles import bundled_articles
from qsl.tokenizers import Tokenizer

# Target lengths of prompts in tokens, like the official dataset with Llama 3's tokenizer: mean about 850, maximum
# 2,540. A log-normal distribution, cut at both ends. The actual number of tokens differs by a few percent.
SHORTEST_PROMPT_TOKENS, LONGEST_PROMPT_TOKENS = 200, 2_500
MEDIAN_PROMPT_TOKENS, PROMPT_SPREAD = 770, 0.44

SENTENCE_WORDS = (9, 24)
SENTENCES_A_PARAGRAPH = 3

# Share of the lead in a reference summary. Measured: the scores of the lead's first 600 characters are between 0.99 and
# 1.1 of the reference scores of both datasets (tests/qsl/test_rehearsal.py).
LEAD_WORDS = 100
SUMMARY_SENTENCES = 3
SUMMARY_WORDS = 18  # words per sentence
COPIED_SHARE = 0.45
LONG_RUN_SHARE = 0.52  # share of copied word sequences that have three words; the others are single words
REVERSED_SHARE = 0.52  # share of summaries whose sentences are in the reverse order of the lead

_WORD = re.compile(r"[A-Za-z][a-z]+")


class _Chain:
    """A Markov chain of words: the words that follow each word in the bundled articles, with their frequency."""

    def __init__(self) -> None:
        following: defaultdict[str, list[str]] = defaultdict(list)
        self.words: list[str] = []
        for article in bundled_articles():
            for sentence in re.split(r"[.!?\n]+", article.article):
                words = [word.lower() for word in _WORD.findall(sentence)]
                self.words += words
                for word, next_word in pairwise(words):
                    following[word].append(next_word)
        self._following = dict(following)

    def sentence(self, draw: random.Random) -> list[str]:
        """Return a sentence's words in lower case."""
        count = draw.randint(*SENTENCE_WORDS)
        word = draw.choice(self.words)
        sentence = [word]
        while len(sentence) < count:
            choices = self._following.get(word) or self.words
            word = choices[int(draw.random() * len(choices))]
            sentence.append(word)
        return sentence


def make_rows(
    count: int, tokenizer: Tokenizer, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Articles:
    """Generate `count` rows; equal arguments give equal rows.

    Args:
        tokenizer: tokenizer that determines the length of prompts.
        progress: called with the number of finished rows.
    """
    chain = _Chain()
    draw = random.Random(f"rehearsal {seed}")
    instruction_tokens = len(tokenizer.encode(article_prompt("")))
    sample = _text([chain.sentence(draw) for _ in range(400)])
    tokens_a_word = len(tokenizer.encode(sample)) / len(sample.split())
    articles, summaries = [], []
    for number in range(count):
        aimed = MEDIAN_PROMPT_TOKENS * math.exp(draw.gauss(0.0, PROMPT_SPREAD))
        # The margin allows for the last sentence, which may exceed the length.
        tokens = min(max(aimed, SHORTEST_PROMPT_TOKENS), LONGEST_PROMPT_TOKENS - 2 * SENTENCE_WORDS[1])
        words = (tokens - instruction_tokens) / tokens_a_word
        sentences = [chain.sentence(draw)]
        length = len(sentences[0])
        while length < words:
            sentences.append(chain.sentence(draw))
            length += len(sentences[-1])
        articles.append(_text(sentences))
        summaries.append(_summary(sentences, chain.words, number, draw))
        if number % 100 == 99:
            progress(number + 1)
    progress(count)
    return Articles(articles, summaries)


def _text(sentences: list[list[str]]) -> str:
    texts = [" ".join([words[0].capitalize(), *words[1:]]) + "." for words in sentences]
    paragraphs = [texts[first : first + SENTENCES_A_PARAGRAPH] for first in range(0, len(texts), SENTENCES_A_PARAGRAPH)]
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs)


def _summary(sentences: list[list[str]], words: list[str], number: int, draw: random.Random) -> str:
    """Return sentences with word sequences from parts of the lead, in its order, between meaningless words.

    In many rows the sentences are in reverse order, so that the longest common subsequence of the whole texts is
    shorter than that of the sentences, as in real summaries.
    """
    lead = [word for sentence in sentences for word in sentence][:LEAD_WORDS]
    part = -(-len(lead) // SUMMARY_SENTENCES)
    parts = [lead[start : start + part] for start in range(0, len(lead), part)]
    if draw.random() < REVERSED_SHARE:
        parts.reverse()
    lines = [" ".join(_sentence_from(part, words, draw)).capitalize() + " ." for part in parts]
    return "\n".join([*lines, f"{SYNTHETIC_MARK} {number} ."])


def _sentence_from(part: list[str], words: list[str], draw: random.Random) -> Iterator[str]:
    copied = round(SUMMARY_WORDS * COPIED_SHARE)
    runs: list[int] = []
    while sum(runs) < copied:
        runs.append(3 if draw.random() < LONG_RUN_SHARE else 1)
    spare = max(0, len(part) - sum(runs))
    gaps = sorted(draw.randint(0, spare) for _ in runs)
    fillers = SUMMARY_WORDS - copied
    place = 0
    for position, (run, gap) in enumerate(zip(runs, gaps, strict=True)):
        start = place + gap
        yield from part[start : start + run]
        place += run
        share = fillers * (position + 1) // len(runs) - fillers * position // len(runs)
        for _ in range(share):
            yield draw.choice(words)
