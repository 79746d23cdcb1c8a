"""CNN-DailyMail, the dataset of Llama-3.1-8B: articles with highlights, and the official prompt around an article.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [ref]   language/llama3.1-8b/download_cnndm.py and prepare-calibration.py
  [list]  calibration/CNNDailyMail/calibration-list.txt: 1,000 IDs, 998 different
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qsl.dataset_file import shorten
from qsl.dataset_kind import DatasetKind, DatasetRequest, SourceRows
from qsl.prepared_rows import encoded
from qsl.source_columns import HUB, HubTable, read_columns
from qsl.tokenizers import Tokenizer
from runs.errors import InputError
from runs.files.reading import read_whole

_VALIDATION = HubTable("cnn_dailymail", "3.0.0", "validation")
_TRAINING = _VALIDATION._replace(split="train")  # [ref] prepare-calibration.py

ID, ARTICLE, HIGHLIGHTS = "id", "article", "highlights"

# The official instruction around one article [ref]: it
# determines the token IDs of every prompt, so its characters must not change.
_HEAD, _TAIL = (
    "Summarize the following news article in 128 tokens. "
    "Please output the summary only, without any other text.\n\nArticle:\n",
    "\n\nSummary:",
)
TEMPLATE = _HEAD + "{input}" + _TAIL


@dataclass(frozen=True)
class Articles:
    """Checked articles and their highlights (reference summaries), by row."""

    articles: list[str]
    highlights: list[str]

    def __len__(self) -> int:
        return len(self.articles)


def read_articles(source: str, count: int | None = None) -> Articles:
    """Read and check the articles of the hub's dataset or of a local file, as `read_columns` does."""
    cells = read_columns(source, (ARTICLE, HIGHLIGHTS), count, hub=_VALIDATION)
    return Articles(cells[ARTICLE], cells[HIGHLIGHTS])


def read_calibration(source: str, ids: Path) -> Articles:
    """Return the articles of a list of IDs, in the order of the list. From the hub, read the training split.

    Args:
        source: "hub", or a file with an additional column id.
        ids: text file with an ID per line.

    Raises:
        InputError: If `read_columns` raises it, or the list is unreadable, empty, or has the ID of a missing article.
    """
    fix = "give calibration-list.txt of mlcommons/inference"
    named = read_whole(ids, fix, option="--ids").decode(errors="replace").split()
    if not named:
        raise InputError(f"--ids {ids} contains no ID", fix)
    cells = read_columns(source, (ID, ARTICLE, HIGHLIGHTS), hub=_TRAINING)
    place = {article_id: row for row, article_id in enumerate(cells[ID])}
    if unknown := [article_id for article_id in named if article_id not in place]:
        raise InputError(
            f"{len(unknown)} of the {len(named)} IDs of {ids} are not in {source}; the first is {shorten(unknown[0])}",
            f"give CNN-DailyMail's {_TRAINING.split} split",
        )
    rows = [place[article_id] for article_id in named]
    return Articles(*([cells[column][row] for row in rows] for column in (ARTICLE, HIGHLIGHTS)))


def article_prompt(article: str) -> str:
    """Return the prompt for `article`, which is inserted unchanged, including braces."""
    return _HEAD + article + _TAIL


def encode_rows(
    articles: Sequence[str],
    highlights: Sequence[str],
    tokenizer: Tokenizer,
    progress: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Return rows in the MLCommons format: the official prompt around each article, encoded as the reference does.

    Args:
        progress: called with the number of finished rows, after each batch.
    """
    return encoded(articles, map(article_prompt, articles), highlights, tokenizer, progress=progress)


class CnnDailymail(DatasetKind):
    """Articles of CNN and the Daily Mail."""

    name = "CNN-DailyMail"
    columns = "article and highlights"
    official_source = "CNN-DailyMail's validation split"
    calibration_list_sha256 = "4de1bc2bcf345ba8fc118788455dfaf2e09530fd9ed4daedf2b15661324ad9a7"  # [list]

    def is_official(self, source: str) -> bool:
        return source == HUB

    def read(self, request: DatasetRequest) -> SourceRows:
        tokenizer = request.tokenizer()
        if request.ids is not None and request.count is not None:
            raise InputError("--ids and --count exclude each other", "give only one of these options")
        if request.ids is None:
            rows = read_articles(request.source, request.count)
        else:
            rows = read_calibration(request.source, request.ids)
        return SourceRows(len(rows), partial(encode_rows, rows.articles, rows.highlights, tokenizer))
