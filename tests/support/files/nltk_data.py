"""NLTK's sentence splitter, which reads its English parameters from a folder of NLTK's format."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nltk
import pytest
from punkt.data import english


@contextmanager
def nltk_sentences(folder: Path) -> Iterator[Callable[[str], list[str]]]:
    """Yield `nltk.sent_tokenize`; its files are written to `folder`."""
    model = folder / "tokenizers" / "punkt_tab" / "english"
    model.mkdir(parents=True)
    (model / "abbrev_types.txt").write_text("\n".join(english.ABBREV_TYPES))
    (model / "sent_starters.txt").write_text("\n".join(english.SENT_STARTERS))
    (model / "collocations.tab").write_text("\n".join("\t".join(pair) for pair in english.COLLOCATIONS))
    (model / "ortho_context.tab").write_text(
        "\n".join(f"{word}\t{flags}" for word, flags in english.ORTHO_CONTEXT.items())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(folder)])
        yield nltk.sent_tokenize
