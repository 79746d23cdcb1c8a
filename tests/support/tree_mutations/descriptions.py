"""What the submitter says: the system description, measurements, README.md, user.conf, the code."""

import shutil
from pathlib import Path
from typing import Any

from compliance.submission.system_fields import REPLACE_ME
from compliance.submission.tree import Tree
from tests.support.tree_mutations.registry import (
    MUTATIONS,
    Mutation,
    edit,
    edit_object,
    edit_text,
    first,
    mutation,
    removal,
    some,
)


def _system(tree: Tree) -> Path:
    place = some(tree)
    return tree.system(place.division, place.organisation, place.system)


def system_value(rule: str, **values: Any) -> None:
    """Register another value of a field of the system description; None removes the field."""
    name, value = next(iter(values.items()))
    MUTATIONS.append(
        Mutation(f"system_{name}_is_{str(value)[:20]!r}", lambda tree: edit_object(_system(tree), **values), (rule,))
    )


removal("no_system_description", "system-missing", _system)
edit("broken_system_description", "system-json", file=_system, old="{", new="{{")
edit("system_with_a_field_twice", "system-json", file=_system, old="{", new='{"status": "preview", ')
edit("measurements_with_a_field_twice", "measurements-field", file=lambda tree: tree.measurements(some(tree)),
     old="{", new='{"weight_data_types": "fp32", ')  # fmt: skip
system_value("system-field", cooling=None)
system_value("system-field", host_memory_capacity="")
system_value("system-field", host_storage_type=[])
system_value("system-field", framework="\u200b ")
system_value("system-field", cooling=["air"])
system_value("system-field", framework={"vLLM": [0, 32]})
system_value("system-field", host_memory_capacity=2.5)
system_value("system-field", accelerator_model_name=True)
system_value("system-field", operating_system={"kernel": "6.8"})
system_value("system-placeholder", other_software_stack={"CUDA": "TBD"})
system_value("system-number", number_of_nodes="one")
system_value("system-number", number_of_nodes="0")
system_value("system-number", accelerators_per_node="\u0668")
system_value("system-status", status="soon")
system_value("system-type", system_type="cloud")
system_value("system-submitter", submitter="Someone else")
system_value("system-division", division="open")
system_value("system-network", is_network=False)
system_value("system-network", is_network="true")
system_value("system-placeholder", framework="TODO")
system_value("system-placeholder", cooling=REPLACE_ME)
system_value("rehearsal", framework="none (the dummy engine runs no model)")


@mutation("suite-benchmark")
def benchmark_of_another_suite(tree: Tree) -> Path:
    place = some(tree)
    path = _system(tree)
    other = "datacenter" if "edge" in place.benchmark else "edge"
    edit_object(path, system_type=other)
    return tree.scenario(place).parent


@mutation("system-unused")
def description_without_results(tree: Tree) -> Path:
    path = _system(tree)
    return Path(shutil.copy(path, path.with_name("another-system.json")))


removal("no_measurements", "measurements-missing", lambda tree: tree.measurements(some(tree)))
removal("no_user_conf", "scenario-file", lambda tree: tree.user_conf(some(tree)))


def measurement(rule: str, **values: Any) -> None:
    """Register another value of a field of measurements.json."""
    name, value = next(iter(values.items()))
    change = lambda tree: edit_object(tree.measurements(some(tree)), **values)  # noqa: E731
    MUTATIONS.append(Mutation(f"measurement_{name}_is_{str(value)[:20]!r}", change, (rule,)))


measurement("measurements-field", weight_data_types="")
measurement("measurements-field", weight_data_types=16)
measurement("measurements-field", input_data_types=["int32"])
measurement("measurements-field", starting_weights_filename={"rank 0": {"part": 1}})
measurement("measurements-retraining", retraining="Yes, on the training set")
measurement("measurements-retraining", retraining="fine-tuned on CNN-DailyMail")
measurement("measurements-retraining", retraining="no, but for the last layer")
measurement("measurements-retraining", retraining=True)
measurement("measurements-fewer-weights", weight_transformations="quantization, 2:4 pruned")
measurement("measurements-fewer-weights", weight_transformations="8 layers removed")
measurement("measurements-fewer-weights", weight_transformations="2:4 sparse weights")


def another_model(name: str) -> None:
    """Register another model in the last scenario of the first system."""

    def change(tree: Tree) -> Path | None:
        one = some(tree)
        same = [place for place in tree.places() if place.benchmark == one.benchmark and place.system == one.system]
        if len(same) < 2:
            return None
        edit_object(tree.measurements(one), starting_weights_filename="meta-llama/Llama-3.1-8B-Instruct")
        return edit_object(tree.measurements(same[-1]), starting_weights_filename=name)

    MUTATIONS.append(Mutation(f"another_model_{len(name)}", change, ("measurements-model",)))


another_model("meta-llama/Llama-3.2-1B-Instruct")
another_model("a small one of ours")


@mutation("scenario-file")
def empty_readme(tree: Tree) -> Path:
    path = tree.readme(some(tree))
    path.write_text("\n")
    return path


@mutation("user-conf-differs")
def user_conf_of_another_run(tree: Tree) -> Path:
    path = tree.user_conf(some(tree))
    path.write_text(path.read_text() + "\n*.*.min_duration = 60001\n*.Offline.min_duration = 60001\n")
    place = some(tree)
    if place.scenario != "Offline":
        return edit_text(path, "*.Offline.", f"*.{'SingleStream' if 'Single' in place.scenario else 'Server'}.")
    return path


@mutation("user-conf-differs")
def user_conf_with_other_seeds(tree: Tree) -> Path:
    path = tree.user_conf(some(tree))
    path.write_text(f"{path.read_text()}\n*.*.schedule_rng_seed = 1\n")
    return path


@mutation("user-conf-differs")
def user_conf_that_issues_one_sample(tree: Tree) -> Path:
    path = tree.user_conf(some(tree))
    path.write_text(f"{path.read_text()}\n*.*.performance_issue_same = 1\n")
    return path


@mutation("user-conf-absent")
def user_conf_without_a_target(tree: Tree) -> Path | None:
    place = first(tree, "Server", "SingleStream")
    if place is None:
        return None
    path = tree.user_conf(place)
    kept = [line for line in path.read_text().splitlines() if ".target_" not in line]
    path.write_text("\n".join(kept) + "\n")
    return path


@mutation("tree-source")
def no_code(tree: Tree) -> Path:
    place = some(tree)
    path = tree.source(place.division, place.organisation)
    shutil.rmtree(path)
    return path


@mutation("tree-source")
def empty_code(tree: Tree) -> Path | None:
    path = no_code(tree)
    assert path is not None
    path.mkdir()
    return path
