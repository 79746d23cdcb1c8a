"""One entry of the catalogue."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# contradiction: files that cannot all be true. result: without it there is no result at all, official or not.
# official: asked of a result that claims to be official. plausible: what no honest system does, asked of any result.
# tree: asked of a submission tree. submit: asked before one is built. gate: asked of a declared technique.
# signoff: asked by the independent sign-off. audit: asked of an audit's legs. machine: what a leg needs to start.
Kind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip

Worth = Literal["error", "warning", "note"]

RERUN = "run the leg again and submit LoadGen's own logs"


@dataclass(frozen=True)
class Rule:
    """One rule. `id` is stable: scripts may rely on it."""

    id: str
    kind: Kind
    severity: Worth  # what a breach is worth by itself; note: nothing is broken, a reader should know
    source: str  # where the rule comes from
    summary: str  # the rule in a few words
    fix: str  # what to do about a breach


def catalogue(kind: Kind, rows: Iterable[tuple[str, Worth, str, str, str]]) -> dict[str, Rule]:
    """Rules of one kind by their id, from (id, severity, source, summary, fix)."""
    return {row[0]: Rule(row[0], kind, *row[1:]) for row in rows}
