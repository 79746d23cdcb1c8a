"""What a user may ask of an audit: which test, how many samples, or which existing runs."""

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from compliance.audits.summaries import SUMMARIES
from runs.errors import InputError
from runs.fields import option_field
from runs.what_is import what_is
from runs.yaml_file import place_of
from scenarios.leg.config import RunConfig, merged, split_config

# An audit plans these itself.
NOT_FOR_AUDITS = frozenset({"accuracy", "audit_conf"})

_field = partial(option_field, group="audit")


class AuditOptions(BaseModel):
    """One audit as asked for. Unknown keys are refused; a test refuses the options that it does not look at."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    test: str = _field(..., f"Which audit: {', '.join(SUMMARIES)}.", metavar="NAME")
    samples: int | None = _field(
        None,
        "Unique samples of the first reference run, which output_caching raises until a run takes long enough; or "
        "responses of the performance run. Default: depends on the test.",
        metavar="N",
    )
    audit_samples: int | None = _field(
        None, "Queries of the repeating runs. Default: as many as the reference run has.", metavar="N"
    )
    sample_index: str | None = _field(
        None,
        "The repeated sample: positions among LoadGen's loaded samples, comma-separated (the worst decides), or "
        "auto: the sample nearest to the reference leg's mean lengths (default).",
        metavar="I[,J...]|auto",
    )
    threshold: float | None = _field(
        None, "The test's tolerance, between 0 and 1. Default: depends on the test.", metavar="X"
    )
    ref: Path | None = _field(
        None,
        "Judge existing runs instead of running legs: the reference run, or the accuracy leg (with --run).",
        metavar="DIR",
    )
    run: Path | None = _field(None, "The run to compare with --ref.", metavar="DIR")

    @field_validator("sample_index", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """A YAML file may have a number or a list here."""
        if isinstance(value, list):
            return ",".join(map(str, value))
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def knobs(self) -> dict[str, Any]:
        """The fields of an `AuditRequest` that were asked for; no places = auto.

        Raises:
            InputError: the places are not whole numbers.
        """
        words = [] if self.sample_index in (None, "auto") else str(self.sample_index).split(",")
        try:
            places = tuple(int(word) for word in words)
        except ValueError as error:
            raise InputError(
                f"--sample-index {self.sample_index}: not whole numbers",
                "write --sample-index 3, --sample-index 3,17 or --sample-index auto",
            ) from error
        return {
            "samples": self.samples,
            "audit_samples": self.audit_samples,
            "sample_index": places,
            "threshold": self.threshold,
        }


def load_audit(file: Path | None, own: dict[str, Any], legs: dict[str, Any]) -> tuple[AuditOptions, dict[str, Any]]:
    """The command line above a YAML file: the audit's options, and the values that are meant for its legs.

    Args:
        file: keys of `run`, and the audit's under `audit`.
        own: options of the audit that were given.
        legs: options of `run` that were given.

    Raises:
        InputError: a key that there is not, a value that is not allowed, or both legs and existing runs asked for.
    """
    options, from_file = split_config(file, "audit", own, AuditOptions, "{test: NAME}")
    legs = merged(from_file, legs)
    if refused := sorted(NOT_FOR_AUDITS & legs.keys()):
        raise InputError(f"{refused[0]}: an audit plans its own legs", "leave it out")
    if unknown := sorted(legs.keys() - RunConfig.model_fields.keys()):
        place = place_of(legs, unknown[0])
        what = f"{place}: {unknown[0]}: there is no such key" if place else f"--{unknown[0]}: there is no such option"
        raise InputError(what, "see `main.py audit --help`")
    _check_existing(options, legs)
    return options, legs


def _check_existing(options: AuditOptions, legs: dict[str, Any]) -> None:
    """Refuse --ref and --run where the test, or an option of its own runs, rules them out."""
    given = {name: path for name in ("ref", "run") if (path := getattr(options, name)) is not None}
    if not given:
        return
    from compliance.audits.audit_registry import AUDITS, find_audit

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
    if idle := sorted(legs.keys() - {"output_log_dir", "scenario"}):
        named = ", ".join("--" + name.replace("_", "-") for name in idle)
        text = f"--ref and --run judge existing runs; options of a run have no effect then: {named}"
        raise InputError(text, f"leave out {named}")
