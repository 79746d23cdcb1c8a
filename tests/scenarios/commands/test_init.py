"""`main.py init`: the other commands accept its files."""

import errno
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import main
from compliance.submission.system import read_system_file
from compliance.submission.this_machine import detect
from compliance.trees.system_fields import REPLACE_ME
from runs.errors import InputError
from runs.harness import HARNESS_ROOT
from runs.loadgen.conf_lines import read_stored
from runs.machine.accelerators import accelerators
from scenarios.campaign.campaign_config import load_campaign
from scenarios.commands import init
from scenarios.launch.run_config import load_yaml, make_config
from tests.conftest import run_here


@pytest.mark.parametrize("name", ["work", "a: 'b' # \"c\"\n[/d] é"])
def test_written_files_are_accepted_by_the_other_commands(
    name: str, tmp_path: Path, make_dataset: Callable[..., Path]
) -> None:
    folder, data = tmp_path / name, make_dataset([1, 2, 3])
    finished = run_here("init", folder, "--dataset-path", data)
    assert finished.code == 0, finished.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["campaign.yaml", "run.yaml", "system.yaml", "user.conf"]
    words = shlex.split(finished.stdout.partition("next: ")[2])  # the proposed command, as a shell splits it
    assert words[:7] == ["python", "main.py", "doctor", "--model-path", init.MODEL, "--dataset-path", str(data)]
    assert words[-2:] == [str(folder / "run.yaml"), "--dry-run"]
    config = make_config(load_yaml(folder / "run.yaml"))
    assert (config.scenario, config.dataset_path, config.user_conf) == ("Server", data, folder / "user.conf")
    assert ("delete these three lines" in (folder / "system.yaml").read_text()) == bool(accelerators())
    assert read_stored(folder / "user.conf")
    campaign = load_campaign(folder / "campaign.yaml", {})
    assert campaign.place.root == folder / "campaign"
    assert campaign.requested["dataset_path"] == str(data)
    assert campaign.requested["system"] == str(folder / "system.yaml")
    dry = run_here("run", "--config", folder / "run.yaml", "--engine", "dummy", "--dry-run", "--model-path", "")
    assert dry.code == 2  # a missing model is reported, and the rest of the file is used
    assert run_here("init", folder).code == 3


def test_detected_facts_are_filled_in_and_others_are_placeholders(tmp_path: Path) -> None:
    run_here("init", tmp_path / "work")
    content = load_yaml(tmp_path / "work" / "system.yaml")
    assert {name: content["system"].get(name) for name in detect()} == detect()
    with pytest.raises(InputError, match=REPLACE_ME):
        read_system_file(content)
    filled = {name: "x" if value == REPLACE_ME else value for name, value in content["system"].items()}
    read_system_file({"system": {**filled, "status": "available"}})
    if not accelerators():
        assert not any(name.startswith("accelerator_") for name in filled)


@pytest.mark.parametrize(("unpacked", "place"), [(True, "mlperf"), (False, "harness/mlperf")])
def test_the_default_folder_is_outside_of_the_unpacked_harness(
    unpacked: bool, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "harness"
    root.mkdir()
    if unpacked:
        (root / "pyproject.toml").write_text("")
    monkeypatch.chdir(root)
    assert init.default_folder(root) == tmp_path / place


def test_a_full_disk_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, text: str) -> None:
        if path.name == "system.yaml":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text(text)

    monkeypatch.setattr(init, "write_atomic", write)
    assert main.main(["init", str(tmp_path / "work")]) == 3
    assert list((tmp_path / "work").iterdir()) == []


def test_a_folder_in_the_checkout_is_refused() -> None:
    finished = run_here("init", HARNESS_ROOT / "work")
    assert finished.code == 2
    assert "lies in the checkout" in finished.stderr
    assert not (HARNESS_ROOT / "work").exists()
