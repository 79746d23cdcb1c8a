"""What scoring needs of NLTK and Punkt, without their packages' own code: `import nltk` takes a second, for everything
that it has."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType


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
    from nltk.stem.porter import PorterStemmer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

__all__ = ["PorterStemmer", "PunktParameters", "PunktSentenceTokenizer", "english"]
