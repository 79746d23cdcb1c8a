"""All audits by name: the modules in `compliance/audits/catalog/`, and audits of other packages (docs/extensions.md).

The command line imports the audits for its options. Therefore they import NumPy and file readers only when they judge
(tests/scenarios/command_line/test_start_up.py).
"""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from typing import Any

from compliance.audits import catalog
from compliance.audits.base import AuditTest
from runs.errors import InputError
from runs.extensions import AUDIT_GROUP, load_extensions


def declared() -> Iterator[AuditTest[Any]]:
    """Return an instance of each concrete audit class in a module. Abstract classes are base classes."""
    for module_info in pkgutil.iter_modules(catalog.__path__, f"{catalog.__name__}."):
        module = import_module(module_info.name)
        yield from (
            value()
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, AuditTest) and value.__module__ == module_info.name
            if not isabstract(value)
        )


BUILT_IN_AUDITS: dict[str, AuditTest[Any]] = {test.name: test for test in declared()}


_SHARED = {option for test in BUILT_IN_AUDITS.values() for option in test.options.model_fields}
_EXTENSIONS, AUDIT_FAULTS = load_extensions(AUDIT_GROUP, AuditTest, BUILT_IN_AUDITS, _SHARED)  # faults by name
AUDITS: dict[str, AuditTest[Any]] = BUILT_IN_AUDITS | _EXTENSIONS


def find_audit(name: str) -> AuditTest[Any]:
    """Return the audit with a name.

    Raises:
        InputError: If the audit does not exist.
        SetupError: If the audit of another package is unusable.
    """
    if name in AUDIT_FAULTS:
        raise AUDIT_FAULTS[name]
    if name not in AUDITS:
        raise InputError(f"--test {name}: unknown audit", f"choose from {', '.join(AUDITS)}")
    return AUDITS[name]
