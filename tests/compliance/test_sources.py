"""The functions that a command applies to paths, and the options that have no effect on them."""

from pathlib import Path

import pytest

from compliance.sources import FUNCTIONS, CommandName, function_for, functions_for
from runs.errors import InputError
from runs.mlperf_endpoints.layout import EVENTS


@pytest.fixture
def client_run(tmp_path: Path) -> Path:
    (folder := tmp_path / "client").mkdir()
    (folder / EVENTS).touch()
    return folder


@pytest.fixture
def loadgen_run(tmp_path: Path) -> Path:
    (folder := tmp_path / "loadgen").mkdir()
    return folder


@pytest.mark.parametrize("command", FUNCTIONS)
def test_each_kind_of_path_has_its_function(command: CommandName, client_run: Path, loadgen_run: Path) -> None:
    functions = functions_for(command, [client_run, loadgen_run, client_run])
    assert [paths for _, paths in functions] == [[loadgen_run], [client_run]]
    main_function, others = FUNCTIONS[command]
    names = [f"{function.__module__}:{function.__name__}" for function, _ in functions]
    assert names == [main_function, others[-1].function]


def test_paths_of_two_kinds_are_refused_where_one_function_takes_all(client_run: Path, loadgen_run: Path) -> None:
    with pytest.raises(InputError, match=str(loadgen_run)):
        function_for("submit", [client_run, loadgen_run])
    assert function_for("submit", [client_run]) is not function_for("submit", [loadgen_run])


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for command, (_, others) in FUNCTIONS.items() for option in others[-1].refused],
)
def test_options_without_effect_on_client_runs_are_refused(
    command: CommandName, option: str, client_run: Path, loadgen_run: Path
) -> None:
    assert functions_for(command, [loadgen_run], {option: "x"})
    with pytest.raises(InputError, match=option):
        functions_for(command, [client_run], {"--output": "x", option: "x"})


def test_a_scope_that_needs_loadgen_is_refused_for_client_runs(client_run: Path, loadgen_run: Path) -> None:
    assert functions_for("signoff", [loadgen_run], {"--scope": "patch"})
    assert functions_for("signoff", [client_run], {"--scope": "harness"})
    with pytest.raises(InputError, match=f"--scope patch: not supported for {client_run}") as refused:
        functions_for("signoff", [client_run], {"--scope": "patch"})
    assert refused.value.fix == "use --scope harness"


def test_seed_sets_without_a_client_run_are_refused(client_run: Path, loadgen_run: Path) -> None:
    assert functions_for("verify", [loadgen_run, client_run], {"--seed-sets": "seedset.yaml"})
    with pytest.raises(InputError, match="--seed-sets"):
        functions_for("verify", [loadgen_run], {"--seed-sets": "seedset.yaml"})
