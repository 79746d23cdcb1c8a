"""Access to the Hugging Face Hub. It is checked once, because other libraries retry for minutes."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TypeVar

from runs.errors import SetupError

T = TypeVar("T")

ENDPOINT = "https://huggingface.co"
RESPONSE_S = 10.0
PULL = "in a git clone: `git lfs pull`"
FETCH_AGAIN = f"fetch the model again ({PULL})"
FIX = "check the network (HTTPS_PROXY, HF_ENDPOINT), unset HF_HUB_OFFLINE, or give a local model folder or dataset file"


def from_hub(subject: str, fetch: Callable[[bool], T]) -> T:
    """Fetch something from the hub; if it is unreachable, from the local cache.

    Args:
        subject: subject of the message.
        fetch: function that fetches; its argument is whether to use only the local cache.

    Raises:
        SetupError: If the hub is unreachable, and the cache is incomplete.
        Exception: If `fetch` raises it with access to the hub.
    """
    try:
        check_hub(subject)
    except SetupError as unreachable:
        try:
            return fetch(True)
        except Exception as error:  # the hub's client raises many unrelated exceptions
            raise unreachable from error
    return fetch(False)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, shortened if it quotes a whole file."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def check_hub(subject: str) -> None:
    """Check that the hub responds.

    Args:
        subject: subject of the message.

    Raises:
        SetupError: If the hub does not respond, or HF_HUB_OFFLINE is set.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise SetupError(f"{subject} must be fetched from the Hugging Face Hub, but HF_HUB_OFFLINE is set", FIX)
    endpoint = os.environ.get("HF_ENDPOINT") or ENDPOINT
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=RESPONSE_S):
            return
    except urllib.error.HTTPError:
        return  # any HTTP status is a response
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SetupError(
            f"{subject} must be fetched from the Hugging Face Hub, but {endpoint} is unreachable: {reason}", FIX
        ) from error
