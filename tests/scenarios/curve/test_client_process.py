"""The process of the client: the error that its log states."""

from pathlib import Path

import pytest

from scenarios.curve.client_process import last_error
from scenarios.curve.curve_dir import CLIENT_LOG

TIME = "2026-11-29 02:40:43,238 - inference_endpoint.main"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", "no output"),
        ("first line\nlast line\n", "last line"),
        (f"{TIME} - ERROR - workers failed to start\nsys:1: DeprecationWarning: swig\n", "workers failed to start"),
        (f"{TIME} - WARNING - slow\nlast line\n", "last line"),
        ("Traceback (most recent call last):\nValueError: wrong\nlast line\n", "ValueError: wrong"),
    ],
    ids=["no output", "no error", "a log record", "a warning", "an exception"],
)
def test_the_last_error_of_the_log_is_stated(tmp_path: Path, log: str, error: str) -> None:
    (tmp_path / CLIENT_LOG).write_text(log)
    assert last_error(tmp_path) == error
