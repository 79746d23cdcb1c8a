"""B-4 on CPU time: did others use the cores while a leg's clock ran, and more so on one side of a comparison?

A result's times are what they are, so contention is no FAIL.
"""

from collections.abc import Iterator, Sequence
from statistics import mean

from compliance.finding import Finding, note, warn
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.leg_conditions import conditions_of
from compliance.signoff.limits import FOREIGN_DIFFERENCE, LEAST_WINDOW_S
from runs.record.observed import FOREIGN_SHARE, Contention, NotRecorded
from runs.wording import counted

Repeats = list[tuple[Evidence, float]]  # of one configuration, with the share of the cores that others used meanwhile


@checks(
    "B-4",
    ("contended", "error", "nothing else used the machine"),
    ("contention_not_recorded", "note", "foreign CPU time is on record"),
)
def contention(legs: Sequence[Evidence]) -> Iterator[Finding]:
    """Judge what the legs' records say of foreign CPU time.

    Legs of one configuration are judged by the share itself. Where there are several configurations of one scenario,
    as in a patch, it is the difference between them that counts: what slows all alike favours none. No time of an
    accuracy leg counts, so of those it is only told.
    """
    known: dict[tuple[str, str], dict[str, Repeats]] = {}  # by benchmark and scenario, by conditions
    unknown: list[tuple[Evidence, str]] = []
    for evidence in legs:
        if evidence.manifest is None:
            continue
        found = evidence.manifest.observed.contention
        why = found.not_recorded if isinstance(found, NotRecorded) else "the leg did not finish"
        if not isinstance(found, Contention) and evidence.is_performance and evidence.manifest.observed.host.boot_id:
            text = f"foreign CPU time is not recorded, on a system that tells it: {why}"  # as it tells the boot's id
            yield warn("B-4/contention_not_recorded", text, evidence.run.manifest)
        elif not isinstance(found, Contention):
            unknown.append((evidence, why))
        elif found.window_s < LEAST_WINDOW_S:
            unknown.append((evidence, f"a window of {found.window_s:.2f} s is too short to tell"))
        else:
            yield _told(evidence, found)
            if evidence.is_performance:
                sides = known.setdefault((evidence.benchmark.loadgen_key, evidence.scenario), {})
                conditions = repr(sorted((name, str(value)) for name, value in conditions_of(evidence).items()))
                sides.setdefault(conditions, []).append((evidence, found.foreign_share))
    if unknown:
        first, why = unknown[0]
        text = f"foreign CPU time is not recorded for {counted(len(unknown), 'leg')}, first {first.run.root}: {why}"
        yield note("B-4/contention_not_recorded", text, first.run.manifest, legs=len(unknown))
    for one in known.values():
        yield from _alone(*one.values()) if len(one) == 1 else _compared([*one.values()])


@checks("B-4", ("foreign_cpu", "note", "foreign CPU time"))
def _told(evidence: Evidence, found: Contention) -> Finding:
    text = f"others used {found.foreign_share:.1%} of the {found.usable_cores} usable cores, the leg"
    text += f" {found.own_cpu_s / found.window_s / found.usable_cores:.1%}"
    numbers = {**found.model_dump(), "foreign_share": found.foreign_share}
    return note("B-4/foreign_cpu", text, evidence.run.manifest, **numbers)


def _alone(repeats: Repeats) -> Iterator[Finding]:
    for evidence, share in repeats:
        if share > FOREIGN_SHARE:
            text = f"others used {share:.1%} of the usable cores while LoadGen ran, more than {FOREIGN_SHARE:.0%}"
            text, numbers = f"{text}: compare these times with nothing", {"foreign_share": share}
            yield warn("B-4/contended", text, evidence.run.manifest, **numbers, limit_share=FOREIGN_SHARE)


def _compared(sides: list[Repeats]) -> Iterator[Finding]:
    shares = [mean(share for _, share in repeats) for repeats in sides]
    (low, quiet), (high, busy) = (choose(enumerate(shares), key=lambda one: one[1]) for choose in (min, max))
    if busy - quiet > FOREIGN_DIFFERENCE:
        roots = [sides[place][0][0].run.root for place in (low, high)]
        text = f"others used {busy:.1%} of the usable cores beside {roots[1]}, {quiet:.1%} beside {roots[0]}: more than"
        text += f" {FOREIGN_DIFFERENCE:.0%} apart, so what differs is not the change's doing alone"
        yield warn("B-4/contended", text, *roots, foreign_shares=[quiet, busy], limit_difference=FOREIGN_DIFFERENCE)
