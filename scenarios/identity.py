"""What a leg that would start now is made with, to be compared with finished legs (runs/record/fingerprint.py)."""

from qsl.model_files import file_hashes
from runs.errors import InputError
from runs.record.fingerprint import RESUMED, Facts, describe, differences, planned_fingerprint
from scenarios.leg.plan import PreparedLeg


def identity_of_plan(leg: PreparedLeg, machine: Facts, model_sha256: dict[str, str]) -> Facts:
    """Of a leg that was prepared in any mode; the others as `machine_now` and `model_hashes` have them."""
    return planned_fingerprint(leg.plan, leg.user_conf, leg.run_dir, model_sha256, machine)


def changes(then: Facts, now: Facts) -> list[str]:
    """What a finished leg was made with and is not so now: `host.cpu: A then, B now`."""
    return describe(differences(then, now, RESUMED), "then", "now")


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
