"""A finished run of an audit: its numbers, its effective settings, and its lines in the text of the audit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from compliance.audits.base import RunSpec
from runs.errors import ExecutionError
from runs.loadgen.replay import expected_samples
from runs.numbers.numbers import Numbers, rates_by_unit, reported_numbers, supported, time_texts
from runs.record.finished_run import FinishedRun
from runs.record.requests_log import RequestTable, read_request_table


@dataclass(eq=False)
class RunArtifacts(FinishedRun):
    """A finished run of an audit."""

    spec: RunSpec = field(kw_only=True)

    @property
    def request_table(self) -> RequestTable:
        """The request log. An error is raised if the audit run has none."""
        return read_request_table(self.dir.requests) if self.requests is None else self.requests

    @cached_property
    def numbers(self) -> Numbers:
        return reported_numbers(self.detail)

    @property
    def completed(self) -> int:
        """Number of completed samples, as LoadGen counts them."""
        return expected_samples(self.detail) or 0

    @property
    def requested(self) -> int:
        return self.completed if self.spec.requested is None else self.spec.requested

    def check_engaged(self) -> None:
        """Check in the effective settings that LoadGen applied audit.config.

        LoadGen logs the file before it reads it, and ignores the whole file if one line is invalid.

        Raises:
            ExecutionError: If LoadGen did not finish, or a value differs.
        """
        detail = self.detail
        if not detail.finished or (self.spec.mode == "performance" and not detail.has_results):
            raise ExecutionError(
                f"audit run {self.spec.label}: LoadGen did not finish",
                f"read {self.dir.engine_log}, then repeat the audit",
            )
        for key, wanted in self.spec.in_force.items():
            effective = detail.get(f"effective_{key}")
            if effective != wanted or type(effective) is not type(wanted):
                raise ExecutionError(
                    f"audit run {self.spec.label}: LoadGen did not apply audit.config: effective_{key} is {effective}, "
                    f"required: {wanted}",
                    f"see the effective_* values in {self.dir.detail}, then repeat the audit",
                )

    def record(self) -> dict[str, Any]:
        """Return the numbers of the run for audit_<test>.json."""
        detail, table, manifest = self.detail, self.requests, self.manifest
        facts: dict[str, Any] = {
            "label": self.spec.label,
            "directory": str(self.dir.root),
            "scenario": detail.scenario,
            "mode": detail.mode,
            "loadgen_version": detail.get("loadgen_version"),
            "loadgen_verdict": detail.validity,
            "min_duration_ms": detail.effective("min_duration_ms"),
            "requested": self.requested,
            "completed": self.completed,
            "in_force": {f"effective_{key}": detail.get(f"effective_{key}") for key in self.spec.in_force},
        }
        if self.spec.mode == "performance":
            facts["numbers"] = self.numbers.model_dump(exclude_none=True)
        if table is not None and len(table):
            facts |= {
                "distinct_samples": len(np.unique(table.sample_index)),
                "mean_prompt_tokens": float(np.mean(table.prompt_tokens)),
                "mean_output_tokens": float(np.mean(table.output_tokens)),
            }
        if manifest is not None:
            facts |= {
                "pid": manifest.pid,
                "start_time_ns": manifest.start_time_ns,
                "prefix_caching": manifest.engine.prefix_caching,
                "cached_prompt_tokens": manifest.observed.cached_prompt_tokens,
            }
        return facts

    def lines(self) -> Iterator[str]:
        """Yield lines of text: scenario, rates and validity, then each kind of latency."""
        row = self.numbers.flat(*supported(self.completed, "mean", "p50", "p90", "p99"))
        shown = ", ".join(f"{value:.6g} {unit}" for unit, value in rates_by_unit(row).items())
        yield (
            f"{self.spec.label}: {self.detail.scenario}, {shown}, {self.completed} of {self.requested} samples, "
            f"LoadGen reports {self.detail.validity}"
        )
        yield from (f"{self.spec.label}: {name} {text}" for name, text in time_texts(row).items())
