"""Is the verdict of a running Server leg already certain?

A leg is VALID only when so few of its queries are late that LoadGen's early stopping passes; the number it allows
follows from the number of queries that LoadGen will issue. More late ones than that cannot be made up for, whatever
comes. Everything here is counted against certainty: what a stamp of ours may be off is given to the query.

Counted are queries that were answered late, and queries that are overdue: still unanswered after the time in which
even the longest answer would have kept both limits. Of an overdue query it is not known which limit it broke, so twice
the allowed number of them is needed: then one of the two limits has been broken too often.

A success is certain only when the queries left are fewer than those that may be late, less than a hundredth of the
leg. Such a leg is not worth stopping: LoadGen's own VALID is a moment away.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS
from runs.loadgen.early_stopping import PERCENTILE, latecomers_allowed
from runs.numbers.compare import STAMP_NS

SERVER_PERCENTILE = PERCENTILE["Server"]


@dataclass(frozen=True)
class ProbeLimits:
    """What decides a leg."""

    # when LoadGen schedules each query, from the start of the leg; as many as it will issue
    offsets_ns: NDArray[np.int64]
    # ttft_ns, tpot_ns: the limits in force
    ttft_ns: int
    tpot_ns: int
    longest_output_tokens: int  # the most tokens that an answer may have
    percentile: float = SERVER_PERCENTILE  # the share of queries that must be in time

    @property
    def queries(self) -> int:
        return len(self.offsets_ns)

    @property
    def allowed(self) -> int:
        """Queries that may be late, of each limit; -1 when the leg is too short to be VALID at all."""
        return latecomers_allowed(self.queries, self.percentile)

    @property
    def longest_in_time_ns(self) -> int:
        """The longest latency that keeps both limits."""
        return self.ttft_ns + max(0, self.longest_output_tokens - 1) * self.tpot_ns


@dataclass
class ProbeTally:
    """Late queries of a running leg; told of every answer in the order of completion."""

    limits: ProbeLimits
    late_ttft: int = 0
    late_tpot: int = 0
    late_both: int = 0
    answered: int = 0
    ttft_ns: list[int] = field(default_factory=list)  # of each answered query, from its issue
    tpot_ns: list[int] = field(default_factory=list)
    _latest_start_ns: int | None = None  # the leg started no later
    _now_ns: int = 0  # every answer before this moment has been told
    _seen: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.limits.queries, np.bool_)
        self.allowed = self.limits.allowed

    def add(self, seq: int, issue_ns: int, first_token_ns: int | None, complete_ns: int, output_tokens: int) -> None:
        """Count one answer, with the stamps of requests.jsonl.

        LoadGen counts from the scheduled time, which lies before `issue_ns`, to a moment after our stamp of the first
        token: its time to first token is never shorter than ours. Of the time per output token both ends are stamps
        of ours, so that it gets their allowance.
        """
        if seq >= self.limits.queries or first_token_ns is None:
            return
        ttft_ns = first_token_ns - issue_ns
        self.answered += 1
        self._seen[seq] = True
        self.ttft_ns.append(ttft_ns)
        late_ttft = ttft_ns > self.limits.ttft_ns
        late_tpot = False
        if output_tokens >= MIN_TOKENS_LOADGEN_ACCEPTS:
            gaps = output_tokens - 1
            self.tpot_ns.append((complete_ns - first_token_ns) // gaps)
            late_tpot = complete_ns - first_token_ns > self.limits.tpot_ns * gaps + STAMP_NS
        self.late_ttft += late_ttft
        self.late_tpot += late_tpot
        self.late_both += late_ttft and late_tpot
        start_ns = issue_ns - int(self.limits.offsets_ns[seq])
        self._latest_start_ns = start_ns if self._latest_start_ns is None else min(self._latest_start_ns, start_ns)
        self._now_ns = max(self._now_ns, complete_ns)

    @property
    def overdue(self) -> int:
        """Queries that had no answer when the last known answer came, though they broke a limit by then."""
        if self._latest_start_ns is None:
            return 0
        oldest_ns = self._now_ns - self._latest_start_ns - self.limits.longest_in_time_ns - STAMP_NS
        due = int(np.searchsorted(self.limits.offsets_ns, oldest_ns, side="left"))
        return due - int(np.count_nonzero(self._seen[:due]))

    def certainly_invalid(self) -> str | None:
        """Why the leg can no longer be VALID; None while it can."""
        if self.allowed < 0:
            return f"{self.limits.queries:,} queries are too few for early stopping, however fast they are answered"
        of = f"{self.allowed:,} of {self.limits.queries:,} are allowed"
        for name, late in (("TTFT", self.late_ttft), ("TPOT", self.late_tpot)):
            if late > self.allowed:
                return f"{late:,} queries missed the {name} limit, {of}"
        overdue = self.overdue
        if self.late_ttft + self.late_tpot + overdue > 2 * self.allowed:
            late = self.late_ttft + self.late_tpot - self.late_both
            return f"{late:,} queries were late and {overdue:,} are overdue, {of} for each limit"
        return None
