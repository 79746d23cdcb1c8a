"""The official instruction around one article.

The wording is the benchmark's (mlcommons/inference, language/llama3.1-8b/download_cnndm.py) and decides the token
ids of every prompt, so not a character of it may change.
"""

_HEAD, _TAIL = (
    "Summarize the following news article in 128 tokens. "
    "Please output the summary only, without any other text.\n\nArticle:\n",
    "\n\nSummary:",
)

TEMPLATE = _HEAD + "{input}" + _TAIL


def render(article: str) -> str:
    """The prompt for `article`, which is taken as it stands: braces in it mean nothing."""
    return _HEAD + article + _TAIL
