"""The run of the real vLLM in `make test`, started as by a user."""

from pathlib import Path

from qsl.dataset import Dataset
from runs.errors import ExitCode
from tests.support.engines.greedy import GreedyResponse
from tests.vllm.vllm_runs import check_responses, execute_run, run_command

# As many queries as samples, and limits that each host meets, so the verdict does not depend on the speed.
CONF = """
*.Server.target_qps = 20
*.Server.min_duration = 1000
*.Server.min_query_count = 64
*.Server.target_latency_percentile = 90
*.Server.ttft_latency = 3600000
*.Server.tpot_latency = 3600000
"""


def test_a_server_run_is_valid_with_greedy_responses(
    tiny_model: Path, dataset: Dataset, responses: list[GreedyResponse], tmp_path: Path
) -> None:
    run = execute_run(run_command(tiny_model, tmp_path / "run", CONF, ["--scenario", "Server"]), tmp_path / "run")
    assert (run.exit_code, run.result["verdict"], run.result["disagreements"]) == (ExitCode.OK, "VALID", []), run
    assert len(run.requests) == len(dataset) == 64
    check_responses(run, dataset, responses, len(dataset))
    assert (run.requests.first_token_ns > run.requests.issue_ns).all()
    assert (run.requests.complete_ns > run.requests.first_token_ns).all()
    for source in ("reported", "derived"):
        assert run.result[source]["tokens_per_second"] > 0
        assert 0 < run.result[source]["ttft_ns"]["p50"] < run.result[source]["latency_ns"]["p50"]
    engine = run.manifest["engine"]["configuration"]
    assert (engine["enable_prefix_caching"], engine["dtype"]) == (False, "float32")
    assert run.manifest["observed"]["cached_prompt_tokens"] == 0
