"""A campaign's YAML file: its own keys and those of its runs.

The keys of a run are those of `run`. At the top of the file they hold for every scenario, below a scenario's name for
that one.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from compliance.audits.options import AuditOptions
from compliance.submission.tree import Division
from runs.benchmark import SCENARIOS, Scenario
from runs.benchmarks import SUBMISSIONS, submitted_benchmark
from runs.errors import InputError
from runs.record.layout import CampaignDir, ResultDir
from runs.rounds import CURRENT_ROUND
from runs.yaml_file import place_of, with_underscores
from scenarios.audit.config import audit_options
from scenarios.run.config import checked, load_yaml, make_config, merged, without_trial

# A campaign sets these itself, run by run.
NOT_FOR_CAMPAIGNS = frozenset({"scenario", "accuracy", "audit_conf", "lg_model_name"})
# One campaign, one system under test: these are the same in all its runs.
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


class CampaignOptions(BaseModel):
    """The campaign's own keys. Everything else in the file belongs to its runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    benchmark: str  # directory name in a submission tree
    division: Division = "closed"
    round: str = CURRENT_ROUND.name
    scenarios: dict[Scenario, Any]  # its keys as they were read, which know their line
    audits: list[str | dict[Any, Any]] | None = None  # of every scenario; None = what the division requires

    @field_validator("benchmark")
    @classmethod
    def _benchmark(cls, value: str) -> str:
        if value not in SUBMISSIONS:
            raise ValueError(f"choose from {', '.join(SUBMISSIONS)}")
        return value

    @field_validator("scenarios", mode="before")
    @classmethod
    def _scenarios(cls, value: object) -> object:
        """Names in any case; an empty block or a bare list means no keys of its own."""
        if isinstance(value, list):
            value = dict.fromkeys(value)
        if not isinstance(value, dict) or not value:
            raise ValueError("name at least one scenario, each with its keys below it")
        if wrong := [key for key, block in value.items() if not isinstance(block, dict | None)]:
            raise ValueError(f"{wrong[0]}: expected keys and values")
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
    """One run or one audit of a campaign; without audits, a scenario has a pair of runs, which make its result."""

    scenario: Scenario
    kind: str  # performance, accuracy, or the audit's name
    values: dict[str, Any]  # fields of RunConfig; of an audit, those that its runs share
    result: ResultDir
    audit: AuditOptions | None = None

    @property
    def name(self) -> str:
        return f"{self.scenario} {self.kind}"

    @property
    def folder(self) -> Path:
        """What the run writes, and what is set aside when it is repeated."""
        if self.audit is not None:
            return self.result.audit(self.kind)
        return (self.result.performance if self.kind == PERFORMANCE else self.result.accuracy).root

    @property
    def has_files(self) -> bool:
        return self.folder.is_dir() and any(self.folder.iterdir())


@dataclass(frozen=True)
class Campaign:
    """A checked configuration: the campaign's keys, its directory and its runs in the order of their run."""

    options: CampaignOptions
    place: CampaignDir
    runs: tuple[CampaignRun, ...]
    asked: dict[str, Any]  # the file under the command line, for the record

    def scenarios(self) -> list[tuple[CampaignRun, ...]]:
        """The runs of each scenario together."""
        return [tuple(run for run in self.runs if run.scenario == name) for name in self.options.scenarios]


def load_campaign(path: Path, given: Mapping[str, Any]) -> Campaign:
    """Read a campaign's YAML file.

    Args:
        given: run keys from the command line, above those of the file.

    Raises:
        InputError: an unknown key, a value that is not allowed, or a scenario that the benchmark does not have.
    """
    content = load_yaml(path)
    own = {key: content.pop(key) for key in CampaignOptions.model_fields if key in content}
    shared = merged(content, dict(given))
    _refuse(path, "", shared, NOT_FOR_CAMPAIGNS)
    options = _options(path, own)
    _network(path, options, shared)
    place = CampaignDir(Path(shared.pop("output_log_dir", None) or Path("output") / path.stem))
    runs: list[CampaignRun] = []
    for scenario, block in options.scenarios.items():
        if scenario not in (allowed := SUBMISSIONS[options.benchmark].scenarios):
            raise InputError(
                f"{path}: {options.benchmark} has no {scenario} scenario in a submission",
                f"use {', '.join(sorted(allowed))}",
            )
        values = with_underscores(block)
        audits = _audits_of(path, options, scenario, values)
        _refuse(path, f"scenarios: {scenario}: ", values, NOT_FOR_CAMPAIGNS | ONE_FOR_ALL)
        values = without_trial({**merged(shared, values), "scenario": scenario})
        values["lg_model_name"] = submitted_benchmark(options.benchmark, scenario).loadgen_key
        result = place.result(options.benchmark, scenario)
        performance = {**values, "output_log_dir": result.performance.root}
        accuracy = {**values, "output_log_dir": result.accuracy.root, "accuracy": True}
        runs.append(CampaignRun(scenario, PERFORMANCE, performance, result))
        runs.append(CampaignRun(scenario, ACCURACY, accuracy, result))
        runs += [
            CampaignRun(scenario, audit.test, {**values, "output_log_dir": result.root}, result, audit)
            for audit in audits
        ]
    for run in runs:
        try:
            make_config(run.values)
        except InputError as error:
            at = "" if str(path) in error.message else f"{path}: "
            raise InputError(f"{at}{run.scenario}: {error.message}", error.fix) from error
    return Campaign(options, place, tuple(runs), {**own, **shared, "output_log_dir": str(place.root)})


def _network(path: Path, options: CampaignOptions, shared: dict[str, Any]) -> None:
    """The system calls itself one beyond a network in every run, or in none. [rules: Network Division]"""
    if options.division != "network":
        if shared.get("network_sut") and options.division == "closed":
            may = "give division: network, or " if SUBMISSIONS[options.benchmark].suite == "datacenter" else ""
            raise InputError(f"{path}: network_sut: not in the closed division", f"{may}leave out network_sut")
        return
    if SUBMISSIONS[options.benchmark].suite != "datacenter":
        raise InputError(
            f"{path}: division: the network division has datacenter systems only, not {options.benchmark}",
            "submit it in closed or open",
        )
    if not shared.get("api_server"):
        raise InputError(f"{path}: division: in network LoadGen reaches a server", "name it with api_server")
    shared["network_sut"] = True


def missing_scenarios(options: CampaignOptions) -> str:
    """What a closed submission of the benchmark still needs beside the campaign's scenarios; empty if nothing."""
    entry = SUBMISSIONS[options.benchmark]
    return " and ".join(entry.missing(options.scenarios, entry.suite))


def _options(path: Path, own: dict[str, Any]) -> CampaignOptions:
    return checked(CampaignOptions, own, "see configs/campaign-datacenter.yaml", path)


def _audits_of(
    path: Path, options: CampaignOptions, scenario: Scenario, values: dict[str, Any]
) -> tuple[AuditOptions, ...]:
    """The audits of one scenario: its own `audits`, else the campaign's, else those that the division requires."""
    required = SUBMISSIONS[options.benchmark].audits if options.division != "open" else ()
    if "audits" in values:
        asked = _options(path, {**options.model_dump(), "audits": values.pop("audits") or []}).audits
    else:
        asked = options.audits
    asked = list(required) if asked is None else asked
    audits = tuple(audit_options({"test": one} if isinstance(one, str) else one, path) for one in asked)
    for audit in audits:
        if audit.ref is not None or audit.run is not None:
            raise InputError(
                f"{path}: audits: {audit.test}: a campaign starts the runs itself", "leave out ref and run"
            )
    names = [audit.test for audit in audits]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: {scenario}: audits {', '.join(names)}: one is named twice", "name each once")
    if lacking := [name for name in required if name not in names]:
        raise InputError(
            f"{path}: {scenario}: audits lacks {lacking[0]}, which {options.division} requires of {options.benchmark}",
            f"add {lacking[0]} to audits, or leave audits out",
        )
    return audits


def _refuse(path: Path, at: str, values: Mapping[str, Any], refused: frozenset[str]) -> None:
    for key in refused & values.keys():
        why = "a campaign sets it itself" if key in NOT_FOR_CAMPAIGNS else "it is one for the whole campaign"
        place = place_of(dict(values), key) or path
        raise InputError(f"{place}: {at}{key}: {why}", "remove it, or put it at the top of the file")
