"""One replica as its leg sees it: what it is, what is open there, whether it lives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from runs.errors import ExecutionError
from sut.engine import Observed, Request
from sut.replicas.replica_messages import Pulse, Query, Ready
from sut.watchdog import WORKING_FACTOR, WORKING_SHARE, Watchdog

SILENT_S = 12.0  # without a pulse, of which there are two a second


@dataclass(frozen=True)
class Host:
    """What runs a replica's process."""

    where: Callable[[], str]  # tells, for a person, its devices or cores and its host
    # tells how the process ended, None while it runs. Raises a HarnessError where none could be started.
    ended: Callable[[], str | None]
    end: Callable[[], None]  # end it, and whatever it started


class Member:
    """A replica of a leg.

    Args:
        index: from 0.
        stall_timeout_s: how long an open query may wait with nothing moving.
    """

    def __init__(self, index: int, host: Host, stall_timeout_s: float) -> None:
        self.index = index
        self.host = host
        self.name = str(index).encode()
        self.ready: Ready | None = None
        self.observed: Observed | None = None
        self.open: dict[int, Request] = {}  # by tag
        self.outbox: list[Query] = []  # of this turn of the loop
        self.messages = 0
        self.queries = 0
        self.cached_tokens = 0
        self.pulse = Pulse(0, None, 0.0)
        self._pulses = 0
        self._limit_s = stall_timeout_s
        self._silence = Watchdog(SILENT_S, 0)
        self._stall = Watchdog(stall_timeout_s, 0)

    @property
    def where(self) -> str:
        return f"replica {self.index} ({self.host.where()})"

    def beat(self, pulse: Pulse) -> None:
        self.pulse = pulse
        self._pulses += 1

    def look(self) -> None:
        """To be called at least every second, from one thread.

        Raises:
            ExecutionError: it is silent or stalled.
        """
        silent_s = self._silence.stalled_for(True, self._pulses)
        if silent_s is not None:
            raise ExecutionError(
                f"{self.where} gave no sign of life for {silent_s:.0f} s",
                "it was stopped, or its host is out of reach; see engine.log",
            )
        if not self._stall.waited_s:
            self._cpu_before_s = self.pulse.cpu_s
        stalled_s = self._stall.stalled_for(bool(self.open), self.messages, self.pulse.activity)
        # Before the leg's own queries it may be making kernels.
        limit_s = self._limit_s if self.queries else WORKING_FACTOR * self._limit_s
        if stalled_s is not None and stalled_s > limit_s and not self._computes(stalled_s):
            raise ExecutionError(
                f"{self.where} stalled: {len(self.open)} queries open there, nothing moved for {stalled_s:.0f} s",
                "see engine.log; a slow but living engine needs a larger --stall-timeout-s",
            )

    def _computes(self, stalled_s: float) -> bool:
        """Whether it is in one long step. Spinning for ever is told from that by the time it takes."""
        on_cpu = self.ready is not None and self.ready.report.configuration.get("device") == "cpu"
        share = (self.pulse.cpu_s - self._cpu_before_s) / stalled_s
        return on_cpu and share > WORKING_SHARE and stalled_s < WORKING_FACTOR * self._limit_s

    def record(self) -> dict[str, Any]:
        """For the manifest."""
        assert self.ready is not None
        about, report = msgspec.structs.asdict(self.ready.about), self.ready.report
        del about["boot_id"]  # of the leg's own use
        return {
            "replica": self.index,
            **about,
            "versions": report.versions,
            "in_force": report.in_force,
            "environment": report.configuration.get("environment", {}),
            "queries": self.queries,
            "cached_prompt_tokens": self.cached_tokens,
            "cpu_s": self.pulse.cpu_s,
        }
