"""The options of the audit command: the audit, its own options, and existing runs."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo

from compliance.audits.discovery import AUDIT_FAULTS, AUDITS, find_audit
from compliance.audits.options import AuditOptions
from runs.errors import InputError
from runs.files.yaml_keys import line_of_key, with_underscores
from runs.harness import PROGRAM
from runs.mistakes import Mistakes
from runs.what_is import what_is
from scenarios.checked_options import check_options
from scenarios.launch.run_config import check_config, merged, split_config
from sut.engines import KINDS

# Options of `run` that an audit sets itself.
NOT_FOR_AUDITS = frozenset({"accuracy", "audit_conf", "label"})


@cache
def all_options() -> type[AuditOptions]:
    """Return the options of all audits, for the command line. The help of each option names its audits."""
    audits: dict[str, dict[str, list[str]]] = {}  # option → help → audits
    fields: dict[str, FieldInfo] = {}
    for test in AUDITS.values():
        for name, field in test.options.own().items():
            fields.setdefault(name, field)
            audits.setdefault(name, {}).setdefault(field.description or "", []).append(test.name)
    for name, field in fields.items():
        texts = [f"{', '.join(tests)}: {text}" for text, tests in audits[name].items()]
        fields[name] = FieldInfo.merge_field_infos(field, description=" ".join(texts))
    options: dict[str, Any] = {name: (field.annotation, field) for name, field in fields.items()}
    names = FieldInfo.merge_field_infos(
        AuditOptions.model_fields["test"], description=f"Name of the audit: {', '.join(AUDITS)}."
    )
    return create_model("AllOptions", __base__=AuditOptions, __module__=__name__, test=(str, names), **options)


def audit_options(values: Mapping[str, Any], campaign: Path | None = None) -> AuditOptions:
    """Validate the options of the audit that `test` names.

    Args:
        values: Options; keys from a file carry their line number.
        campaign: The campaign file with the options under `audits`; None for the `audit` command.

    Raises:
        InputError: If the audit or options are unknown, or values are not allowed; the message has all mistakes.
    """
    values_by_name, prefix = with_underscores(dict(values)), f"{campaign}: audits: " if campaign else ""
    name = values_by_name.get("test")
    if name is None:
        raise InputError(f"{prefix}test: missing" if prefix else "--test: missing", f"choose from {', '.join(AUDITS)}")
    if campaign and name not in AUDITS and name not in AUDIT_FAULTS:
        raise InputError(f"{prefix}{name}: unknown audit", f"choose from {', '.join(AUDITS)}")
    schema: type[AuditOptions] = find_audit(str(name)).options
    mistakes = Mistakes("audit")
    for key in sorted(all_options().model_fields.keys() & values_by_name.keys() - schema.model_fields.keys()):
        place = line_of_key(values_by_name, key)
        spelled = [name if place else "--" + name.replace("_", "-") for name in (key, *schema.own())]
        value = values_by_name.pop(key)
        named = f"{place}: {key}: {value}" if place else f"{spelled[0]} {value}"
        description = f"{name} has {', '.join(spelled[1:])}" if spelled[1:] else f"{name} has no options"
        mistakes.add(f"{named}: not an option of {name}", f"remove {spelled[0]}; {description}")
    fix = f"see `{PROGRAM} audit --help`"
    return mistakes.accept(check_options(mistakes, schema, values_by_name, fix, campaign))


def load_audit(
    file: Path | None, own_values: dict[str, Any], runs: dict[str, Any]
) -> tuple[AuditOptions, dict[str, Any]]:
    """Merge the command line and a YAML file; return the audit's options and the values for its runs.

    Args:
        file: YAML file with keys of `run`, and the audit's keys under `audit`.
        own: Options of the audit on the command line.
        runs: Options of `run` on the command line.

    Raises:
        InputError: If keys are unknown, values are not allowed, or options of new and existing runs are mixed; the
            message has all mistakes.
    """
    requested, from_file = split_config(file, "audit", own_values, "{test: NAME}")
    mistakes = Mistakes("audit")
    options = mistakes.attempt(audit_options, requested)
    runs = merged(from_file, runs)
    for name in sorted(NOT_FOR_AUDITS & runs.keys()):
        mistakes.add(f"{name}: not supported, because an audit plans its runs", "remove this option")
    if options is not None and (options.ref or options.run):
        mistakes.attempt(_check_existing, options, runs)
    else:
        check_config(mistakes, runs)
    options = mistakes.accept(options)
    kind = KINDS.get(str(runs.get("engine")))
    if kind is not None and find_audit(options.test).keeps_engine:
        runs = {**kind.audit_pace, **runs}
    return options, runs


def _check_existing(options: AuditOptions, runs: dict[str, Any]) -> None:
    """Refuse --ref and --run if the audit does not support them, or options of new runs are given too."""
    directories = {name: path for name in ("ref", "run") if (path := getattr(options, name)) is not None}
    if find_audit(options.test).existing is None:
        place, named = what_is(next(iter(directories.values()))), " and ".join(f"--{name}" for name in directories)
        supported = ", ".join(name for name, test in AUDITS.items() if test.existing is not None)
        raise InputError(
            f"{named}: {options.test} checks its own runs only; {place.path} {place.text}",
            f"remove {named} and give --scenario, or give a --test that checks existing runs: {supported}"
            + (f"; or {place.fix}" if place.fix else ""),
        )
    if len(directories) == 1:
        raise InputError(
            f"--{next(iter(directories))}: {options.test} requires both --ref and --run for existing runs",
            "give --ref and --run, or remove them and give --scenario",
        )
    if idle := sorted(runs.keys() - {"output_log_dir", "scenario"}):
        named = ", ".join("--" + name.replace("_", "-") for name in idle)
        text = f"{named}: no effect with --ref and --run, which check existing runs"
        raise InputError(text, f"remove {named}")
