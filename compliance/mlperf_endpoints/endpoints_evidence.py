"""Data of a run directory of the MLPerf Endpoints client, as checks read them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from compliance.judge.rule import Need
from compliance.judge.verdict import Subject
from compliance.mlperf_endpoints.derive import Metrics, count_tokens, derive_metrics, recomputed_numbers
from compliance.mlperf_endpoints.load import MeasuredPhase, read_load
from compliance.mlperf_endpoints.round_tables import RoundTables, round_tables
from compliance.mlperf_endpoints.steady_window import SteadyState, detect_steady_state, super_passes
from qsl.tokenizers import load_tokenizer
from runs.errors import HarnessError
from runs.mlperf_endpoints.events import NO_TIME, EventColumn
from runs.mlperf_endpoints.folder import EndpointsRun
from runs.mlperf_endpoints.layout import AUDIT, CACHED, EVENTS, REFERENCE, SNAPSHOT

COMPLETE = "complete"


@dataclass(eq=False)
class EndpointsEvidence(Subject):
    """A run directory of the MLPerf Endpoints client, the numbers recomputed from it, and the inputs of checks."""

    run: EndpointsRun
    model_path: str | None = None  # model whose tokenizer counts tokens
    dataset_path: Path | None = None  # dataset file, to rescore responses and compare prompts
    tables: RoundTables = field(default_factory=round_tables, repr=False)
    is_of_audit: bool = False  # True: one of the two runs of an audit
    error: HarnessError | None = None  # the error because of which the directory is unreadable

    @property
    def kind(self) -> str:
        return "audit run" if self.is_of_audit else "audit alone" if self.run.only_audit else "client run"

    @property
    def parts(self) -> "Sequence[EndpointsEvidence]":
        """The reference run and the audit run, if the directory has an audit."""
        if self.is_of_audit or not self.has_audit:
            return ()
        folders = (self.run.path(AUDIT) / name for name in (REFERENCE, CACHED))
        return [
            EndpointsEvidence(EndpointsRun(folder), self.model_path, tables=self.tables, is_of_audit=True)
            for folder in folders
        ]

    @property
    def has_audit(self) -> bool:
        config = self.run.config
        return self.run.path(AUDIT).is_dir() or (config is not None and config.audit is not None)

    claims_official = False  # the client does not state whether a run is eligible for submission

    def absent(self, need: Need) -> str:
        name = {"events": EVENTS, "snapshot": SNAPSHOT}.get(need)
        if name is not None and getattr(self.run, need) is None:
            return f"{name} is missing"
        if need == "load" and self.load is None:
            return "the directory has no measured phase that can be replayed"
        if need == "complete" and not self.is_complete:
            return "the client did not finish, so its statistics are estimates for a part of the run"
        return "" if need in ("events", "snapshot", "load", "complete") else super().absent(need)

    @cached_property
    def load(self) -> MeasuredPhase | None:
        return read_load(self.run)

    @cached_property
    def streaming(self) -> bool:
        """Whether the client streamed: by config.yaml, or if that is silent, by events of first tokens."""
        config, events = self.run.config, self.run.events
        configured = None if config is None else config.streaming
        return configured if configured is not None else events is not None and bool(np.any(events.first_ns != NO_TIME))

    @cached_property
    def tokens(self) -> EventColumn | None:
        """Token counts; None without a tokenizer or events, or if counting needs a chat template."""
        if self.model_path is None or self.run.events is None:
            return None
        return count_tokens(self.run.events, load_tokenizer(self.model_path))

    @cached_property
    def steady_state(self) -> SteadyState | None:
        """The steady state of a run at a fixed concurrency or with Poisson arrivals.

        None without tokens, for other load patterns, or if the size of the dataset is unknown.
        """
        load = self.load
        if load is None or self.tokens is None or (size := load.size[0]) is None:
            return None
        pattern = load.config.settings.load_pattern
        if pattern.type not in ("concurrency", "poisson"):
            return None
        is_low = (pattern.target_concurrency or 0) <= self.tables.points["ultra_low"]
        required_s = self.tables.limits["min_duration_s"]["ultra_low" if is_low else "above"]
        events, rows = load.events, load.rows
        later_tokens = np.where(events.rest_bytes[rows] > 0, self.tokens[1, rows], 0)
        passes = super_passes(size, load.issued_ns, events.first_ns[rows], load.complete_ns, later_tokens)
        return detect_steady_state(passes, size, required_s)

    @property
    def total_tokens(self) -> int | None:
        """Tokens of all responses, counted with the tokenizer of `model_path`."""
        if self.tokens is None or self.run.events is None:
            return None
        return int(self.tokens[0, self.run.events.answered].sum())

    @property
    def reported_tokens(self) -> float | None:
        return None if self.run.summary is None else self.run.summary.output_sequence_lengths.total

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics recomputed from the events, in the form of the client's snapshot.

        They include tokens if the tokenizer counts as many as the client. Without events they are empty.
        """
        if self.run.events is None:
            return {}
        config = self.run.config
        early_stopping = config is None or config.settings.early_stopping.enabled
        tokens = self.tokens if self.reported_tokens == self.total_tokens else None
        return derive_metrics(self.run.events, streaming=self.streaming, early_stopping=early_stopping, tokens=tokens)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The recomputed metrics and rates for programs."""
        return recomputed_numbers(self.metrics) if self.metrics else {}

    @property
    def is_complete(self) -> bool:
        """Whether the client finished; otherwise its statistics are estimates for a part of the run."""
        report = self.run.summary or self.run.snapshot
        return report is not None and report.state == COMPLETE
