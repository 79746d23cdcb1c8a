"""ROUGE-1/2/L/Lsum of one pair of texts, equal to the package `rouge_score` to the last bit, but much faster.

Words, stems and f-measures are those of the package. The package stems every occurrence of a word, splits each text
twice, and fills whole tables to find longest common subsequences. Here, stems are cached, and a row of the table is one
integer with a bit for each column (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004). Rows of words that
are missing in the columns are skipped. Of multiple longest subsequences, the same one is chosen.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from nltk.stem.porter import PorterStemmer
from rouge_score.scoring import fmeasure

# Words of a lower-case text. [rouge_score/tokenize.py: all other characters separate words]
_WORD = re.compile("[a-z0-9]+")
_LONGEST_UNSTEMMED = 3  # characters of the longest word that is not stemmed [rouge_score/tokenize.py]
_PORTER = PorterStemmer()
_KEPT_STEMS = 2**18


class Rouge(NamedTuple):
    """F-measures of one pair of texts, each from 0 to 1."""

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float


def score_pair(prediction: str, reference: str) -> Rouge:
    """Return the scores that `RougeScorer(..., use_stemmer=True).score(reference, prediction)` returns."""
    predicted_lines = [_words(line) for line in prediction.split("\n")]
    reference_lines = [_words(line) for line in reference.split("\n")]
    predicted = list(chain.from_iterable(predicted_lines))
    wanted = list(chain.from_iterable(reference_lines))
    if not predicted or not wanted:
        return Rouge(0.0, 0.0, 0.0, 0.0)
    counts = Counter(predicted)
    bigrams, wanted_bigrams = Counter(pairwise(predicted)), Counter(pairwise(wanted))
    return Rouge(
        rouge1=_f_measure(_overlap(counts, Counter(wanted)), len(predicted), len(wanted)),
        rouge2=_f_measure(_overlap(bigrams, wanted_bigrams), len(predicted) - 1, len(wanted) - 1),
        rougeL=_f_measure(_lcs_length(wanted, predicted), len(predicted), len(wanted)),
        rougeLsum=_f_measure(
            _overlap(_union_lcs(reference_lines, predicted_lines), counts), len(predicted), len(wanted)
        ),
    )


class _Stems(dict[str, str]):
    """Cache of word stems. A dictionary subclass is twice as fast as a cached function."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _KEPT_STEMS:
            self.clear()
        stem = self[word] = _PORTER.stem(word) if len(word) > _LONGEST_UNSTEMMED else word
        return stem


_stem_of = _Stems().__getitem__


def _words(text: str) -> list[str]:
    return list(filter(None, map(_stem_of, _WORD.findall(text.lower()))))


def _f_measure(hits: int, predicted: int, wanted: int) -> float:
    return float(fmeasure(hits / max(predicted, 1), hits / max(wanted, 1)))


def _overlap(counts: Counter[Any], other_counts: Counter[Any]) -> int:
    """Return the size of the intersection of two multisets."""
    common = counts.keys() & other_counts.keys()
    return sum(map(min, map(counts.__getitem__, common), map(other_counts.__getitem__, common)))


def _places(words: Sequence[str]) -> dict[str, int]:
    """Return the positions of each word as a bit set."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return places


def _lcs_length(rows: Sequence[str], columns: Sequence[str]) -> int:
    places = _places(columns)
    full = (1 << len(columns)) - 1
    bits = full
    for word in rows:
        if word in places:
            bits = _next_row(bits, places[word], full)
    return len(columns) - bits.bit_count()


def _next_row(bits: int, places: int, full: int) -> int:
    """Return the next row of the table of subsequence lengths. A bit is 0 in a column where the length grows by one."""
    common = bits & places
    return ((bits + common) | (bits - common)) & full


def _union_lcs(reference: Sequence[list[str]], predicted: Sequence[list[str]]) -> Counter[str]:
    """Return the reference words, by position, that are in a common subsequence with any predicted sentence."""
    found_in: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, candidate in enumerate(predicted):
        for word, places in _places(candidate).items():
            found_in[word].append((number, places))
    covered: Counter[str] = Counter()
    for sentence in reference:
        # Table rows of each predicted sentence: position in the reference sentence, and the bit set of that row.
        rows_of: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, word in enumerate(sentence):
            for number, places in found_in.get(word, ()):
                rows_of[number].append((place, places))
        positions: set[int] = set()
        for number, rows in rows_of.items():
            if len(rows) == 1:  # the sentences have a single word in common
                positions.add(rows[0][0])
            else:
                positions.update(_lcs_positions(rows, len(predicted[number])))
        covered.update(sentence[position] for position in positions)
    return covered


def _lcs_positions(rows: Sequence[tuple[int, int]], width: int) -> Iterator[int]:
    """Yield the positions of the longest common subsequence that `rouge_score` chooses, in the reference sentence.

    `rouge_score` walks back from the last row and column. A row is taken if its word is in the last remaining column,
    or if the length would be smaller without the row. The row is then matched with the last position of its word, and
    the columns from that position on are dropped.

    Args:
        rows: Position and bit set of columns, for each reference word that is in the columns.
        width: Number of columns.
    """
    left = (1 << width) - 1
    table = [left]
    for _, places in rows:
        table.append(_next_row(table[-1], places, left))
    for row in range(len(rows) - 1, -1, -1):
        place, places = rows[row]
        places &= left
        if places << 1 > left or (table[row + 1] & left).bit_count() < (table[row] & left).bit_count():
            yield place
            left = (1 << places.bit_length() - 1) - 1
            if not left:
                return
