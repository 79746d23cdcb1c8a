"""All audits by name."""

from compliance.audits.base import AuditTest
from compliance.audits.output_caching import OutputCaching
from compliance.audits.test04 import OfficialTest04
from compliance.audits.test06 import OfficialTest06
from compliance.audits.two_modes import OutputConsistency, OutputLength
from runs.errors import InputError

AUDITS: dict[str, AuditTest] = {
    test.name: test
    for test in (OutputCaching(), OfficialTest04(), OfficialTest06(), OutputConsistency(), OutputLength())
}


def find_audit(name: str) -> AuditTest:
    """The audit of that name.

    Raises:
        InputError: there is none.
    """
    if name not in AUDITS:
        raise InputError(f"--test {name}: there is no such audit", f"choose from {', '.join(AUDITS)}")
    return AUDITS[name]
