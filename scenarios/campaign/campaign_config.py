"""The YAML file of a campaign, with its own keys and the keys of its runs.

The keys of a run are the options of `run`. At the top of the file they apply to every scenario; below a scenario's name
they apply to this scenario.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from compliance.audits.options import AuditOptions
from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import SUBMISSIONS, submitted_benchmark
from runs.errors import InputError
from runs.files.yaml_keys import line_of_key, with_underscores
from runs.mistakes import Mistakes
from runs.record.layout import CampaignDir, ResultDir
from runs.rounds import CURRENT_ROUND
from runs.what_is import Division
from scenarios.audit.audit_config import audit_options
from scenarios.campaign.tuned_rates import tuned_values
from scenarios.checked_options import CheckedOptions, check_options, checked
from scenarios.launch.run_config import check_config, load_yaml, merged, without_trial

# Options of `run` that a campaign sets itself.
NOT_FOR_CAMPAIGNS = frozenset({"scenario", "accuracy", "audit_conf", "label", "lg_model_name"})
# A campaign has one system under test: these options are equal in all its runs.
ONE_FOR_ALL = frozenset(
    {
        "engine",
        "vllm",
        "network_sut",
        "model_path",
        "dataset_path",
        "total_sample_count",
        "output_log_dir",
        "signing_key",
    }
)

PERFORMANCE, ACCURACY = "performance", "accuracy"
_EXAMPLE = "see configs/campaign-datacenter.yaml"


class CampaignOptions(CheckedOptions):
    """The campaign's own keys. All other keys in the file belong to its runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    benchmark: str  # directory name in a submission tree
    division: Division = "closed"
    round: str = CURRENT_ROUND.name
    scenarios: dict[Scenario, Any]  # scenario → its keys, which carry their line number
    audits: list[str | dict[Any, Any]] | None = None  # audits of every scenario; None = required by the division
    rates_from: list[Path] = Field(default_factory=list)  # directories of tunings, whose rates and options are used
    system: Path | None = None  # YAML file with facts of the system, for `submit` and `check`

    @field_validator("benchmark")
    @classmethod
    def _benchmark(cls, value: str) -> str:
        if value not in SUBMISSIONS:
            raise ValueError(f"choose from {', '.join(SUBMISSIONS)}")
        return value

    @field_validator("scenarios", mode="before")
    @classmethod
    def _scenarios(cls, value: object) -> object:
        """Accept scenario names in any case; an empty block or a plain list means no own keys."""
        if isinstance(value, list):
            value = dict.fromkeys(value)
        if not isinstance(value, dict) or not value:
            raise ValueError("give at least one scenario, with its keys below it")
        if faulty := [key for key, block in value.items() if not isinstance(block, dict | None)]:
            raise ValueError(f"{faulty[0]}: expected keys and values")
        names = {name.lower(): name for name in SCENARIOS}
        if twice := [str(key) for key, count in Counter(str(key).lower() for key in value).items() if count > 1]:
            raise ValueError(f"{names.get(twice[0], twice[0])} is given twice")
        return {names.get(str(key).lower(), key): {} if block is None else block for key, block in value.items()}

    @field_validator("round")
    @classmethod
    def _round(cls, value: str) -> str:
        if value != CURRENT_ROUND.name:
            raise ValueError(f"the installed LoadGen has only the seeds of {CURRENT_ROUND}")
        return value


@dataclass(frozen=True)
class CampaignRun:
    """A performance run, an accuracy run or an audit of a campaign."""

    scenario: Scenario
    kind: str  # performance, accuracy, or the audit's name
    values: dict[str, Any]  # fields of RunConfig; for an audit, the fields that its runs share
    result: ResultDir
    audit: AuditOptions | None = None

    @property
    def name(self) -> str:
        return f"{self.scenario} {self.kind}"

    @property
    def folder(self) -> Path:
        """The directory that the run writes, and that is set aside before a repetition."""
        if self.audit is not None:
            return self.result.audit(self.kind)
        return (self.result.performance if self.kind == PERFORMANCE else self.result.accuracy).root

    @property
    def has_files(self) -> bool:
        return self.folder.is_dir() and any(self.folder.iterdir())


@dataclass(frozen=True)
class Campaign:
    """A checked configuration: the campaign's keys, its directory, and its runs in their order of execution."""

    options: CampaignOptions
    place: CampaignDir
    runs: tuple[CampaignRun, ...]
    requested: dict[str, Any]  # file and command line merged, for campaign.json
    file: Path
    tunings: dict[Scenario, Path]  # directory of the tuning that gives the rate of a scenario

    def scenarios(self) -> list[tuple[CampaignRun, ...]]:
        """Return the runs grouped by scenario."""
        return [tuple(run for run in self.runs if run.scenario == name) for name in self.options.scenarios]


def load_campaign(path: Path, command_line: Mapping[str, Any]) -> Campaign:
    """Read a campaign's YAML file.

    Args:
        command_line: Run keys from the command line, which override the file.

    Raises:
        InputError: If a key is unknown, a value is not allowed, or the benchmark does not have the scenario.
    """
    content = load_yaml(path)
    own_values = {key: content.pop(key) for key in CampaignOptions.model_fields if key in content}
    shared = merged(content, dict(command_line))
    mistakes = Mistakes()
    _refuse(mistakes, path, "", shared, NOT_FOR_CAMPAIGNS)
    options = mistakes.accept(check_options(mistakes, CampaignOptions, own_values, _EXAMPLE, path))
    mistakes.attempt(_network, path, options, shared)
    place = CampaignDir(Path(shared.pop("output_log_dir", None) or Path("output") / path.stem))
    if options.system is not None:
        if not options.system.is_file():
            mistakes.add(f"{path}: system: {options.system}: no such file", "copy configs/system-example.yaml")
        own_values["system"] = str(options.system.absolute())
    allowed = SUBMISSIONS[options.benchmark].scenarios
    for scenario in options.scenarios:
        if scenario not in allowed:
            problem = f"{path}: {options.benchmark} has no {scenario} scenario in a submission"
            mistakes.add(problem, f"use {', '.join(sorted(allowed))}")
    mistakes.refuse()
    keys = {scenario: submitted_benchmark(options.benchmark, scenario).loadgen_key for scenario in options.scenarios}
    tuned = tuned_values(path, options.rates_from, shared, keys, NOT_FOR_CAMPAIGNS | ONE_FOR_ALL)
    runs: list[CampaignRun] = []
    for scenario, block in options.scenarios.items():
        values, result = with_underscores(block), place.result(options.benchmark, scenario)
        audits = mistakes.attempt(_audits_of, path, options, scenario, values) or ()
        _refuse(mistakes, path, f"scenarios: {scenario}: ", values, NOT_FOR_CAMPAIGNS | ONE_FOR_ALL)
        folder, confirmed = tuned.get(scenario, (None, {}))
        for name in sorted({"target_qps", "user_conf"} & values.keys()) if folder is not None else ():
            mistakes.add(
                f"{path}: scenarios: {scenario}: {name}: rates_from {folder} also has a rate of {scenario}",
                f"remove {name}, or the directory from rates_from",
            )
        values = without_trial({**merged(merged(shared, confirmed), values), "scenario": scenario})
        runs += _runs_of_result(result, scenario, {**values, "lg_model_name": keys[scenario]}, audits)
    _check_runs(mistakes, path, runs)
    mistakes.refuse()
    requested = {**own_values, **shared, "output_log_dir": str(place.root)}
    return Campaign(options, place, tuple(runs), requested, path, {name: folder for name, (folder, _) in tuned.items()})


def _runs_of_result(
    result: ResultDir, scenario: Scenario, values: dict[str, Any], audits: Sequence[AuditOptions]
) -> Iterator[CampaignRun]:
    """Yield the runs of a result: performance, accuracy, audits."""
    performance = {**values, "output_log_dir": result.performance.root}
    accuracy = {**values, "output_log_dir": result.accuracy.root, "accuracy": True}
    yield CampaignRun(scenario, PERFORMANCE, performance, result)
    yield CampaignRun(scenario, ACCURACY, accuracy, result)
    for audit in audits:
        yield CampaignRun(scenario, audit.test, {**values, "output_log_dir": result.root}, result, audit)


def _check_runs(mistakes: Mistakes, path: Path, runs: Sequence[CampaignRun]) -> None:
    """Add the mistakes in the options of the runs, each with its scenarios."""
    scenarios: dict[tuple[str, str], dict[str, None]] = {}  # message and fix → scenarios in their order
    for run in runs:
        run_mistakes = Mistakes()
        check_config(run_mistakes, run.values)
        for error in run_mistakes.errors:
            scenarios.setdefault((error.message, error.fix), {})[run.scenario] = None
    for (message, fix), names in scenarios.items():
        mistakes.add(f"{'' if str(path) in message else f'{path}: '}{', '.join(names)}: {message}", fix)


def _network(path: Path, options: CampaignOptions, shared: dict[str, Any]) -> None:
    """Check network_sut and api_server against the division. [rules: Network Division]"""
    if options.division != "network":
        if shared.get("network_sut") and options.division == "closed":
            may = "give division: network, or " if SUBMISSIONS[options.benchmark].suite == "datacenter" else ""
            raise InputError(f"{path}: network_sut: not in the closed division", f"{may}remove network_sut")
        return
    if SUBMISSIONS[options.benchmark].suite != "datacenter":
        raise InputError(
            f"{path}: division: network: datacenter systems only, not {options.benchmark}",
            "set division to closed or open",
        )
    if not shared.get("api_server"):
        raise InputError(f"{path}: division: network: requires a server", "add api_server: URL")
    shared["network_sut"] = True


def missing_scenarios(options: CampaignOptions) -> str:
    """Return the scenarios that a closed submission requires besides the campaign's scenarios; empty if none."""
    entry = SUBMISSIONS[options.benchmark]
    return " and ".join(entry.missing(options.scenarios, entry.suite))


def _audits_of(
    path: Path, options: CampaignOptions, scenario: Scenario, values: dict[str, Any]
) -> tuple[AuditOptions, ...]:
    """Return the audits of a scenario: its own `audits`, those of the campaign, or as the division requires."""
    required = SUBMISSIONS[options.benchmark].audits if options.division != "open" else ()
    if "audits" in values:
        values_with_audits = {**options.model_dump(), "audits": values.pop("audits") or []}
        requested = checked(CampaignOptions, values_with_audits, _EXAMPLE, path).audits
    else:
        requested = options.audits
    requested = list(required) if requested is None else requested
    audits = tuple(audit_options({"test": audit} if isinstance(audit, str) else audit, path) for audit in requested)
    for audit in audits:
        if audit.ref is not None or audit.run is not None:
            raise InputError(f"{path}: audits: {audit.test}: a campaign starts the runs itself", "remove ref and run")
    names = [audit.test for audit in audits]
    if len(set(names)) < len(names):
        raise InputError(
            f"{path}: {scenario}: audits {', '.join(names)}: an audit is named twice", "give each audit once"
        )
    if missing := [name for name in required if name not in names]:
        raise InputError(
            f"{path}: {scenario}: audits: {missing[0]} is missing ({options.division} {options.benchmark})",
            f"add {missing[0]} to audits, or remove audits",
        )
    return audits


def _refuse(mistakes: Mistakes, path: Path, prefix: str, values: Mapping[str, Any], refused: frozenset[str]) -> None:
    for key in sorted(refused & values.keys()):
        why = "set by the campaign itself" if key in NOT_FOR_CAMPAIGNS else "must be the same for all scenarios"
        place = line_of_key(dict(values), key) or path
        mistakes.add(f"{place}: {prefix}{key}: {why}", f"remove {key}, or move it to the top of the file")
