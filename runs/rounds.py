"""The submission rounds: one object each, with its seeds, the layout of its trees and its LoadGen.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [conf]     loadgen/mlperf.conf, and its history (commit named beside each round)
  [checker]  tools/submission/submission_checker/constants.py: seeds, and the `*_PATH` tables
  [version]  loadgen/VERSION.txt at the commit that set the round's seeds
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seeds:
    """The three LoadGen seeds of a round."""

    qsl_rng_seed: int
    sample_index_rng_seed: int
    schedule_rng_seed: int


@dataclass(frozen=True)
class Round:
    """One submission round."""

    name: str
    seeds: Seeds
    # measurements/, compliance/ and code/ lie beside results/; otherwise everything of one scenario lies together, and
    # the code in src/. [checker]
    split_tree: bool
    min_duration_ms: int  # of a performance leg. [checker] TEST_DURATION_MS
    loadgen_from: str  # LoadGen's version when its settings got the round's seeds. [version]
    # names that a benchmark's directory may have, ours among them. [checker: MODEL_CONFIG, models, and
    # what model_mapping maps to one]
    benchmarks: frozenset[str]

    def __str__(self) -> str:
        return self.name


_IN_ALL = frozenset((
    "resnet", "resnet50", "mobilenet", "bert-99", "bert-99.9", "3d-unet-99", "3d-unet-99.9", "llama2-70b-99.9",
    "stable-diffusion-xl", "rgat", "deepseek-r1", "whisper", "llama3.1-8b", "llama3_1-8b", "llama3.1-8b-edge",
    "llama3_1-8b-edge",
))  # fmt: skip
_UNTIL_V6_0 = frozenset((
    "mixtral-8x7b", "pointpainting", "retinanet", "ssd-resnet34", "llama2-70b-99", "llama3.1-405b", "llama3_1-405b",
))  # fmt: skip
_SINCE_V6_0 = frozenset(("gpt-oss-120b", "wan-2.2-t2v-a14b", "qwen3-vl-235b-a22b", "dlrm-v3", "yolo-95", "yolo-99"))

ROUNDS: dict[str, Round] = {
    one.name: one
    for one in (
        Round(  # [conf: 0910c6e3, 2025-06-18]
            "v5.1",
            Seeds(1780908523862526354, 14771362308971278857, 18209322760996052031),
            split_tree=True,
            min_duration_ms=600_000,
            loadgen_from="5.0.21",
            benchmarks=_IN_ALL | _UNTIL_V6_0 | {"dlrm-v2-99", "dlrm-v2-99.9"},
        ),
        Round(  # [conf: f131a0d2, 2026-01-13]
            "v6.0",
            Seeds(2465351861681999779, 14276810075590677512, 3936089224930324775),
            split_tree=False,
            min_duration_ms=600_000,
            loadgen_from="6.0.4",
            benchmarks=_IN_ALL | _UNTIL_V6_0 | _SINCE_V6_0,
        ),
        Round(  # [conf: b0662794, 2026-07-02]
            "v6.1",
            Seeds(2085463073848966840, 2747215439041700203, 16159082839903944936),
            split_tree=False,
            min_duration_ms=600_000,
            loadgen_from="6.0.15",
            benchmarks=_IN_ALL | _SINCE_V6_0 | {"qwen3.6-27b", "e2e-rag-qna", "e2e-rag-db"},
        ),
    )
}
# Whose settings the locked LoadGen has compiled in.
CURRENT_ROUND = ROUNDS["v6.1"]


def round_of(seeds: Seeds) -> Round | None:
    """The round that has these seeds."""
    return next((one for one in ROUNDS.values() if one.seeds == seeds), None)
