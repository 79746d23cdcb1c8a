"""Reading a JSON object, and what is said of a file that holds none."""

from pathlib import Path

import pytest

from runs.errors import InputError
from runs.json_files import read_object


def test_an_object_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1]}')
    assert read_object(path, "") == {"a": [1]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"", "cannot be read: it is not JSON"),
        (b"{", "cannot be read: it is not JSON"),
        (b"\xff", "cannot be read: it is not JSON"),
        (b"[" * 100_000, "cannot be read: it is not JSON"),
        (b"[]", "holds no object"),
        (b"null", "holds no object"),
    ],
)
def test_other_files_are_named_with_the_fix(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_object(path, "mend it")
    assert caught.value.message.startswith(f"{path} {said}")
    assert caught.value.fix == "mend it"
