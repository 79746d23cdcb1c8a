"""The evidence on a run directory of the MLPerf Endpoints client."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from compliance.endpoints.derive import Metrics, count_tokens, derive, numbers
from compliance.endpoints.load import Load, read_load
from compliance.judge.check import Need, NotJudged
from qsl.tokenizers import load_tokenizer
from runs.endpoints.events import NO_TIME, Column
from runs.endpoints.folder import EndpointsRun
from runs.endpoints.layout import EVENTS, SNAPSHOT

COMPLETE = "complete"


@dataclass(eq=False)
class EndpointsEvidence:
    """A run directory of the MLPerf Endpoints client, what was derived of it, and what it is judged with."""

    run: EndpointsRun
    model_path: str | None = None  # whose tokenizer counts tokens
    dataset_path: Path | None = None  # for scores
    left: list[NotJudged] = field(default_factory=list)  # smaller than a rule

    def absent(self, need: Need) -> str:
        """Why a part is missing; empty if it is there."""
        name = {"events": EVENTS, "snapshot": SNAPSHOT}.get(need)
        if name is not None and getattr(self.run, need) is None:
            return f"{name} is missing"
        if need == "load" and self.load is None:
            return "the directory has no measured phase that could be replayed"
        if need == "complete" and not self.is_complete:
            return "the client did not end by itself: its statistics are estimates of a part"
        return ""

    @cached_property
    def load(self) -> Load | None:
        return read_load(self.run)

    @cached_property
    def streaming(self) -> bool:
        """As config.yaml has it, else whether there are first tokens."""
        config, events = self.run.config, self.run.events
        asked = None if config is None else config.streaming
        return asked if asked is not None else events is not None and bool(np.any(events.first_ns != NO_TIME))

    @cached_property
    def tokens(self) -> Column | None:
        """Counted again; None without a tokenizer or events, or where a chat template would be needed."""
        if self.model_path is None or self.run.events is None:
            return None
        return count_tokens(self.run.events, load_tokenizer(self.model_path))

    @property
    def total_tokens(self) -> int | None:
        """Of all responses, counted again."""
        if self.tokens is None or self.run.events is None:
            return None
        return int(self.tokens[0, self.run.events.answered].sum())

    @property
    def reported_tokens(self) -> float | None:
        return None if self.run.summary is None else self.run.summary.output_sequence_lengths.total

    @cached_property
    def metrics(self) -> Metrics:
        """What is derived, as the client's snapshot has it; with tokens where the tokenizer counts what the client
        counted; empty without events."""
        if self.run.events is None:
            return {}
        config = self.run.config
        early_stopping = config is None or config.settings.early_stopping.enabled
        tokens = self.tokens if self.reported_tokens == self.total_tokens else None
        return derive(self.run.events, streaming=self.streaming, early_stopping=early_stopping, tokens=tokens)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The same for programs, with rates."""
        return numbers(self.metrics) if self.metrics else {}

    @property
    def is_complete(self) -> bool:
        """Whether the client ended by itself: else its statistics are estimates of a part."""
        report = self.run.summary or self.run.snapshot
        return report is not None and report.state == COMPLETE

    def leave(self, what: str, why: str) -> None:
        """Note that something within a rule is not judged."""
        self.left.append(NotJudged(what, why))
