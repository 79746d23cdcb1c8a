"""A new curve.yaml for a server: the example with the given values, and what the user still has to write."""

import json
import re
from functools import partial
from pathlib import Path

from runs.errors import InputError, SetupError
from runs.files.writing import write_atomic
from runs.harness import HARNESS_ROOT, PROGRAM
from scenarios.curve.curve_config import load_curve

TEMPLATE = HARNESS_ROOT / "configs" / "curve.yaml"


def curve_template() -> str:
    """Return the commented example of curve.yaml."""
    return TEMPLATE.read_text().replace("main.py", PROGRAM)


def write_new_curve(path: Path, url: str, values: dict[str, Path | str | None], *, is_rehearsal: bool) -> list[str]:
    """Write curve.yaml for a server, and return the mistakes that the user still has to correct.

    Args:
        values: The values of model, client and path; None: that of the example.

    Raises:
        SetupError: If the file exists already, or cannot be written.
    """
    if path.exists():
        raise SetupError(f"{path} already exists", f"give --config {path}, or move the file away")
    text = curve_template()
    for name, value in {"server": url, **values}.items():
        if value is not None:
            written = json.dumps(str(value), ensure_ascii=False)
            # A dataset's path is in braces or below the dataset; the other keys are at the start of a line.
            pattern = r"(\bpath:) [^,}\n]+" if name == "path" else rf"(?m)^({name}:) [^#\n]+$|^({name}:) [^#\n]+(?= #)"
            text = re.sub(pattern, partial(_replaced, written), text)
    try:
        write_atomic(path, text)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}", "start the command elsewhere") from error
    try:
        load_curve(path, None, is_rehearsal=is_rehearsal)
    except InputError as error:
        return error.message.splitlines()
    return []


def _replaced(value: str, match: "re.Match[str]") -> str:
    return f"{next(filter(None, match.groups()))} {value}"
