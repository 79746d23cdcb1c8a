"""The files of a block's run: a dataset whose rows LoadGen issues once each, and a user.conf."""

from dataclasses import dataclass, replace

from runs.loadgen.schedule import OrderSettings, issue_order, shuffled_library
from runs.record.manifest import RunPlan
from runs.rounds import CURRENT_ROUND
from scenarios.ab.ab_options import Ab
from scenarios.bench.bench_plan import Bench
from scenarios.bench.ladder import PlannedBenchRun
from scenarios.bench.prompts import Prompts
from scenarios.bench.run_files import write_run_files
from scenarios.launch.plan import PreparedRun
from scenarios.launch.run_config import RunConfig

_SEEDS = 1_000_003  # multiplier that separates the seeds of pairs


@dataclass(frozen=True)
class PlannedBlock:
    """One block, before it starts."""

    spec: PlannedBenchRun
    load: int
    pair: int
    systems: list[int]

    @property
    def folder_name(self) -> str:
        """The directory of the block's runs, in the directory of the comparison."""
        return "both" if len(self.systems) > 1 else "ABCDEFGH"[self.systems[0]]


@dataclass(frozen=True)
class TwinPrompts:
    """Prompts of which LoadGen issues each one successively for each system."""

    source: Prompts
    systems: int
    scenario: str  # LoadGen's scenario
    are_distinct: bool  # True if the systems are one server, whose cache must not contain the prompt of a twin

    @property
    def total(self) -> int:
        return self.source.total

    @property
    def longest(self) -> int:
        return self.source.longest

    def facts(self) -> dict[str, str]:
        return self.source.facts()

    def rows(self, first: int, count: int) -> list[bytes]:
        """Return rows in an order in which LoadGen issues equal prompts one after the other."""
        if self.are_distinct or self.scenario == "Offline":
            return self.source.rows(first, count)
        prompts = self.source.rows(first, -(-count // self.systems))
        rows: list[bytes] = [b""] * count
        for seq, sample in enumerate(order_of_issue(count)):
            rows[sample] = prompts[seq // self.systems]
        return rows


def order_of_issue(count: int) -> list[int]:
    """Return the samples of a Server run with `count` queries in the order in which LoadGen issues them."""
    seeds = CURRENT_ROUND.seeds
    settings = OrderSettings("Server", accuracy=False, sample_index_rng_seed=seeds.sample_index_rng_seed,
                             min_query_count=count, sample_concatenate_permutation=True)  # fmt: skip
    order: list[int] = issue_order(shuffled_library(seeds.qsl_rng_seed, count), count, settings).tolist()
    return order


def bench_of(ab: Ab, block: PlannedBlock) -> Bench:
    """Return the plan of a block's run: that of its system, or of all systems."""
    bench = ab.systems[block.systems[0]].bench
    bench = replace(bench, values={name: value for name, value in bench.values.items() if name != "serve"})
    folder = ab.folder / block.folder_name
    if len(block.systems) == 1:
        return replace(bench, folder=folder)
    urls = list(dict.fromkeys(ab.systems[system].bench.values["api_server"] for system in block.systems))
    scenario = "Offline" if block.spec.kind == "offline" else "Server"
    prompts = TwinPrompts(bench.prompts, len(block.systems), scenario, ab.has_equal_urls)
    values = {**bench.values, "api_server": ",".join(urls)}
    if len(urls) == 1:  # one server against itself: a client for each system
        values["replicas"] = str(len(block.systems))
    names = {ab.systems[system].bench.values.get("api_model_name") for system in block.systems}
    if len(names) > 1:
        del values["api_model_name"]  # each server has one model
    return replace(bench, folder=folder, prompts=prompts, values=values)


def write_block_files(ab: Ab, block: PlannedBlock) -> RunConfig:
    """Write the dataset and the user.conf of a block; return its configuration."""
    return write_run_files(bench_of(ab, block), block.spec)


def seed_of(ab: Ab, block: PlannedBlock) -> int:
    """Return the seed of a pair. Both blocks of a pair have equal arrivals."""
    return 1 + (ab.seed + _SEEDS * (1 + 64 * block.pair + 1_000_000 * block.load)) % (2**31 - 1)


def set_seeds(ab: Ab, block: PlannedBlock, run: PreparedRun) -> None:
    """Set the seeds of the arrivals, and of the assignment to the systems, in the plan of a block's run."""
    seed = seed_of(ab, block)
    update: dict[str, object] = {"schedule_rng_seed": seed}
    plan: RunPlan = run.plan
    if len(block.systems) > 1:
        assert plan.replicas is not None
        update["replicas"] = plan.replicas.model_copy(update={"twins": seed})
    run.plan = plan.model_copy(update=update)
