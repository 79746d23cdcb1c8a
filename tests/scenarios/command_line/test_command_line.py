"""The command line, derived from the schema: each field has an option, and no option is without field."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import InputError
from scenarios.bench.options import BenchOptions
from scenarios.command_line.command import Command, Group
from scenarios.command_line.schema_options import given_values, options_of, parse_value
from scenarios.commands import COMMAND_GROUPS
from scenarios.dispatch import COMMANDS, cli, main
from scenarios.launch.run_config import RunConfig, make_config
from scenarios.spellings import _KEYS, _SPELLINGS, ACCEPTED, field_and_key
from tests.conftest import run_here
from tests.support.documents.documentation import parse as typed

# Flags of the reference implementation
REFERENCE_FLAGS = [
    "--scenario", "--model-path", "--dataset-path", "--accuracy", "--dtype", "--audit-conf", "--user-conf",
    "--total-sample-count", "--batch-size", "--output-log-dir", "--enable-log-trace", "--num-workers",
    "--tensor-parallel-size", "--vllm", "--api-server", "--api-model-name", "--lg-model-name",
]  # fmt: skip


def parse(*arguments: str) -> dict[str, Any]:
    """Return the values that reach the action of a command."""
    command = command_with(lambda **parsed: given_values(parsed))
    return command.main(list(arguments), standalone_mode=False, parent=click.Context(cli, **cli.context_settings))


def command_with(action: Callable[..., Any]) -> Command:
    return Command("run", params=options_of(RunConfig), callback=action, help="Run.", examples=())


def test_each_field_has_one_option_with_help() -> None:
    options = {option.name: option for option in options_of(RunConfig)}
    assert list(options) == list(RunConfig.model_fields)
    for name, option in options.items():
        assert option.opts[0] == "--" + name.replace("_", "-")
        assert option.help == RunConfig.model_fields[name].description
    flags = {flag for option in options.values() for flag in option.opts}
    assert set(REFERENCE_FLAGS) <= flags


def test_missing_options_leave_the_defaults_to_the_schema() -> None:
    assert parse() == {}
    assert parse("--scenario", "Offline") == {"scenario": "Offline"}
    assert make_config(parse("--scenario", "Offline")).model_fields_set == {"scenario"}


def test_option_values_are_texts_for_the_schema() -> None:
    values = parse(
        "--scenario", "Server", "--accuracy", "--dataset-path", "a/b.json", "--target-qps", "2", "--batch-size", "8",
        "--dummy-fault", "swallow@3", "--dummy-fault", "empty", "--engine-arg", "max-num-seqs=64",
        "--engine-arg", "dtype=half",
    )  # fmt: skip
    assert values == {
        "scenario": "Server",
        "accuracy": True,
        "dataset_path": Path("a/b.json"),
        "target_qps": "2",
        "batch_size": "8",
        "dummy_fault": ["swallow@3", "empty"],
        "engine_arg": {"max_num_seqs": 64, "dtype": "half"},
    }
    assert make_config(values).model_fields_set == set(values)


@pytest.mark.parametrize("flag", REFERENCE_FLAGS)
def test_reference_flags_are_accepted_with_underscores(flag: str) -> None:
    options = {option.opts[0]: option for option in options_of(RunConfig)}
    with_underscores = "--" + flag[2:].replace("-", "_")
    value = [] if options[flag].is_flag else ["1"]
    assert parse(with_underscores, *value) == parse(flag, *value) != {}
    if value:
        assert parse(f"{with_underscores}=1") == parse(flag, "1")


def test_option_names_of_circulating_scripts_are_accepted() -> None:
    words = "--model_name M --output_dir D --total_count 8 --max_new_tokens 64 --device cuda"
    parsed = parse(*words.split())
    equivalent = "--model-path M --output-log-dir D --total-sample-count 8 --max-new-tokens 64 --device cuda"
    assert parsed == parse(*equivalent.split())
    assert make_config({"scenario": "Offline", **parsed}).total_sample_count == 8
    command = command_with(lambda **parsed: None)
    usual = command.get_help(click.Context(command))
    assert "--model-name" not in usual
    everything = click.Context(command)
    everything.meta["all"] = True
    assert re.search(r"--model-name +Same as --model-path\.", command.get_help(everything))
    with pytest.raises(InputError, match="--total-sample-count x: must be a whole number"):
        make_config({"scenario": "Offline", **parse("--total-count", "x")})


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("run --request-rate 4", "here: --target-qps"),
        ("--base_url http://x", "here: --api-server"),
        ("audit --max-num-seqs 8", "here: --engine-arg max_num_seqs=VALUE"),
        ("run --temperature=1", "here: --sampling-arg temperature=VALUE"),
        ("verify DIR --model-name M", "here: --model-path"),  # accepted by commands that start runs
        ("verify DIR --request-rate 4", "see `python main.py verify --help`"),
        ("run --scenrio Offline", "did you mean --scenario?"),
        ("run --hf-token x", "see `python main.py run --help`"),
    ],
)
def test_an_option_of_another_program_names_its_equivalent(
    words: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    first, second, *_ = capsys.readouterr().err.splitlines()  # run also reports its missing scenario
    assert re.fullmatch(r"error: --[a-z-]+: unknown option", first)
    assert second == f"  fix: {fix}"


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("run", ["--target-qps x"]),
        ("bench", ["--rates x", "--queries 0"]),
        ("tune", ["--max-probes x", "--resolution 2"]),
        ("audit --test output_length", ["--samples x", "--threshold 2"]),
    ],
)
def test_all_mistakes_of_a_command_line_are_reported_at_once(
    command: str, own: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    options = ["--scenario Servr", "--engine-start-timeout-s x", "--stall-timeout-s -1", f"--signing-key {loop}", *own]
    unknown = ["--nonsense=3", "--targt-rate 5"]
    assert main(" ".join([command, *options, *unknown]).split()) == 2
    lines = capsys.readouterr().err.splitlines()
    for option in ("--nonsense", "--targt-rate", *options):
        (place,) = (place for place, line in enumerate(lines) if f"{option}:" in line)
        assert lines[place + 1].startswith("  fix: ")
    assert not [line for line in lines if "Input should" in line]


def test_all_unknown_options_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "DIR", "--nonsense", "--offcial"]) == 2
    assert [line for line in capsys.readouterr().err.splitlines() if "unknown option" in line] == [
        "error: --nonsense: unknown option",
        "--offcial: unknown option",
    ]


def test_each_accepted_spelling_has_a_field() -> None:
    names = [name for table in (ACCEPTED, _SPELLINGS, _KEYS) for names in table.values() for name in names]
    assert len(names) == len(set(names))
    for name in names:
        field, key = field_and_key(name)
        assert field in {*RunConfig.model_fields, *BenchOptions.model_fields}
        assert key in ("", name)
        assert name not in RunConfig.model_fields


@pytest.mark.parametrize(
    ("arguments", "name", "rest"),
    [
        ([], "run", []),
        (["--scenario", "Server"], "run", ["--scenario", "Server"]),
        (["run", "--lg_model_name", "x_y"], "run", ["--lg_model_name", "x_y"]),
        (["doctor"], "doctor", []),
    ],
)
def test_a_command_line_without_command_means_run(arguments: list[str], name: str, rest: list[str]) -> None:
    above = cli.make_context("main.py", arguments)
    resolved, command, left = cli.resolve_command(above, [*above._protected_args, *above.args])
    assert (resolved, left) == (name, rest)
    assert command.name == name


def test_an_unknown_command_suggests_the_nearest_one() -> None:
    with pytest.raises(InputError) as refused:
        cli.main(["docter"], standalone_mode=False)
    assert (refused.value.message, refused.value.fix) == ("docter: unknown command", "did you mean 'doctor'?")
    with pytest.raises(InputError) as refused:
        cli.main(["xyz"], standalone_mode=False)
    assert refused.value.fix == f"commands: {', '.join(COMMANDS)}"
    assert cli.get_command(click.Context(cli), "docter") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64), ("0.5", 0.5), ("true", True), ("True", True), ("false", False), ("none", None), ("None", None),
        ("null", None), ("auto", "auto"), ("float32", "float32"), ('{"a": 1}', {"a": 1}), ("[1, 2]", [1, 2]),
        ("a=b", "a=b"), ("", ""), ('"64"', "64"), ("1e3", 1000.0),
    ],
)  # fmt: skip
def test_values_of_pairs_have_the_type_of_their_text(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.text())
def test_parsing_a_value_never_raises(text: str) -> None:
    parse_value(text)  # never raises


def test_a_pair_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="max_num_seqs: given twice"):
        parse("--engine-arg", "max_num_seqs=1", "--engine-arg", "max-num-seqs=2")


def command_of(name: str) -> Command | Group:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, Command | Group)
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_help_texts_are_valid_commands(name: str) -> None:
    text = run_here(name, "--help-all").stdout
    assert 2 <= len(command_of(name).examples) <= 4
    for example in command_of(name).examples:
        words, colon, line = example.partition(": ")
        assert colon
        assert words
        assert line.split()[0] == name or name == "init"  # the last line shows the next command
        typed(shlex.split(line))
        assert f"python main.py {line}\n" in text


def test_the_list_of_commands_has_the_first_sentence_of_each() -> None:
    for name in COMMANDS:
        assert COMMANDS[name] == " ".join(str(command_of(name).help).split("\n\n")[0].split())
    text = run_here("--help").stdout
    assert all(f"{name:<10}{sentence}\n" in text for name, sentence in COMMANDS.items())
    assert re.findall(r"(?m)^  (\w+) ", text) == list(COMMAND_GROUPS)


def pages() -> Iterator[list[str]]:
    yield []
    for name in COMMANDS:
        yield [name]
        yield from ([name, inner] for inner in getattr(command_of(name), "commands", ()))


@pytest.mark.parametrize("words", pages(), ids=" ".join)
def test_help_fits_on_one_screen(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = run_here(*words, "--help").stdout.splitlines()
    assert len(lines) <= (24 if words else len(COMMANDS) + 4)
    typed_by_users = [line for line in lines if "python main.py" in line]
    assert all(len(line) <= 100 for line in lines if line not in typed_by_users)
    if words:
        assert any(line.lstrip().startswith("--help-all") for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_in_the_complete_help(name: str) -> None:
    shown = run_here(name, "--help-all").stdout
    assert all(f" {option.opts[0]}" in shown for option in command_of(name).params if is_listed(option))


def is_listed(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and not option.hidden


WITH_A_PATH = [
    ["run", "--scenario", "Offline", "--engine", "dummy", "--output-log-dir"],
    ["campaign", "--config"],
    ["verify"],
]


@pytest.mark.parametrize("command", WITH_A_PATH, ids=lambda words: words[0])
def test_a_directory_without_permission_is_bad_input(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    user = os.geteuid()
    if user == 0:  # root may enter each directory
        os.seteuid(65534)
    try:
        refused = run_here(*command, tmp_path / "closed" / "x")
    finally:
        os.seteuid(user)
    assert refused.code == 2
    assert "x: no permission to enter the parent directory\n  fix: " in refused.stderr
