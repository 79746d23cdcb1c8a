"""What a user may ask of an audit: which test, its own options, or existing runs."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo

from compliance.audits.discovery import AUDITS, find_audit
from compliance.audits.options import AuditOptions
from runs.errors import InputError
from runs.what_is import what_is
from runs.yaml_file import place_of, with_underscores
from scenarios.run.config import RunConfig, checked, merged, split_config

# An audit plans these itself.
NOT_FOR_AUDITS = frozenset({"accuracy", "audit_conf"})


@cache
def all_options() -> type[AuditOptions]:
    """The options of all audits, for the command line. The help of each names the audits that take it."""
    audits: dict[str, dict[str, list[str]]] = {}  # by option and help
    fields: dict[str, FieldInfo] = {}
    for test in AUDITS.values():
        for name, field in test.options.own().items():
            fields.setdefault(name, field)
            audits.setdefault(name, {}).setdefault(field.description or "", []).append(test.name)
    for name, field in fields.items():
        texts = [f"{', '.join(tests)}: {text}" for text, tests in audits[name].items()]
        fields[name] = FieldInfo.merge_field_infos(field, description=" ".join(texts))
    every: dict[str, Any] = {name: (field.annotation, field) for name, field in fields.items()}
    names = FieldInfo.merge_field_infos(
        AuditOptions.model_fields["test"], description=f"Which audit: {', '.join(AUDITS)}."
    )
    return create_model("AllOptions", __base__=AuditOptions, __module__=__name__, test=(str, names), **every)


def audit_options(values: Mapping[str, Any], campaign: Path | None = None) -> AuditOptions:
    """The options of the audit that `test` names, checked by its own model.

    Args:
        values: keys of a file know their place.
        campaign: the file whose `audits` they are from; None = of the `audit` command.

    Raises:
        InputError: there is no such audit, it has no such option, or the value is not allowed.
    """
    asked, at = with_underscores(dict(values)), f"{campaign}: audits: " if campaign else ""
    name = asked.get("test")
    if name is None:
        raise InputError(f"{at}test is missing" if at else "--test is missing", f"choose from {', '.join(AUDITS)}")
    if campaign and name not in AUDITS:
        raise InputError(f"{at}there is no {name}", f"choose from {', '.join(AUDITS)}")
    options: type[AuditOptions] = find_audit(str(name)).options
    for key in sorted(all_options().model_fields.keys() & asked.keys() - options.model_fields.keys()):
        place = place_of(asked, key)
        spelled = [one if place else "--" + one.replace("_", "-") for one in (key, *options.own())]
        named = f"{place}: {key}: {asked[key]}" if place else f"{spelled[0]} {asked[key]}"
        own = f"{name} has {', '.join(spelled[1:])}" if spelled[1:] else f"{name} has no options of its own"
        raise InputError(f"{named}: {name} has no such option", f"leave out {spelled[0]}; {own}")
    return checked(options, asked, "see `python main.py audit --help`", campaign)


def load_audit(file: Path | None, own: dict[str, Any], runs: dict[str, Any]) -> tuple[AuditOptions, dict[str, Any]]:
    """The command line above a YAML file: the audit's options, and the values that are meant for its runs.

    Args:
        file: keys of `run`, and the audit's under `audit`.
        own: options of the audit that were given.
        runs: options of `run` that were given.

    Raises:
        InputError: a key that there is not, a value that is not allowed, or both runs and existing runs asked for.
    """
    asked, from_file = split_config(file, "audit", own, "{test: NAME}")
    options = audit_options(asked)
    runs = merged(from_file, runs)
    if refused := sorted(NOT_FOR_AUDITS & runs.keys()):
        raise InputError(f"{refused[0]}: an audit plans its own runs", "leave it out")
    if unknown := sorted(runs.keys() - RunConfig.model_fields.keys()):
        place = place_of(runs, unknown[0])
        what = f"{place}: {unknown[0]}: there is no such key" if place else f"--{unknown[0]}: there is no such option"
        raise InputError(what, "see `main.py audit --help`")
    _check_existing(options, runs)
    return options, runs


def _check_existing(options: AuditOptions, runs: dict[str, Any]) -> None:
    """Refuse --ref and --run where the test, or an option of its own runs, rules them out."""
    given = {name: path for name in ("ref", "run") if (path := getattr(options, name)) is not None}
    if not given:
        return
    if find_audit(options.test).existing is None:
        place, named = what_is(next(iter(given.values()))), " and ".join(f"--{name}" for name in given)
        others = ", ".join(name for name, test in AUDITS.items() if test.existing is not None)
        raise InputError(
            f"{named}: {options.test} judges its own runs only; {place.path} {place.text}",
            f"leave out {named} and give --scenario, or give a --test that judges existing runs: {others}"
            + (f"; or {place.fix}" if place.fix else ""),
        )
    if len(given) == 1:
        raise InputError(
            f"--{next(iter(given))}: {options.test} compares two existing runs, --ref and --run",
            "give both, or neither and --scenario",
        )
    if idle := sorted(runs.keys() - {"output_log_dir", "scenario"}):
        named = ", ".join("--" + name.replace("_", "-") for name in idle)
        text = f"--ref and --run judge existing runs; options of a run have no effect then: {named}"
        raise InputError(text, f"leave out {named}")
