"""The faults that the dummy engine can inject."""

from dataclasses import dataclass
from typing import Literal, get_args

from runs.errors import InputError

FaultKind = Literal["start", "raise", "fail", "die", "swallow", "twice", "empty", "freeze"]
FAULT_KINDS: dict[FaultKind, str] = {
    "start": "the engine does not start",
    "raise": "submit raises at query N",
    "fail": "query N ends with an error",
    "die": "the engine is dead from query N on",
    "swallow": "query N gets no response",
    "twice": "query N gets two responses",
    "empty": "query N gets a response without tokens",
    "freeze": "the event loop blocks for ever at query N",
}


@dataclass(frozen=True)
class Fault:
    """A fault to inject at timed query N, counted from 0."""

    kind: FaultKind
    at: int = 0

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read `KIND` or `KIND@N`.

        Raises:
            InputError: If the kind is unknown, or N is not a whole number.
        """
        kind, mark, at = text.partition("@")
        if kind not in get_args(FaultKind):
            raise InputError(
                f"--dummy-fault {text}: unknown kind {kind!r}", f"use one of {', '.join(FAULT_KINDS)}, as KIND@N"
            )
        if mark and not at.isdecimal():
            raise InputError(
                f"--dummy-fault {text}: {at!r} is not a whole number", "write KIND@N, for example swallow@10"
            )
        return cls(kind, int(at or 0))  # type: ignore[arg-type]  # membership was checked above
