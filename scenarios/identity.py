"""What a finished leg was made with, against what the campaign asks for now: the same, or different in these keys.

Compared: the resolved plan, the settings that LoadGen reads from user.conf for this scenario, the hashes of data set
and model files, the harness's version, the versions of the software, and the machine. Not compared: names of paths
(their content's hash is), timeouts, and the memory that vLLM's cache gets on a CPU (which follows from what is free).
A changed commit of the same harness version is no difference, since most commits change no run; it is in each leg's
manifest.
"""

from dataclasses import dataclass

from qsl.model_files import file_hashes
from runs.accelerators import accelerators
from runs.benchmark import LOADGEN_SCENARIO
from runs.environment import harness_facts, host_facts, loadgen_facts, software_versions
from runs.errors import HarnessError, InputError
from runs.loadgen.user_conf import lookup, parse_conf
from runs.reading import read_record
from runs.record import conditions
from runs.record.conditions import shown
from runs.record.layout import RunDir
from runs.record.manifest import LegPlan, read_manifest
from runs.record.observed import Accelerator, Harness, Host, Loadgen
from scenarios.leg.plan import PreparedLeg

Identity = dict[str, str]  # key in the user's words → value


@dataclass(frozen=True)
class Difference:
    """One key that a finished leg and the present configuration do not share. None: it is not there."""

    key: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.old, 60)} then, {shown(self.new, 60)} now"


def machine_now() -> Identity:
    """What a leg that starts now would run on; to be read once a campaign."""
    harness, loadgen, host = Harness(**harness_facts()), Loadgen(**loadgen_facts()), Host(**host_facts())
    return _machine(harness, software_versions(), loadgen, host, accelerators())


def identity_of_plan(leg: PreparedLeg, machine: Identity, model_sha256: dict[str, str]) -> Identity:
    """Of a leg that would start now.

    Args:
        leg: prepared in any mode.
        machine: as `machine_now` has it.
        model_sha256: by file name, as the manifest will have it.
    """
    if leg.plan.nodes:  # what computes is theirs, and in the plan
        machine = {key: value for key, value in machine.items() if not key.startswith("accelerator ")}
    return {**_of_plan(leg.plan, leg.user_conf, leg.run_dir), **_of_model(leg.plan, model_sha256), **machine}


def identity_of_run(run: RunDir) -> Identity:
    """Of a leg that ran, from its directory.

    Raises:
        InputError: its manifest or its user.conf is missing or damaged.
    """
    manifest = read_manifest(run.manifest)
    conf = read_record(run.user_conf, "the leg has to be run again").decode(errors="replace")
    gpus = [] if manifest.plan.nodes else manifest.observed.accelerators
    seen = manifest.observed
    machine = _machine(seen.harness, seen.software, seen.loadgen, seen.host, gpus)
    return {
        **_of_plan(manifest.plan, conf, run),
        **_of_model(manifest.plan, manifest.model.sha256),
        **machine,
    }


def differences(old: Identity, new: Identity) -> list[Difference]:
    """Key by key, in the order of the keys of both."""
    return [Difference(key, *values) for key, values in conditions.differences(old, new).items()]


def model_hashes(leg: PreparedLeg) -> dict[str, str]:
    """As the manifest has them.

    Raises:
        InputError: a file of the model cannot be read.
    """
    try:
        return file_hashes(leg.model.folder) if leg.model else {}
    except OSError as error:
        raise InputError(
            f"the model's files cannot be hashed: {error.filename}: {error.strerror}", "check --model-path"
        ) from error


def _of_plan(plan: LegPlan, user_conf: str, run: RunDir) -> Identity:
    kept = {key: str(value) for key, value in conditions.plan_conditions(plan).items()}
    try:
        settings = parse_conf(user_conf, run.user_conf)
    except HarnessError as error:
        raise InputError(error.message, "the file in the run directory is damaged; run the leg again") from error
    for key in sorted({setting.key for setting in settings}):
        value = lookup(settings, plan.loadgen_key, LOADGEN_SCENARIO[plan.scenario], key)
        if value is not None:
            kept[f"user.conf {key}"] = value
    return kept


def _of_model(plan: LegPlan, sha256: dict[str, str]) -> Identity:
    if not sha256:
        return {"model": plan.model_path}
    return {f"model file {name}": digest for name, digest in sha256.items()}


def _machine(
    harness: Harness,
    software: dict[str, str],
    loadgen: Loadgen,
    host: Host,
    gpus: list[Accelerator],
) -> Identity:
    facts = {"harness version": harness.version, "loadgen": loadgen.extension_sha256}
    facts |= {f"software {name}": version for name, version in software.items()}
    facts |= {f"host {name}": str(value) for name, value in host.model_dump().items()}
    for gpu in gpus:
        facts |= {f"accelerator {gpu.get('index')} {name}": str(value) for name, value in gpu.items()}
    return facts
