"""The command line of a comparison, and the files of its blocks."""

from pathlib import Path

import pytest

from runs.bench.bench_record import Limits
from runs.errors import ExitCode, InputError
from scenarios.ab.ab_options import ComparedSystem
from scenarios.ab.block_files import TwinPrompts, order_of_issue
from scenarios.ab.load_ab import load_ab, loads_of
from scenarios.bench.prompts import Synthetic
from scenarios.served_commands import command_on
from tests.conftest import RunMain

BENCH = {"input_len": "16", "output_len": "8", "rates": "8"}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two configurations of the dummy engine."""
    paths = [tmp_path / f"{name}.yaml" for name in "ab"]
    for path, slots in zip(paths, (8, 4), strict=True):
        path.write_text(f"engine: dummy\ndummy_slots: {slots}\n")
    return [str(path) for path in paths]


def test_configurations_take_turns(files: list[str]) -> None:
    ab = load_ab(["ab"], files, {}, BENCH, {})
    assert ab.method == "turns"
    assert [system.bench.values["dummy_slots"] for system in ab.systems] == [8, 4]
    assert (ab.precision, ab.max_time_s, ab.fail_if_slower) == (0.02, 1200, None)


def test_the_default_rate_is_half_of_the_offline_rate(files: list[str]) -> None:
    ab = load_ab(["ab"], files, {}, {"input_len": "16", "output_len": "8"}, {})
    assert [step.share for step in loads_of(ab.steps)] == [0.5]


def test_limits_are_those_of_a_bench(files: list[str]) -> None:
    assert load_ab(["ab"], files, {}, BENCH, {}).base.limits is None
    limits = load_ab(["ab"], files, {}, {**BENCH, "limits": "ttft=500,e2el=900"}, {}).base.limits
    assert limits == Limits(ttft=500, e2el=900)


def test_concurrency_replaces_the_rates(files: list[str]) -> None:
    ab = load_ab(["ab"], files, {}, {"input_len": "16", "output_len": "8", "concurrency": "4"}, {})
    assert [step.concurrency for step in loads_of(ab.steps)] == [4]


@pytest.mark.parametrize(
    ("targets", "options", "named"),
    [
        (1, {}, "two systems are required"),
        (0, {"serve": ["one"]}, "two systems are required"),
        (2, {"serve": ["one", "two"]}, "exclude each other"),
        (2, {"precision": "2"}, "--precision 2"),
        (2, {"precision": "0%"}, "--precision 0%"),
        (2, {"fail_if_slower": "200%"}, "--fail-if-slower 200%"),
        (2, {"max_time": "soon"}, "--max-time soon"),
        (2, {"block": "1s"}, "--block 1"),
    ],
)
def test_a_wrong_option_is_named(files: list[str], targets: int, options: dict[str, object], named: str) -> None:
    with pytest.raises(InputError) as caught:
        load_ab(["ab"], files[:targets], options, BENCH, {})
    assert named in str(caught.value)


def test_systems_with_other_lengths_are_not_comparable(files: list[str]) -> None:
    Path(files[1]).write_text("engine: dummy\nsampling_arg: {min_tokens: 3}\n")
    with pytest.raises(InputError):
        load_ab(["ab"], files, {}, BENCH, {})


def test_a_command_gets_a_port() -> None:
    assert command_on("serve --listen {port}", 80) == "serve --listen 80"
    assert command_on("vllm serve M", 80) == "vllm serve M --port 80"


def test_twins_of_a_query_are_issued_one_after_the_other() -> None:
    source = Synthetic("bytes", (16, 16), (8, 8), 1)
    rows = TwinPrompts(source, 3, "Server", are_distinct=False).rows(5, 30)
    issued = [rows[sample] for sample in order_of_issue(30)]
    expected = source.rows(5, 10)
    assert issued == [row for row in expected for _ in range(3)]


def test_twins_of_one_server_have_different_prompts() -> None:
    source = Synthetic("bytes", (16, 16), (8, 8), 1)
    rows = TwinPrompts(source, 2, "Server", are_distinct=True).rows(0, 30)
    assert len(set(rows)) == 30


def test_a_dry_run_prints_the_plan_and_writes_nothing(run_main: RunMain, files: list[str], tmp_path: Path) -> None:
    finished = run_main(
        "ab", *files, "--rates", 8, "--input-len", 16, "--output-len", 8, "--dry-run", "-o", tmp_path / "x"
    )
    assert finished.code == ExitCode.OK
    assert "a pair of blocks takes" in finished.stdout
    assert not (tmp_path / "x").exists()


def test_a_system_is_named_by_its_letter(files: list[str]) -> None:
    systems: list[ComparedSystem] = load_ab(["ab"], files, {}, BENCH, {}).systems
    assert [system.name for system in systems] == ["A", "B"]
