"""How much an acceptance does, and what is taken for granted of the time it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class AcceptSizes:
    """The defaults are for accelerators, within 45 minutes."""

    why: str = ""  # what is reduced, for the reader of the table; "" for the whole
    leg_s: float = 60.0  # min_duration of the legs
    estimate_s: float = 30.0  # of the Offline leg behind the first rate
    probes: int = 2  # of a tune in Server and Interactive
    set_size: int = 1_024  # samples that LoadGen loads, of which it issues whole multiples
    start_s: float = 75.0  # of an engine, to its first query; a guess, for what fits into the time that is left
    opening_words: int | None = None  # of each bundled article; None = the whole. Only without a data set.
    output_tokens: int | None = None  # the most of an answer in performance legs; None = the benchmark's
    # user.conf keys of TTFT and TPOT limits in ms, of Server and Interactive alike; none = the benchmark's
    limits: Mapping[str, int] = field(default_factory=dict)


ON_CPU = AcceptSizes(
    "reduced, as this machine computes on its processor: a rehearsal, whose figures say nothing of accelerators",
    leg_s=20.0,
    estimate_s=15.0,
    probes=1,
    set_size=64,
    start_s=30.0,
)
EMBEDDED_ON_CPU = replace(
    ON_CPU,
    why=f"{ON_CPU.why}; the embedded model, with the first words of the bundled articles, short answers but for the "
    "accuracy leg, and wide limits, so that each step comes to its end",
    leg_s=10.0,
    estimate_s=10.0,
    set_size=51,  # of which nine make the 459 queries that early stopping takes
    opening_words=10,
    output_tokens=8,
    limits={"ttft_latency": 60_000, "tpot_latency": 5_000},
)
SMALLEST = AcceptSizes(
    "tiny: shows that it runs; the figures mean nothing",
    leg_s=1.0,
    estimate_s=0.5,
    probes=1,
    set_size=51,
    start_s=2.0,
)
