"""The limits of a CPU engine's steps."""

import pytest

from runs.benchmark import Scenario
from sut.vllm.cpu import FEWEST_TOKENS, cpu_batch_limits


@pytest.mark.parametrize(
    ("scenario", "parameters", "cores", "tokens"),
    [
        ("Server", 400_000, 2, 2048),
        ("Interactive", 400_000, 2, 1024),
        ("Server", 9_500_000, 2, 768),  # 842 in time
        ("Server", 9_500_000, 4, 1664),
        ("Interactive", 9_500_000, 4, FEWEST_TOKENS),  # 505 in time
        ("Server", 8_000_000_000, 128, FEWEST_TOKENS),
    ],
)
def test_a_step_of_prompts_takes_no_longer_than_it_may(
    scenario: Scenario, parameters: int, cores: int, tokens: int
) -> None:
    limits = cpu_batch_limits({}, scenario, parameters=parameters, cores=cores)
    assert limits == {"max_num_seqs": 512, "max_num_batched_tokens": tokens}


def test_a_step_has_room_for_a_token_of_each_query() -> None:
    limits = cpu_batch_limits({"max_num_seqs": 800}, "Server", parameters=9_500_000, cores=2)
    assert limits["max_num_batched_tokens"] == 800
