"""A pickled table, read without running its code: only a file whose hash is known, and only classes of tables.

MLCommons distributes one data set as a pickled DataFrame, and loading a pickle runs whatever it names. So the file has
to have the published hash before a byte of it is interpreted, and the reader makes nothing but DataFrames, their
blocks and indexes, and NumPy arrays; any other name ends it.
"""

import gzip
import importlib
import io
import pickle
import warnings
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

from qsl.dataset_file import MAX_BYTES
from runs.errors import InputError
from runs.reading import read_whole

# module of the pickle -> (module today, names). Pickles of pandas 1 and 2 and of NumPy 1 use the older modules.
_MODULES: dict[str, tuple[str, frozenset[str]]] = {
    "builtins": ("builtins", frozenset({"slice", "bytearray"})),
    "__builtin__": ("builtins", frozenset({"slice", "bytearray"})),
    "numpy": ("numpy", frozenset({"ndarray", "dtype"})),
    "numpy.core.multiarray": ("numpy._core.multiarray", frozenset({"_reconstruct"})),
    "numpy._core.multiarray": ("numpy._core.multiarray", frozenset({"_reconstruct"})),
    "numpy.core.numeric": ("numpy._core.numeric", frozenset({"_frombuffer"})),
    "numpy._core.numeric": ("numpy._core.numeric", frozenset({"_frombuffer"})),
    "pandas": ("pandas", frozenset({"DataFrame", "Index", "RangeIndex"})),
    "pandas.core.frame": ("pandas", frozenset({"DataFrame"})),
    "pandas.core.indexes.base": ("pandas.core.indexes.base", frozenset({"_new_Index", "Index"})),
    "pandas.core.indexes.range": ("pandas", frozenset({"RangeIndex"})),
    "pandas.core.internals.managers": ("pandas.core.internals.managers", frozenset({"BlockManager"})),
    "pandas.core.internals.blocks": ("pandas.core.internals.blocks", frozenset({"new_block"})),
    "pandas._libs.internals": ("pandas._libs.internals", frozenset({"_unpickle_block"})),
}


def read_table(
    path: Path, published_sha256: str, columns: tuple[str, ...], *, max_bytes: int = MAX_BYTES
) -> dict[str, list[Any]]:
    """Columns of a pickled DataFrame, as lists.

    Args:
        path: the pickle, or a gzip file of it.
        published_sha256: hex hash of the pickle itself.
        max_bytes: of the file, and of what it unpacks to.

    Raises:
        InputError: unreadable, another hash, no table, or a column is missing.
    """
    try:
        data = read_whole(path, "fetch it again", max_bytes=max_bytes)
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(data)) as stream:  # a few kilobytes may be as many gigabytes
                data = stream.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise InputError(f"{path} holds more than {max_bytes:,} bytes", "fetch it again")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}", "fetch it again") from error
    digest = sha256(data).hexdigest()
    if digest != published_sha256:
        raise InputError(
            f"{path} is a pickle with SHA-256 {digest}, the published one has {published_sha256}; another "
            "could run any code",
            "fetch the file from MLCommons again, or save the table as Parquet or JSON where you trust it",
        )
    table = _load(path, data)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    return {name: table[name].tolist() for name in columns}


def _load(path: Path, data: bytes) -> Any:
    import pandas

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older pickles set attributes that are deprecated
            table = _TableUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle raises anything
        raise InputError(f"{path} is no pickled table: {error}", "fetch it again") from error
    if type(table) is not pandas.DataFrame:
        raise InputError(f"{path} holds a {type(table).__name__}, not a table", "fetch it again")
    return table


class _TableUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _as_bytes
        today, names = _MODULES.get(module, ("", frozenset()))
        if name not in names:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")
        return getattr(importlib.import_module(today), name)


def _as_bytes(text: str, encoding: str) -> bytes:
    """Bytes as protocol 2 has them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding}")
    return text.encode("latin1")
