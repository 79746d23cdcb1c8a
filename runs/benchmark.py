"""What a benchmark is: the types of the values in runs/benchmarks/.

A leg knows its `Benchmark` and its round (runs/rounds.py); rules take their numbers from these.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Scenario = Literal["Offline", "Server", "SingleStream", "Interactive"]
SCENARIOS: tuple[Scenario, ...] = ("Offline", "Server", "SingleStream", "Interactive")
Mode = Literal["performance", "accuracy"]
Suite = Literal["datacenter", "edge"]

# LoadGen knows no Interactive scenario: it is Server under another model key. [loadgen/mlperf.conf]
LOADGEN_SCENARIO: dict[Scenario, str] = {
    "Offline": "Offline",
    "Server": "Server",
    "SingleStream": "SingleStream",
    "Interactive": "Server",
}
# LoadGen records an error for a response of fewer tokens. [loadgen/loadgen.cc LogSampleCompletion]
MIN_TOKENS_LOADGEN_ACCEPTS = 2


@dataclass(frozen=True)
class SamplingPolicy:
    """How tokens are chosen, and the limits of an answer's length."""

    temperature: float
    top_p: float
    top_k: int
    seed: int
    min_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class LatencyLimits:
    """Upper limits of the p99 in LoadGen's Server scenario."""

    ttft_ms: int
    tpot_ms: int


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
    parameters: int  # numbers in its weights
    weights_sha256: Mapping[str, str]  # of its published files; empty if no hashes are published
    bos_ids: frozenset[int]  # begin a text
    stop_ids: frozenset[int]  # end an answer
    special_ids: frozenset[int]  # all of the tokenizer's, those above among them
    speculative_decoding: bool  # allowed in the closed division


@dataclass(frozen=True)
class Submission:
    """One benchmark directory of a submission tree, and what the checker requires in it in every round."""

    name: str  # the directory's name
    aliases: tuple[str, ...]  # other names that the checker accepts
    suite: Suite
    all_of: tuple[Scenario, ...]  # scenarios that must all be there in the closed division
    one_of: tuple[Scenario, ...]  # scenarios of which one must be there
    audits: tuple[str, ...]  # required in every scenario of the closed division

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Those that may be submitted."""
        return (*self.all_of, *self.one_of)

    def missing(self, there: Collection[str]) -> list[str]:
        """The scenarios that a complete set has and this one lacks."""
        missing: list[str] = [name for name in self.all_of if name not in there]
        return missing + ([" or ".join(self.one_of)] if self.one_of and not set(self.one_of) & set(there) else [])


@dataclass(frozen=True)
class Benchmark:
    """One LoadGen model key."""

    loadgen_key: str  # selects LoadGen's settings in its mlperf.conf
    submission: Submission
    scenarios: tuple[Scenario, ...]  # those that are submitted with this key
    model: OfficialModel
    data_set: str  # its name
    data_sha256: str | None  # of the file that MLCommons distributes; None if no hash is published
    calibration_sha256: str | None  # of MLCommons' file of calibration prompts; None as above
    # performance_samples, accuracy_samples: rows of the official data set of each mode
    performance_samples: int
    accuracy_samples: int
    min_duration_ms: int  # of a performance leg
    offline_min_samples: int | None  # that LoadGen requires of the one query of Offline
    limits: LatencyLimits | None  # of LoadGen's Server scenario
    sampling: Mapping[Mode, SamplingPolicy]
    metric: str  # of an accuracy leg, by its name in compliance/accuracy/metrics.py
    targets: Mapping[str, Target]  # by the score's name in the metric
    quality_eval: str  # name of the accuracy leg in a technique's declaration

    @property
    def submission_name(self) -> str:
        """Directory name in a submission tree."""
        return self.submission.name

    def samples(self, mode: Mode) -> int:
        """Rows of the official data set of a mode."""
        return self.performance_samples if mode == "performance" else self.accuracy_samples

    @property
    def accuracy_log_bytes(self) -> int:
        """The largest honest log of answers, with eight digits per token."""
        return self.accuracy_samples * (8 * self.sampling["accuracy"].max_tokens + 256)

    def targets_for(self, scores: Mapping[str, float]) -> Mapping[str, Target] | None:
        """The same shares of other reference scores; None if one is missing."""
        if not set(self.targets) <= set(scores):
            return None
        return {name: replace(target, reference=scores[name]) for name, target in self.targets.items()}
