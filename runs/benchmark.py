"""A benchmark: the types of the values in runs/benchmarks/.

Sample counts, limits, scenarios and audits are those of the current round's table (runs/rounds.py); rules take
their numbers from a `Benchmark` and a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import FiniteFloat

from runs.files.fields import AtLeastOne, Count, StrictModel
from runs.rounds import CURRENT_ROUND, RoundBenchmark, TokenLimits

Scenario = Literal["Offline", "Server", "SingleStream", "Interactive"]
SCENARIOS: tuple[Scenario, ...] = ("Offline", "Server", "SingleStream", "Interactive")
Mode = Literal["performance", "accuracy"]

# LoadGen has no Interactive scenario: it runs Server with another model key. [loadgen/mlperf.conf]
LOADGEN_SCENARIO: dict[Scenario, str] = {
    "Offline": "Offline",
    "Server": "Server",
    "SingleStream": "SingleStream",
    "Interactive": "Server",
}
# LoadGen records an error for a response of fewer tokens. [loadgen/loadgen.cc LogSampleCompletion]
MIN_TOKENS_LOADGEN_ACCEPTS = 2


class SamplingPolicy(StrictModel):
    """The sampling of tokens, and the limits of a response's length."""

    temperature: FiniteFloat
    top_p: FiniteFloat
    top_k: int
    seed: int
    min_tokens: Count
    max_tokens: AtLeastOne


@dataclass(frozen=True)
class Target:
    """Limits of one score, as shares of the reference implementation's score; None = no upper limit."""

    reference: float
    low_share: float = 1.0
    high_share: float | None = 1.0

    @property
    def low(self) -> float:
        return self.reference * self.low_share

    @property
    def high(self) -> float | None:
        return None if self.high_share is None else self.reference * self.high_share


@dataclass(frozen=True)
class OfficialModel:
    """The model that a closed submission runs."""

    name: str
    shape: Mapping[str, int]  # keys of its config.json that distinguish it from other models
    parameters: int  # number of its parameters
    weights_sha256: Mapping[str, str]  # SHA-256 of the published files; empty if none are published
    bos_ids: frozenset[int]  # IDs that begin a text
    stop_ids: frozenset[int]  # IDs that end a response
    special_ids: frozenset[int]  # all special IDs of the tokenizer, including bos_ids and stop_ids
    speculative_decoding: bool  # True if the closed division allows speculative decoding


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: one model key of LoadGen."""

    loadgen_key: str  # selects LoadGen's settings in its mlperf.conf
    submission_name: str  # name of the directory in a submission tree
    entry: RoundBenchmark  # requirements of the current round
    scenarios: tuple[Scenario, ...]  # scenarios that are submitted with this key
    model: OfficialModel
    data_set: str  # name of the dataset
    data_sha256: str | None  # SHA-256 of the file that MLCommons distributes; None if none is published
    calibration_sha256: str | None  # SHA-256 of MLCommons' calibration prompts; None if none is published
    sampling: Mapping[Mode, SamplingPolicy]
    metric: str  # name of the accuracy metric in compliance/accuracy/metrics.py
    targets: Mapping[str, Target]  # score name in the metric → target
    quality_eval: str  # name of the accuracy run in a technique's declaration
    min_duration_ms: int = CURRENT_ROUND.table.min_duration_ms  # minimum duration of a performance run

    @property
    def performance_samples(self) -> int:
        """Number of samples in the official dataset of a performance run."""
        return self.entry.performance_samples

    @property
    def accuracy_samples(self) -> int:
        """Number of samples in the official dataset of an accuracy run."""
        return self.entry.accuracy_samples_of(self.scenarios[0])

    def samples(self, mode: Mode) -> int:
        """Return the number of samples in the official dataset of a mode."""
        return self.performance_samples if mode == "performance" else self.accuracy_samples

    @property
    def offline_min_samples(self) -> int | None:
        """Number of samples that LoadGen requires in the only query of Offline."""
        return self.entry.offline_min_samples if "Offline" in self.scenarios else None

    @property
    def limits(self) -> TokenLimits | None:
        """The latency limits of LoadGen's Server scenario."""
        limits = (self.entry.token_limits.get(scenario) for scenario in self.scenarios)
        return next((limits for limits in limits if limits is not None), None)

    @property
    def accuracy_log_bytes(self) -> int:
        """Size of the largest possible accuracy log, with eight hexadecimal digits per token."""
        return self.accuracy_samples * (8 * self.sampling["accuracy"].max_tokens + 256)

    def targets_for(self, scores: Mapping[str, float]) -> Mapping[str, Target] | None:
        """Return targets with the same shares of other reference scores; None if one is missing."""
        if not set(self.targets) <= set(scores):
            return None
        return {name: replace(target, reference=scores[name]) for name, target in self.targets.items()}
