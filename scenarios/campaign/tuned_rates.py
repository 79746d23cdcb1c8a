"""The results of tunings that a campaign uses: `rates_from` in its file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from runs.benchmark import Scenario
from runs.benchmarks import default_benchmark
from runs.errors import InputError
from runs.files.reading import MAX_LOG_BYTES, read_whole
from runs.harness import PROGRAM
from runs.record.fingerprint import BUNDLE_BENCHMARK, Facts, describe_differences, differences
from runs.record.tune_dir import TuneDir
from scenarios.launch.run_config import load_yaml, make_config

TUNE_AGAIN = "tune again with the options of the campaign, or remove the directory from rates_from"
_ONE_SYSTEM = ("engine", "model_path", "dataset_path", "total_sample_count", "lg_model_name")


def tuned_values(
    file: Path,
    folders: Iterable[Path],
    shared: dict[str, Any],
    keys: Mapping[Scenario, str],
    one_for_all: frozenset[str],
) -> dict[Scenario, tuple[Path, dict[str, Any]]]:
    """Return the directory of each tuning and the options of `run` that it confirmed, by scenario.

    Args:
        file: The campaign's file, for messages.
        shared: The campaign's options of every scenario.
        keys: LoadGen's model name by scenario of the campaign.
        one_for_all: Options that only the campaign sets, or that `shared` must have too.

    Raises:
        InputError: If a tuning has no confirmed rate, or is of another system or the scenario of another tuning.
    """
    values_of: dict[Scenario, tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        place, best = f"{file}: rates_from: {folder}", TuneDir(folder).best
        if not best.is_file():
            raise InputError(
                f"{place}: {best.name} is missing, because no tuning in this directory confirmed a rate",
                f"run `{PROGRAM} tune --output-log-dir {folder} …`, or remove the directory from rates_from",
            )
        values = load_yaml(best)
        named = values.get("scenario")
        scenario = next((name for name in keys if name == named), None)
        if scenario is None:
            problem = f"the campaign has no scenario {named}" if named else f"{best.name} has no scenario"
            raise InputError(f"{place}: {problem}", "add the scenario, or remove the directory from rates_from")
        if scenario in values_of:
            raise InputError(
                f"{place}: {values_of[scenario][0]} also has a rate of {scenario}", "give only one of these options"
            )
        tuned = make_config({"lg_model_name": default_benchmark(scenario).loadgen_key, **values})
        planned = make_config({**shared, "scenario": scenario, "lg_model_name": keys[scenario]})
        for name in _ONE_SYSTEM:
            tuned_value, planned_value = (_comparable(getattr(config, name)) for config in (tuned, planned))
            if tuned_value != planned_value:
                raise InputError(
                    f"{place}: the rate was tuned with {name} {tuned_value}, but the campaign has {planned_value}",
                    TUNE_AGAIN,
                )
        values_of[scenario] = folder, {key: value for key, value in values.items() if key not in one_for_all}
    return values_of


class _FirstLine(BaseModel):
    identity: Facts


def refuse_other_content(folder: Path, now: Facts) -> None:
    """Refuse a tuning if the SHA-256 of its model or dataset differs from that of the campaign.

    Args:
        folder: The directory of the tuning.
        now: The fingerprint of the campaign's runs.

    Raises:
        InputError: If the model or dataset differs, or the journal of the tuning is missing or damaged.
    """
    place, fix = f"rates_from: {folder}", "give the whole directory of the tuning, or remove it from rates_from"
    journal = read_whole(TuneDir(folder).journal, fix, max_bytes=MAX_LOG_BYTES)
    try:
        first = _FirstLine.model_validate_json(journal.partition(b"\n")[0])
    except ValidationError as error:
        why = f"{place}: {TuneDir(folder).journal.name} does not begin with the configuration of the tuning"
        raise InputError(why, fix) from error
    if unequal := describe_differences(differences(first.identity, now, BUNDLE_BENCHMARK), "in the tuning", "now"):
        raise InputError(f"{place}: the content differs from the tuning: {'; '.join(unequal)}", TUNE_AGAIN)


def _comparable(value: Any) -> Any:
    """Return a path without links, so that two spellings of one file are equal."""
    return str(Path(value).resolve()) if isinstance(value, str | Path) and Path(value).exists() else value
