"""The submission rounds: one object each, with its seeds, the layout of its trees, and its table.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [conf]     loadgen/mlperf.conf, and its history (commit named beside each round)
  [checker]  tools/submission/submission_checker/constants.py: seeds, and the `*_PATH` tables
"""

from dataclasses import dataclass, field

from runs.round_table import RoundTable, table_of


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
    # measurements/, compliance/ and code/ are next to results/; else all of one scenario is together, the code in src/
    # [checker]
    split_tree: bool
    other_table: RoundTable | None = field(default=None, compare=False)  # in place of the round's table

    @property
    def table(self) -> RoundTable:
        """Its requirements of each benchmark."""
        return self.other_table or table_of(self.name)

    @property
    def benchmarks(self) -> frozenset[str]:
        """Names that a benchmark's directory may have."""
        return frozenset(self.table.directories)

    def __str__(self) -> str:
        return self.name


ROUNDS: dict[str, Round] = {
    one.name: one
    for one in (
        Round(  # [conf: 4fc54b5f, 2025-01-14]
            "v5.0",
            Seeds(6023615788873153749, 15036839855038426416, 9933818062894767841),
            split_tree=True,
        ),
        Round(  # [conf: 0910c6e3, 2025-06-18]
            "v5.1",
            Seeds(1780908523862526354, 14771362308971278857, 18209322760996052031),
            split_tree=True,
        ),
        Round(  # [conf: f131a0d2, 2026-01-13]
            "v6.0",
            Seeds(2465351861681999779, 14276810075590677512, 3936089224930324775),
            split_tree=False,
        ),
        Round(  # [conf: b0662794, 2026-07-02]
            "v6.1",
            Seeds(2085463073848966840, 2747215439041700203, 16159082839903944936),
            split_tree=False,
        ),
    )
}
# Whose settings the locked LoadGen has compiled in.
CURRENT_ROUND = ROUNDS["v6.1"]


def round_of(seeds: Seeds) -> Round | None:
    """The round that has these seeds."""
    return next((one for one in ROUNDS.values() if one.seeds == seeds), None)
