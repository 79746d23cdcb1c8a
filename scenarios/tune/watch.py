"""The early end of a tuning's runs, if the verdict is certain.

A Server run is VALID only if LoadGen's early stopping allows its number of late queries, which depends on the number of
issued queries. Additional late queries make the run INVALID. The uncertainty of the harness's time stamps counts in
favor of the query.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS
from runs.loadgen.early_stopping import PERCENTILE, late_queries_allowed
from runs.numbers.log_comparison import STAMP_NS
from runs.record.progress import Progress
from scenarios.launch.rate_watch import Stopped
from sut.request_writer import partial_path

SERVER_PERCENTILE = PERCENTILE["Server"]


@dataclass(eq=False)
class ProbeTally:
    """The late queries of an unfinished run."""

    queries: int  # number of queries that LoadGen will issue
    ttft_limit_ns: int
    tpot_limit_ns: int
    percentile: float = SERVER_PERCENTILE  # required share of queries within the limits
    late_ttft: int = 0
    late_tpot: int = 0
    ttft_ns: list[int] = field(default_factory=list)  # time to first token of each completed query, from its issue
    tpot_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        # allowed late queries for each limit; -1: the run is too short
        self.allowed = late_queries_allowed(self.queries, self.percentile)

    def add(self, issue_ns: int, first_token_ns: int | None, complete_ns: int, output_tokens: int) -> None:
        """Count one response with the time stamps of requests.jsonl.

        LoadGen's time to first token starts at the scheduled time, before `issue_ns`, and ends after the harness's
        stamp, so it is never shorter than the harness's. The time per output token is between two stamps of the
        harness, and gets an allowance for their uncertainty.
        """
        if first_token_ns is None:
            return
        self.ttft_ns.append(first_token_ns - issue_ns)
        self.late_ttft += self.ttft_ns[-1] > self.ttft_limit_ns
        if output_tokens >= MIN_TOKENS_LOADGEN_ACCEPTS:
            gaps = output_tokens - 1
            self.tpot_ns.append((complete_ns - first_token_ns) // gaps)
            self.late_tpot += complete_ns - first_token_ns > self.tpot_limit_ns * gaps + STAMP_NS

    def certainly_invalid(self) -> str | None:
        """Return the reason why the run can no longer be VALID; None if it can still be VALID."""
        if self.allowed < 0:
            return f"{self.queries:,} queries are too few for LoadGen's early stopping, at any latency"
        for name, late in (("TTFT", self.late_ttft), ("TPOT", self.late_tpot)):
            if late > self.allowed:
                return f"{late:,} queries exceeded the {name} limit, allowed: {self.allowed:,} of {self.queries:,}"
        return None

    def facts(self) -> dict[str, Any]:
        """Return the journal fields of a stopped run, from the harness's time stamps."""

        def p99_ms(values_ns: list[int]) -> float | None:
            return sorted(values_ns)[int(len(values_ns) * 0.99)] / 1e6 if values_ns else None

        return {
            "queries_answered": len(self.ttft_ns),
            "late_allowed": self.allowed,
            "late_ttft": self.late_ttft,
            "late_tpot": self.late_tpot,
            "ttft_p99_ms": p99_ms(self.ttft_ns),
            "tpot_p99_ms": p99_ms(self.tpot_ns),
            "ttft_limit_ms": self.ttft_limit_ns / 1e6,
            "tpot_limit_ms": self.tpot_limit_ns / 1e6,
        }


@dataclass(eq=False)
class ProbeWatch:
    """A watch that ends a Server run that can no longer be VALID. It is called with each heartbeat."""

    requests: Path  # requests.jsonl of the run; it is read while it grows
    queries: int  # number of queries that LoadGen will issue
    percentile: float
    tally: ProbeTally | None = field(default=None, init=False)
    _stream: BinaryIO | None = field(default=None, init=False)
    _rest: bytes = field(default=b"", init=False)

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "running" or not progress.ttft_limit_ms or not progress.tpot_limit_ms:
            return
        if self.tally is None:
            limits_ns = round(progress.ttft_limit_ms * 1e6), round(progress.tpot_limit_ms * 1e6)
            self.tally = ProbeTally(self.queries, *limits_ns, self.percentile)
        self._read(self.tally)
        if reason := self.tally.certainly_invalid():
            raise Stopped(f"stopped, because the verdict is certain: {reason}")

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _read(self, tally: ProbeTally) -> None:
        if self._stream is None:
            try:
                # An open file can still be read after it is renamed.
                self._stream = partial_path(self.requests).open("rb")
            except FileNotFoundError:
                return
        *lines, self._rest = (self._rest + self._stream.read()).split(b"\n")
        for line in lines:
            record = orjson.loads(line)
            tally.add(*(record[name] for name in ("issue_ns", "first_token_ns", "complete_ns", "output_tokens")))
