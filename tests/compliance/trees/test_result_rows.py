"""The numbers of results in the record of `check`: rates per accelerator, their medians, and latencies with limits."""

import json
from pathlib import Path
from typing import Any

from compliance.trees.result_rows import result_records
from compliance.trees.tree import Place, Tree
from runs.rounds import ROUNDS


def described(tree: Tree, submitter: str, gpus: int, scenario: str = "Offline") -> Place:
    """Return the place of a result of a system with this number of GPUs."""
    path = tree.system("closed", submitter, "a")
    path.parent.mkdir(parents=True)
    processors = {"host_processor_model_name": "a processor", "host_processors_per_node": "2"}
    accelerators = {"accelerator_model_name": "a GPU", "accelerators_per_node": str(gpus)}
    path.write_text(json.dumps(processors | accelerators | {"number_of_nodes": "1"}))
    return Place("closed", submitter, "a", "llama3.1-8b", scenario)


def rates_of(tree: Tree, rates: dict[str, tuple[int, float]]) -> dict[str, dict[str, Any]]:
    """Return the records of Offline results by submitter, from the number of GPUs and the tokens/s of each."""
    numbers = {
        described(tree, submitter, gpus): {"result_tokens_per_second": rate}
        for submitter, (gpus, rate) in rates.items()
    }
    return {row["organisation"]: row for row in result_records(tree, numbers)}


def test_rates_are_divided_by_accelerators_and_compared_with_their_median(tmp_path: Path) -> None:
    rows = rates_of(Tree(tmp_path, ROUNDS["v6.0"]), {"A": (1, 100.0), "B": (2, 210.0), "C": (1, 95.0), "D": (2, 400.0)})
    assert [row["rate_per_accelerator"] for row in rows.values()] == [100, 105, 95, 200]
    assert rows["D"]["rate_to_median"] == 200 / 102.5
    assert rows["D"]["accelerator"] == "a GPU"


def test_a_system_without_accelerators_is_counted_by_processors(tmp_path: Path) -> None:
    (row,) = rates_of(Tree(tmp_path, ROUNDS["v6.0"]), {"A": (0, 50.0)}).values()
    assert (row["accelerator"], row["accelerators"], row["rate_per_accelerator"]) == ("a processor", 2, 25)


def test_two_results_are_too_few_for_a_median(tmp_path: Path) -> None:
    rows = rates_of(Tree(tmp_path, ROUNDS["v6.0"]), {"A": (1, 100.0), "B": (1, 300.0)})
    assert [row["rate_to_median"] for row in rows.values()] == [None, None]


def test_latencies_are_in_ms_beside_their_limits(tmp_path: Path) -> None:
    tree = Tree(tmp_path, ROUNDS["v6.0"])
    values = {"result_first_token_99.00_percentile_latency_ns": 1.5e9, "requested_server_ttft_latency": 2e9}
    (row,) = result_records(tree, {described(tree, "A", 1, "Server"): values})
    assert row["latencies"] == [{"name": "p99 TTFT", "ms": 1500, "limit_ms": 2000, "share_of_limit": 0.75}]
    assert (row["rate"], row["unit"]) == (None, "")


def test_offline_results_have_no_latency_limits(tmp_path: Path) -> None:
    tree = Tree(tmp_path, ROUNDS["v6.0"])
    values = {"result_99.00_percentile_latency_ns": 1.5e9, "requested_server_target_latency_ns": 2e9}
    (row,) = result_records(tree, {described(tree, "A", 1): values})
    assert row["latencies"] == []
