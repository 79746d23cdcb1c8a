"""Engines and audits of other packages, which declare them as entry points (docs/extensions.md)."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any

from runs.errors import SetupError

ENGINE_GROUP, AUDIT_GROUP = "mlperf_llama_vllm.engines", "mlperf_llama_vllm.audits"  # groups of entry points
_WHAT = {ENGINE_GROUP: "engine", AUDIT_GROUP: "audit"}


@dataclass(frozen=True)
class Extension:
    """An engine or an audit of another package."""

    group: str
    name: str
    target: str  # module:attribute
    package: str  # name of the distribution
    version: str

    @property
    def origin(self) -> str:
        """The extension and its package in words."""
        return f"{_WHAT[self.group]} {self.name} of package {self.package} {self.version}"

    def load(self) -> Any:
        """Import the object of the entry point, which executes code of the package.

        Raises:
            SetupError: If the import fails.
        """
        try:
            return load_object(self.target)
        except (Exception, SystemExit) as error:  # a package may raise anything
            raise self.unusable(f"{type(error).__name__}: {error}") from error

    def unusable(self, reason: str) -> SetupError:
        """Return the error that refuses this extension."""
        return SetupError(
            f"{self.origin}: {reason} (entry point {self.target})", f"correct the package, or uninstall {self.package}"
        )


def load_object(target: str) -> Any:
    """Return the object that `module:attribute` names."""
    return resolve_name(target)


@cache
def find_extensions(group: str) -> tuple[Extension, ...]:
    """Return the extensions of all installed packages, in the order of their names."""
    from importlib.metadata import entry_points  # only commands that list engines or audits need it

    entries = [(entry, entry.dist) for entry in entry_points(group=group)]
    extensions = [
        Extension(group, entry.name, entry.value, distribution.name, distribution.version)
        for entry, distribution in entries
        if distribution is not None
    ]
    return tuple(sorted(extensions, key=lambda candidate: (candidate.name, candidate.package)))


def find_extension(group: str, name: str) -> Extension:
    """Return the extension with a name.

    Raises:
        SetupError: If no package declares it, or multiple packages do.
    """
    namesakes = [candidate for candidate in find_extensions(group) if candidate.name == name]
    if len(namesakes) == 1:
        return namesakes[0]
    if not namesakes:
        raise SetupError(f"unknown {_WHAT[group]} {name!r}", "install the package that declares it")
    packages = [namesake.package for namesake in namesakes]
    raise SetupError(
        f"{_WHAT[group]} {name}: declared by the packages {' and '.join(packages)}", f"uninstall {packages[-1]}"
    )


def load_extensions(
    group: str, base: type[Any], built_in: Collection[str], shared_options: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, SetupError]]:
    """Return the usable extensions of all packages, and why the others are refused, both by name.

    Args:
        base: Class of which an extension is a subclass, with a `name` and a pydantic model `options`.
        built_in: Names that no extension may have.
        shared_options: Options of the harness that an extension may have. The names of other options begin with the
            name of the extension.
    """
    usable: dict[str, Any] = {}
    faults: dict[str, SetupError] = {}
    for name in dict.fromkeys(candidate.name for candidate in find_extensions(group)):
        try:
            candidate = find_extension(group, name)
            if name in built_in:
                raise candidate.unusable(f"the harness has an {_WHAT[group]} with this name")
            usable[name] = _instance(candidate, base, shared_options)
        except SetupError as error:
            faults[name] = error
    return usable, faults


def _instance(extension: Extension, base: type[Any], shared_options: Collection[str]) -> Any:
    declared = extension.load()
    if not (isinstance(declared, type) and issubclass(declared, base)):
        raise extension.unusable(f"not a subclass of {base.__module__}.{base.__name__}")
    try:
        instance = declared()
        name, options = instance.name, instance.options.model_fields.keys() - shared_options
    except (AttributeError, TypeError) as error:
        raise extension.unusable(f"incomplete: {error}") from error
    if name != extension.name:
        raise extension.unusable(f"the class has the name {name}")
    prefix = name.lower().replace("-", "_") + "_"
    if foreign := sorted(option for option in options if not option.startswith(prefix)):
        raise extension.unusable(f"the name of the option {foreign[0]} must begin with {prefix}")
    return instance
