"""Whether the replicas of a leg are copies of one another."""

from typing import Any

from sut.replicas.messages import Ready

# What may differ from process to process: the share of the machine that each was given, what only one was shown.
_OF_ITS_OWN = ("environment", "probes")


def disagreement(first: Ready, other: Ready) -> str | None:
    """The first thing in which two replicas differ, in words; None for two of a kind."""
    for what, one, another in _compared(first, other):
        if one != another:
            if not (isinstance(one, dict) and isinstance(another, dict)):
                return f"{what}: {another!r} instead of {one!r}"
            name = next(key for key in {**one, **another} if one.get(key) != another.get(key))
            return f"{what}: {name} is {another.get(name)!r} instead of {one.get(name)!r}"
    return None


def _compared(first: Ready, other: Ready) -> list[tuple[str, Any, Any]]:
    return [
        ("weights", first.about.weights_sha256, other.about.weights_sha256),
        ("software", first.about.software, other.about.software),
        ("engine", first.report.name, other.report.name),
        ("versions", first.report.versions, other.report.versions),
        ("options in force", first.report.in_force, other.report.in_force),
        ("vocabulary", first.report.vocab_size, other.report.vocab_size),
        ("longest sequence", first.report.max_model_len, other.report.max_model_len),
        ("configuration", _shared(first.report.configuration), _shared(other.report.configuration)),
    ]


def _shared(configuration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name not in _OF_ITS_OWN}
