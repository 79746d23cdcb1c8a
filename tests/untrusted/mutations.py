"""Changes of files that no person makes by hand: seeded, so that a number reproduces each one.

There are three kinds: changes of bytes (in any file), of JSON values (in files or lines of JSON), and of the file
itself (a pipe, a device, a sparse file).
"""

import os
import random
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

# Objects in place of an expected value.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63 - 1, 2**64 - 1, -(2**63), 1e308, -1e308, 5e-324, "", "x", "x" * 70_000, "\0",
    "nan", "1e999", "/dev/zero", "/proc/self/mem", "../../..", "~", "http://[", "٣٤", "\ud7ff\U0001f600", "{}",
    "[" * 5000,
    [], [[]], {}, {"": None}, [None] * 3, [1, "x"], {"a": {"b": []}},
)  # fmt: skip
NUMBERS = (b"1" * 5000, b"-1", b"1e999", b"0", b"99999999999999999999999", b"1.5", b"NaN", b"Infinity", b"0x10", b"")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
# Texts that take long with a careless pattern, or are not text.
INSERTS = (
    b"\0" * 64, b"\xff\xfe\x00", b" " * 200_000, b"\n" * 100_000, b"\r", b"\x1b[2J", b"[" * 100_000, b'{"a":' * 50_000,
    b"1" * 20_000, b"Initializing a V1 LLM engine " * 20_000, b'"seq_id" : ' * 20_000, b":::MLLOG ",
    b"hash=" + b"0" * 64,
    "\u2028\u202e".encode(), b"KV cache size: " + b"9" * 5000 + b" tokens", b"x : " * 50_000, b"\t" * 60_000 + b"\n...",
)  # fmt: skip

Change = Callable[[bytes, random.Random], bytes]


def _place(content: bytes, chance: random.Random) -> int:
    return chance.randrange(len(content) + 1)


def flip(content: bytes, chance: random.Random) -> bytes:
    """Change one bit of each of one to three bytes."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 3) if changed else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: _place(content, chance)]


def insert(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + chance.choice(INSERTS) + content[place:]


def cut_out(content: bytes, chance: random.Random) -> bytes:
    place = _place(content, chance)
    return content[:place] + content[place + chance.randint(1, 400) :]


def _by_line(change: Callable[[list[bytes], random.Random], None]) -> Change:
    def changed(content: bytes, chance: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        if lines:
            change(lines, chance)
        return b"".join(lines)

    return changed


def _drop(lines: list[bytes], chance: random.Random) -> None:
    del lines[chance.randrange(len(lines))]


def _double(lines: list[bytes], chance: random.Random) -> None:
    place = chance.randrange(len(lines))
    lines[place:place] = [lines[place]] * chance.choice((1, 1, 2000))


def _swap(lines: list[bytes], chance: random.Random) -> None:
    first, second = (chance.randrange(len(lines)) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]


def number(content: bytes, chance: random.Random) -> bytes:
    """Replace a number by another one, or remove it."""
    matches = list(_NUMBER.finditer(content))
    if not matches:
        return content
    match = chance.choice(matches)
    return content[: match.start()] + chance.choice(NUMBERS) + content[match.end() :]


def encoding(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("latin-1")
    if chance.random() < 0.3:
        return b"\xef\xbb\xbf" + content
    return text.encode(chance.choice(("utf-16", "utf-32", "utf-16-be", "cp500")))


def replace(content: bytes, chance: random.Random) -> bytes:
    """Empty the file."""
    return chance.choice((b"", b"\n", b"null", b"[]", b"{}", b"0", b'"x"', b"[" * 100_000, chance.randbytes(4096)))


def json_value(content: bytes, chance: random.Random) -> bytes:
    """Change a value, remove it, or repeat its key, somewhere in a JSON file or in a line of one."""
    lines = content.splitlines(keepends=True)
    document = _parsed(content)
    if document is not None:
        return orjson.dumps(_with_changed_node(document, chance), option=orjson.OPT_INDENT_2)
    if not lines:
        return content
    place = chance.randrange(len(lines))
    head, brace, rest = lines[place].partition(b"{")
    value = _parsed(brace + rest)
    if value is None:
        return content
    lines[place] = head + orjson.dumps(_with_changed_node(value, chance)) + b"\n"
    return b"".join(lines)


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _with_changed_node(value: Any, chance: random.Random) -> Any:
    """Return the value with one node changed or removed."""
    if not isinstance(value, dict | list) or not value:
        return chance.choice(VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key: Any = chance.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.75:
        value[key] = _with_changed_node(value[key], chance)
    elif chance.random() < 0.25:
        del value[key]
    elif isinstance(value, dict) and chance.random() < 0.1:
        value[chance.choice(("", "unknown", "\0", "x" * 5000))] = chance.choice(VALUES)
    else:
        value[key] = chance.choice(VALUES)
    return value


def same_key_twice(content: bytes, chance: random.Random) -> bytes:
    places = [match.end() for match in re.finditer(rb"\{", content)]
    keys = re.findall(rb'"[\w ]{1,40}"\s*:', content)
    if not places or not keys:
        return content
    place = chance.choice(places)
    return content[:place] + chance.choice(keys) + chance.choice((b"null,", b"0,", b'"x",')) + content[place:]


CONTENTS: dict[str, Change] = {
    "flip": flip, "truncate": truncate, "insert": insert, "cut-out": cut_out, "drop-line": _by_line(_drop),
    "double-line": _by_line(_double), "swap-lines": _by_line(_swap), "number": number, "encoding": encoding,
    "replace": replace, "json-value": json_value, "same-key-twice": same_key_twice,
}  # fmt: skip


# Objects in place of a file
# ----------------------------------------------------------------------------------------------


def _write_sparse_file(size: int) -> Callable[[Path], object]:
    """Return a function that writes a file of NUL without space on the disk."""
    return lambda path: [path.touch(), os.truncate(path, size)]


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may have 100 characters
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "outside": lambda path: path.symlink_to("/etc/passwd"),
    "sparse": _write_sparse_file(6 << 30),
    "large": _write_sparse_file(500 << 20),  # within each limit on logs
    "socket": _socket,
    "nothing": lambda path: None,  # it is removed
}


def mutate(path: Path, chance: random.Random, kinds_share: float = 0.15) -> str:
    """Change one file, or replace it by another object. Return the change, or "" if no change is possible."""
    if chance.random() < kinds_share:
        name = chance.choice(list(KINDS))
        path.unlink()
        KINDS[name](path)
        return name
    before = path.read_bytes()
    name = chance.choice(list(CONTENTS))
    after = CONTENTS[name](before, chance)
    path.write_bytes(after)
    return name if after != before else ""


def clear(folder: Path) -> None:
    """Remove a folder with its content."""
    shutil.rmtree(folder, ignore_errors=True)
