"""Fingerprints for campaigns and tunings: of a run that would start now, and of a run with its user.conf."""

from collections.abc import Mapping

from runs.benchmark import LOADGEN_SCENARIO
from runs.errors import HarnessError, InputError
from runs.files.reading import read_record
from runs.harness import harness_facts
from runs.loadgen.conf_lines import accepted_lines, decode_conf, lookup
from runs.machine.accelerators import accelerators
from runs.machine.environment import host_facts, loadgen_facts, software_versions
from runs.record.fingerprint import Facts, accelerator_facts, fingerprint, machine_facts, planned_facts
from runs.record.layout import RunDir
from runs.record.manifest import RunPlan, read_manifest


def finished_fingerprint(run: RunDir) -> Facts:
    """Return the fingerprint of a run with its user.conf; raise InputError if its manifest or user.conf is damaged."""
    manifest = read_manifest(run.manifest)
    conf = read_record(run.user_conf, "rerun")
    return fingerprint(manifest) | _settings_in_user_conf(manifest.plan, decode_conf(conf), run)


def planned_fingerprint(plan: RunPlan, user_conf: str, run: RunDir, sha256: Mapping[str, str], machine: Facts) -> Facts:
    """Return the fingerprint of a run that would start now.

    Args:
        sha256: SHA-256 of the model's files.
        machine: result of `machine_now()`.
    """
    if plan.nodes:  # the nodes' accelerators compute
        machine = machine | accelerator_facts([row for node in plan.nodes for row in node.accelerator])
    return planned_facts(plan, sha256) | machine | _settings_in_user_conf(plan, user_conf, run)


def machine_now() -> Facts:
    """Return the facts of this machine for a run that starts now."""
    return machine_facts(harness_facts(), software_versions(), loadgen_facts(), host_facts(), accelerators())


def _settings_in_user_conf(plan: RunPlan, user_conf: str, run: RunDir) -> Facts:
    """Return the settings of user.conf that LoadGen reads for the scenario."""
    try:
        settings = accepted_lines(user_conf, run.user_conf)
    except HarnessError as error:
        raise InputError(error.message, "the file in the run directory is damaged; rerun") from error
    keys = sorted({setting.key for setting in settings})
    settings_in_force = {key: lookup(settings, plan.loadgen_key, LOADGEN_SCENARIO[plan.scenario], key) for key in keys}
    return {f"user.conf {key}": f"{value:.17g}" for key, value in settings_in_force.items() if value is not None}
