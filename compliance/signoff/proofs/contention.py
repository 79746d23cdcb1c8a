"""B-4 on CPU time: did others use the cores while a leg's clock ran, and more so on one side of a comparison?

A result's times are what they are, so contention is no FAIL; a record that cannot be the leg's own is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from compliance.finding import Finding, fail, note, warn
from compliance.signoff.conditions import conditions_of
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import (
    FOREIGN_DIFFERENCE,
    FOREIGN_SHARE,
    LEAST_WINDOW_S,
    ROUNDED_S,
    WINDOW_SLACK_S,
    WINDOW_SLACK_SHARE,
)
from runs.errors import InputError
from runs.record.manifest import Manifest
from runs.record.observed import Contention, contention_of
from runs.wording import counted


@dataclass(frozen=True)
class _Side:
    """Repeats of one configuration, and what others used of the cores meanwhile, as a share of their time."""

    legs: list[Evidence]
    shares: list[float]

    @property
    def name(self) -> str:
        return str(self.legs[0].run.root) + (f" and {len(self.legs) - 1} more" if len(self.legs) > 1 else "")


def contention(legs: Sequence[Evidence]) -> Iterator[Finding]:
    """Judge what the legs' records say of foreign CPU time.

    Legs of one configuration are judged by the share itself. Where there are several configurations of one scenario,
    as in a patch, it is the difference between them that counts: what slows all alike favours none. No time of an
    accuracy leg counts, so of those it is only told.
    """
    known: list[tuple[Evidence, float]] = []
    unknown: list[tuple[Evidence, str]] = []
    for evidence in legs:
        if evidence.manifest is None:
            continue
        try:
            found = contention_of(evidence.manifest.observed)
        except InputError as error:
            yield fail("P-1/null_metric", error.message, evidence.run.manifest)
            continue
        if isinstance(found, str):
            unknown.append((evidence, found))
        elif found.window_s < LEAST_WINDOW_S:
            unknown.append((evidence, f"a window of {found.window_s:.2f} s is too short to tell"))
        elif wrong := _contradiction(evidence, found):
            yield wrong
        else:
            yield _told(evidence, found)
            if evidence.is_performance:
                known.append((evidence, found.foreign_share))
    if unknown:
        first, why = unknown[0]
        text = f"foreign CPU time is not recorded for {counted(len(unknown), 'leg')}, first {first.run.root}: {why}"
        yield note("B-4/contention_not_recorded", text, first.run.manifest, legs=len(unknown))
    for sides in _sides_by_scenario(known):
        yield from _alone(sides[0]) if len(sides) == 1 else _compared(sides)


def foreign_share(manifest: Manifest) -> float:
    """What others used of the cores while a leg's clock ran, 0 to 1; 0 where nothing sound is on record."""
    try:
        found = contention_of(manifest.observed)
    except InputError:
        return 0.0
    return 0.0 if isinstance(found, str) else min(1.0, found.foreign_share)


def _contradiction(evidence: Evidence, found: Contention) -> Finding | None:
    """Why this cannot be the record of the leg; None if it can."""
    manifest, table, where = evidence.manifest, evidence.requests, evidence.run.manifest
    rest_s = max(0.0, found.busy_cpu_s - found.own_cpu_s)
    if abs(rest_s - found.foreign_cpu_s) > ROUNDED_S:
        text = f"foreign CPU time is {found.foreign_cpu_s:g} s, by the times beside it {rest_s:g} s"
        return fail("P-3/reported_vs_raw_mismatch", text, where, said_s=found.foreign_cpu_s, derived_s=rest_s)
    if manifest is None or table is None or not len(table):
        return None
    least_s = (int(table.complete_ns.max()) - int(table.issue_ns.min())) / 1e9
    most_s = ((manifest.end_time_ns or 0) - (manifest.start_time_ns or 0)) / 1e9
    slack_s = WINDOW_SLACK_S + WINDOW_SLACK_SHARE * found.window_s
    if least_s - slack_s <= found.window_s <= most_s + slack_s:
        return None
    text = f"CPU times over {found.window_s:.2f} s are of another leg: the requests took {least_s:.2f} s, this leg"
    return fail("P-5/foreign_file", f"{text} {most_s:.2f} s", where, window_s=found.window_s)


def _told(evidence: Evidence, found: Contention) -> Finding:
    text = f"others used {found.foreign_share:.1%} of the {found.usable_cores} usable cores, the leg"
    text += f" {found.own_cpu_s / found.window_s / found.usable_cores:.1%}"
    numbers = {**found.model_dump(), "foreign_share": found.foreign_share}
    return note("B-4/foreign_cpu", text, evidence.run.manifest, **numbers)


def _sides_by_scenario(known: list[tuple[Evidence, float]]) -> list[list[_Side]]:
    """The configurations of each benchmark's scenarios, each with its repeats."""
    groups: dict[tuple[str, str], dict[str, _Side]] = {}
    for evidence, share in known:
        sides = groups.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), {})
        side = sides.setdefault(repr(sorted(conditions_of(evidence).items())), _Side([], []))
        side.legs.append(evidence)
        side.shares.append(share)
    return [list(sides.values()) for sides in groups.values()]


def _alone(side: _Side) -> Iterator[Finding]:
    for evidence, share in zip(side.legs, side.shares, strict=True):
        if share > FOREIGN_SHARE:
            text = f"others used {share:.1%} of the usable cores while LoadGen ran, more than {FOREIGN_SHARE:.0%}"
            yield warn(
                "B-4/contended",
                f"{text}: compare these times with nothing",
                evidence.run.manifest,
                foreign_share=share,
                limit_share=FOREIGN_SHARE,
            )


def _compared(sides: list[_Side]) -> Iterator[Finding]:
    quiet, busy = (choose(sides, key=lambda side: mean(side.shares)) for choose in (min, max))
    shares = [mean(side.shares) for side in (quiet, busy)]
    if shares[1] - shares[0] > FOREIGN_DIFFERENCE:
        text = (
            f"others used {shares[1]:.1%} of the usable cores beside {busy.name}, {shares[0]:.1%} beside {quiet.name}"
        )
        yield warn(
            "B-4/contended",
            f"{text}: more than {FOREIGN_DIFFERENCE:.0%} apart, so what differs is not the change's doing alone",
            busy.legs[0].run.manifest,
            foreign_shares=shares,
            limit_difference=FOREIGN_DIFFERENCE,
        )
