"""All audits by name, from the modules in `compliance/audits/catalog/`.

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


AUDITS: dict[str, AuditTest[Any]] = {test.name: test for test in declared()}


def find_audit(name: str) -> AuditTest[Any]:
    """Return the audit with a name.

    Raises:
        InputError: If the audit does not exist.
    """
    if name not in AUDITS:
        raise InputError(f"--test {name}: unknown audit", f"choose from {', '.join(AUDITS)}")
    return AUDITS[name]
