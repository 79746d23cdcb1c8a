"""With how many engines an acceptance measures: with one, and with replicas on all devices."""

from dataclasses import dataclass, field
from typing import Any

from runs.environment import usable_cores
from sut.engines import engine_kind


@dataclass(frozen=True)
class Engines:
    """A number of engines."""

    name: str  # for directories
    words: str  # for people
    copies: int = 1  # of the model
    arguments: tuple[str, ...] = ()  # of main.py
    environment: dict[str, str] = field(default_factory=dict)  # variables of its commands
    faster: int = 1  # how many times the rate of one engine is expected; 1 where the copies share the cores


ONE = Engines("one", "one engine")


def layouts(engine: str, replicas: dict[str, Any] | None) -> list[Engines]:
    """One engine, and replicas on all devices where there are several; on a processor two of them, for rehearsal.

    Args:
        replicas: those that a leg has by itself here, as `main.py run --dry-run --json` tells; None = one engine.
    """
    if replicas:
        count, first = len(replicas["places"]), replicas["places"][0]
        # Who sees the first one's devices alone takes one engine.
        one = Engines(ONE.name, f"one engine of {count}", environment=first["variables"])
        return [one, _replicas(count, faster=count)]
    kind = engine_kind(engine)
    if len(usable_cores()) > 1 and (kind.computes_on_cpu() or kind.own_model):
        return [ONE, _replicas(2, faster=1)]
    return [ONE]


def _replicas(count: int, faster: int) -> Engines:
    return Engines("all", f"{count} replicas", count, ("--replicas", str(count)), faster=faster)
