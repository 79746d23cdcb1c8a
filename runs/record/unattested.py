"""A complete run without an attestation: it was ended, or its disk was full, before it was signed."""

import shlex

from runs.errors import SetupError
from runs.harness import PROGRAM
from runs.record.layout import RunDir


class NotAttestedError(SetupError):
    """A complete run without an attestation. It has no verdict until it is signed."""

    def __init__(self, run: RunDir) -> None:
        super().__init__(
            f"the run is complete, but it has no attestation: {run.seal} is missing",
            f"restore {run.seal.name}, or sign the run: {sign_command(run)}",
            path=run.seal,
            missing=True,
        )


def sign_command(run: RunDir) -> str:
    """Return the command that signs a complete run without an attestation."""
    return f"{PROGRAM} anchor --attest {shlex.quote(str(run.root))}"
