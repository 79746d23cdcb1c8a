"""What a benchmark is: the types of the values in runs/benchmarks/. No number stands here.

A leg knows its `Benchmark` and its round (runs/rounds.py), and every rule takes what it asks for from them.
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
    """How tokens are chosen, and how many at least and at most."""

    temperature: float
    top_p: float
    top_k: int
    seed: int
    min_tokens: int
    max_tokens: int


@dataclass(frozen=True)
class LatencyLimits:
    """What the p99 of LoadGen's Server scenario must not exceed."""

    ttft_ms: int
    tpot_ms: int


@dataclass(frozen=True)
class Target:
    """What is required of one score: shares of the reference implementation's own score; None = no upper limit."""

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

    name: str  # as people say it
    shape: Mapping[str, int]  # keys of its config.json that tell it from other models
    parameters: int  # numbers in its weights
    weights_sha256: Mapping[str, str]  # of its files as they were published; empty where nobody published any
    bos_ids: frozenset[int]  # begin a text
    stop_ids: frozenset[int]  # end an answer
    special_ids: frozenset[int]  # all of the tokenizer's, those above among them
    speculative_decoding: bool  # allowed in the closed division


@dataclass(frozen=True)
class Submission:
    """One benchmark directory of a submission tree, and what the checker wants in it, in every round that has it."""

    name: str  # the directory's name
    aliases: tuple[str, ...]  # other names that the checker takes for it
    suite: Suite
    all_of: tuple[Scenario, ...]  # scenarios that must all be there in the closed division
    one_of: tuple[Scenario, ...]  # scenarios of which one must be there; none when empty
    audits: tuple[str, ...]  # required in every scenario of the closed division

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Those that may be submitted."""
        return (*self.all_of, *self.one_of)

    @property
    def required(self) -> str:
        """The scenarios of a complete set, in words."""
        one_of = " or ".join(self.one_of)
        return ", ".join(self.all_of) + (f" and {one_of}" if one_of else "")

    def missing(self, there: Collection[str]) -> list[str]:
        """What a set of scenarios lacks."""
        missing: list[str] = [name for name in self.all_of if name not in there]
        if self.one_of and not set(self.one_of) & set(there):
            missing.append(" or ".join(self.one_of))
        return missing


@dataclass(frozen=True)
class Benchmark:
    """One LoadGen model key."""

    loadgen_key: str  # selects LoadGen's settings in its mlperf.conf
    submission: Submission
    scenarios: tuple[Scenario, ...]  # those that are submitted with this key
    model: OfficialModel
    data_set: str  # as people say it
    data_sha256: str | None  # of the file that MLCommons distributes; None where no hash of it is published
    calibration_sha256: str | None  # of the file of calibration prompts that MLCommons distributes; None as above
    # performance_samples, accuracy_samples: rows of the official data set of each mode
    performance_samples: int
    accuracy_samples: int
    min_duration_ms: int  # of a performance leg
    # what LoadGen asks of the one query of Offline; None where its settings name nothing
    offline_min_samples: int | None
    limits: LatencyLimits | None  # of LoadGen's Server scenario; None where this key has none
    sampling: Mapping[Mode, SamplingPolicy]  # of each mode
    metric: str  # what scores an accuracy leg, by its name in compliance/accuracy/metrics.py
    targets: Mapping[str, Target]  # what is required of each score, by its name in the metric
    quality_eval: str  # the accuracy leg's name among the quality evaluations that a technique may be declared with

    @property
    def submission_name(self) -> str:
        """Directory name in a submission tree."""
        return self.submission.name

    def samples(self, mode: Mode) -> int:
        """Rows of the official data set of a mode."""
        return self.performance_samples if mode == "performance" else self.accuracy_samples

    @property
    def accuracy_log_bytes(self) -> int:
        """The largest log of answers: each as long as may be, eight digits a token."""
        return self.accuracy_samples * (8 * self.sampling["accuracy"].max_tokens + 256)

    def targets_for(self, scores: Mapping[str, float]) -> Mapping[str, Target] | None:
        """The same shares of other reference scores; None where these lack one."""
        if not set(self.targets) <= set(scores):
            return None
        return {name: replace(target, reference=scores[name]) for name, target in self.targets.items()}
