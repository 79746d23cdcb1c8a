"""Reading a file that must hold a JSON object, with one message for each way in which it does not."""

from pathlib import Path
from typing import Any

import orjson

from runs.errors import InputError


def read_object(path: Path, fix: str) -> dict[str, Any]:
    """The object in a file.

    Args:
        fix: what the user can do about a file that holds none.

    Raises:
        InputError: unreadable, not JSON, or no object.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", fix) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} cannot be read: it is not JSON ({error})", fix) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no object", fix)
    return content
