"""The model and data hub: asked once whether it can be reached, instead of minutes of other libraries' retries."""

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
FIX = (
    "check the network (HTTPS_PROXY, HF_ENDPOINT), unset HF_HUB_OFFLINE, or name what lies on this machine: a model "
    "folder, a dataset file"
)


def from_hub(what: str, fetch: Callable[[bool], T]) -> T:
    """Fetch something, from this machine's cache where the hub cannot be reached.

    Args:
        what: for messages.
        fetch: does it; its argument is whether to look in this machine's cache only.

    Raises:
        SetupError: the hub cannot be reached, and the cache has not all of it.
        Exception: what `fetch` raises when it may ask the hub.
    """
    try:
        need_hub(what)
    except SetupError as unreachable:
        try:
            return fetch(True)
        except Exception as error:  # the hub's client raises a dozen unrelated kinds
            raise unreachable from error
    return fetch(False)


def first_line(error: BaseException) -> str:
    """The first line of another library's error, cut where it quotes a whole file."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def need_hub(what: str) -> None:
    """Return when the hub answers.

    Args:
        what: is wanted from it, for the message.

    Raises:
        SetupError: it does not answer, or HF_HUB_OFFLINE is set.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise SetupError(f"{what} would have to come from the hub, and HF_HUB_OFFLINE is set", FIX)
    endpoint = os.environ.get("HF_ENDPOINT") or ENDPOINT
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=RESPONSE_S):
            return
    except urllib.error.HTTPError:
        return  # it answers, with whatever status
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SetupError(
            f"{what} would have to come from the hub, and {endpoint} cannot be reached: {reason}", FIX
        ) from error
