"""The limits of a CPU engine's steps."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qsl.model_files import parameter_count
from runs.errors import InputError
from sut.vllm.batch_limits import FEWEST_TOKENS, MOST_TOKENS, cpu_batch_limits


@pytest.mark.parametrize(
    ("parameters", "cores", "tokens"),
    [
        (400_000, 2, MOST_TOKENS),
        (9_500_000, 2, 768),  # 842 in time
        (9_500_000, 4, 1664),
        (8_000_000_000, 128, FEWEST_TOKENS),
    ],
)
def test_a_step_of_prompts_takes_no_longer_than_it_may(parameters: int, cores: int, tokens: int) -> None:
    limits = cpu_batch_limits({}, parameters=parameters, cores=cores)
    assert limits == {"max_num_seqs": 256, "max_num_batched_tokens": tokens}


def test_a_step_has_room_for_a_token_of_each_query() -> None:
    limits = cpu_batch_limits({"max_num_seqs": 800}, parameters=9_500_000, cores=2)
    assert limits["max_num_batched_tokens"] == 800


def test_parameters_are_counted_over_all_files(tmp_path: Path) -> None:
    assert parameter_count(tmp_path) == 0
    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.bfloat16)}, tmp_path / "one.safetensors")
    save_file({"c": torch.zeros(())}, tmp_path / "two.safetensors", metadata={"format": "pt"})
    assert parameter_count(tmp_path) == 15 + 7 + 1


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\2\0\0\0\0\0\0\0[]", b"\7\0\0\0\0\0\0\0" + b'{"a":1}'])
def test_a_file_that_is_none_is_bad_input(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model.safetensors is no safetensors file"):
        parameter_count(tmp_path)
