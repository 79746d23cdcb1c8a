"""The statements of the runs below a folder."""

import contextlib
from pathlib import Path

from runs.errors import InputError
from runs.record.attestation import Attestation, read_attestation
from runs.record.layout import RunDir


def statements_below(folder: Path) -> dict[str, tuple[RunDir, Attestation]]:
    """The legs below a folder with a valid statement, and that statement, by digest."""
    found: dict[str, tuple[RunDir, Attestation]] = {}
    for path in folder.rglob(RunDir(folder).seal.name):
        with contextlib.suppress(InputError):
            attestation = read_attestation(RunDir(path.parent))
            found[attestation.digest] = RunDir(path.parent), attestation
    return found


def last_statement(folder: Path) -> str | None:
    """The digest of the last statement below a folder: the one that is no other's previous."""
    statements = statements_below(folder)
    last = statements.keys() - {statement.predicate.previous for _, statement in statements.values()}
    return max(last, key=lambda digest: statements[digest][0].seal.stat().st_mtime_ns, default=None)
