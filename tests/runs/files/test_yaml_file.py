"""YAML files of users: duplicate keys, other formats, large expansions; and the line of a mistake."""

import os
import re
from pathlib import Path

import pytest

from runs.errors import InputError
from runs.files.yaml_file import read_yaml
from runs.files.yaml_keys import line_of_key, with_underscores
from scenarios.campaign.campaign_config import load_campaign
from scenarios.launch.run_config import load_yaml, make_config, merged


def write_yaml(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "run.yaml:3: a occurs twice, first in line 1"),
        ("outer:\n  x: 1\n  x: 2\n", "run.yaml:3: x occurs twice, first in line 2"),
        ("target-qps: 1\ntarget_qps: 2\n", "run.yaml:2: target_qps occurs twice, with - and with _"),
        ("a: [1,\n", "run.yaml:2 is not YAML: while parsing"),
        ("a: " + "9" * 5000, "is not YAML: "),
        ("a: " + "[" * 1000, "too deeply nested"),
        ("a: 2026-13-45", "is not YAML: month must be in"),
    ],
    ids=["twice", "twice-inside", "two-spellings", "open", "long-number", "deep", "no-such-month"],
)
def test_invalid_yaml_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        load_yaml(write_yaml(tmp_path, text))
    assert refused.value.fix


def test_a_merge_key_may_be_overridden(tmp_path: Path) -> None:
    path = write_yaml(tmp_path, "base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  x: 3\n")
    assert read_yaml(path, "--config")["own"] == {"x": 3, "y": 2}


def test_a_pipe_and_a_device_are_refused_as_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="not a regular file"):
            load_yaml(path)


def test_each_key_keeps_its_line_unless_the_command_line_replaces_it(tmp_path: Path) -> None:
    values = load_yaml(write_yaml(tmp_path, "scenario: Server\n\ntarget-qps: 2\n"))
    assert line_of_key(values, "target_qps") == f"{tmp_path}/run.yaml:3"
    assert line_of_key(merged(values, {"target_qps": 3}), "target_qps") == ""
    assert line_of_key(with_underscores({"a-b": 1}), "a_b") == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("target_qps: true", "run.yaml:2: target_qps True: must be a number"),
        ("total_sample_count: yes", "run.yaml:2: total_sample_count True: must be a number"),
        ('output_log_dir: ""', "run.yaml:2: output_log_dir: empty value"),
        ("config: other.yaml", "run.yaml:2: config: unknown key"),
        ("scenaro: Offline", "run.yaml:2: scenaro: unknown key; did you mean scenario?"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        make_config(load_yaml(write_yaml(tmp_path, f"scenario: Server\n{line}\n")))


@pytest.mark.parametrize("second", ["Offline", "offline"])
def test_a_scenario_named_twice_is_refused(second: str, tmp_path: Path) -> None:
    path = write_yaml(
        tmp_path,
        "benchmark: llama3.1-8b\nscenarios:\n  Offline: {target_qps: 60}\n  " + second + ": {target_qps: 70}\n",
    )
    with pytest.raises(InputError, match="twice"):
        load_campaign(path, {})


def bomb(depth: int, width: int) -> str:
    """Return lines that each name the one before several times."""
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bomb(9, 9), "with its aliases it has more than 200,000 values"),
        (
            bomb(20, 2),
            "more than 200,000",
        ),
        ("a: &a [1, *a]\n", "the value in line 1 contains itself"),
        ("a: &a\n  b: *a\n", "contains itself"),
        ("k: " + "[" * 5_000, "too deeply nested"),
        ("k: x\n" * 300_000, "required: at most 1,048,576"),
    ],
)
def test_a_small_file_that_expands_to_a_large_one_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_yaml(path, "--config")


def test_yaml_aliases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("base: &b {x: 1}\nlist: [*b, *b]\nmerged: {<<: *b, y: 2}\n")
    assert read_yaml(path, "--config")["merged"] == {"x": 1, "y": 2}
