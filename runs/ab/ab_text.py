"""The lines of a comparison: its table and its sentences."""

import math
from collections.abc import Iterator, Sequence

from runs.ab.ab_record import AbChange, AbRecord
from runs.ab.changes import MIN_TAIL_QUERIES, tails_of
from runs.wording import duration, four_digits, milliseconds, printable

_NAME, _VALUE = 14, 10
_COLUMN = 34  # width of a system in the first line


def header_lines(record: AbRecord) -> Iterator[str]:
    """Yield the lines with the systems."""
    if len(record.systems) == 2 and all(len(system.target) <= _COLUMN for system in record.systems):
        yield "   ".join(
            printable(f"{system.name} {system.target}").ljust(_COLUMN) for system in record.systems
        ).rstrip()
        return
    yield from (printable(f"{system.name} {system.target}") for system in record.systems)


def load_line(record: AbRecord, load: int) -> str:
    """Return the load, the number of blocks and the time."""
    blocks = [block for block in record.blocks if block.load == load]
    seconds = sum(block.seconds for block in blocks)
    if record.method == "interleaved":
        what = f"{record.queries(load, 0):,} pairs of queries in {len(blocks)} block{'s' if len(blocks) != 1 else ''}"
    else:
        pairs = len({block.pair for block in blocks})
        long_s = max((block.run.duration_s or 0.0 for block in blocks), default=0.0)
        what = f"{pairs} pair{'s' if pairs != 1 else ''} of up to {long_s:.0f} s"
    each = " for each system" if record.method == "interleaved" else ""
    return f"at {record.loads[load]}{each}, {what}, {_time(seconds)}"


def table(record: AbRecord, load: int, system: int) -> Iterator[str]:
    """Yield the lines of the changes of one system at one load."""
    names = record.systems[0].name, record.systems[system].name
    yield (f"{'':<{_NAME}}{names[0]:>{_VALUE}}{names[1]:>{_VALUE}}{'':<5}{'change':>8}   {'95% interval':<20} verdict")
    for change in record.changes_of(load, system):
        yield _row(change, record.precision)


def _row(change: AbChange, precision: float) -> str:
    values = "".join(f"{_level(value, change.unit):>{_VALUE}}" for value in (change.base, change.value))
    return (
        f"{change.quantity:<{_NAME}}{values} {change.unit:<4}{change.change:>+8.1%}   {interval_text(change):<20} "
        f"{verdict_text(change, precision)}"
    )


def interval_text(change: AbChange) -> str:
    """Return the interval of a change in words. Only a percentile has changes without values of pairs."""
    if change.low is not None and change.high is not None:
        return f"{change.low:+.1%} to {change.high:+.1%}"
    if change.low is not None:
        return f"{change.low:+.1%} or more"
    if change.high is not None:
        return f"{change.high:+.1%} or less"
    return "too few pairs" if change.values else "unbounded"


def _level(value: float | None, unit: str) -> str:
    return "-" if value is None else milliseconds(value) if unit == "ms" else four_digits(value)


def limits_line(record: AbRecord, load: int) -> str:
    """Return the share of the queries of each system within the limits; empty without limits."""
    shares = {system.name: record.share_within(load, place) for place, system in enumerate(record.systems)}
    texts = [f"{share:.1%} of the queries of {name}" for name, share in shares.items() if share is not None]
    return f"within {record.limits}: {', '.join(texts)}" if texts else ""


def verdict_text(change: AbChange, precision: float) -> str:
    """Return the verdict in words."""
    precision = change.precision or precision
    if change.verdict == "equal":
        return f"equal within {precision:.3g}" if precision < 0.001 else f"equal within {precision * 100:.3g}%"
    if change.verdict == "undecided" and change.needed_s is not None:
        return f"undecided (needs about {_time(change.needed_s)})"
    return change.verdict


def sentences(record: AbRecord) -> list[str]:
    """Return one sentence for each system and load, or why there is none."""
    if record.withheld:
        return [f"no statement: {'; '.join(record.withheld)}"]
    texts: list[str] = []
    for load in range(len(record.loads)):
        at = f" at {record.loads[load]}" if len(record.loads) > 1 else ""
        full = record.saturated_at(load)
        for system in range(1, len(record.systems)):
            changes = record.changes_of(load, system)
            name, base = record.systems[system].name, record.systems[0].name
            if 0 in full or system in full:
                texts.append(_saturated(name, base, str(record.loads[load]), 0 in full, system in full))
            elif changes:
                queries = min(record.queries(load, place) for place in (0, system))
                texts.append(f"{_sentence(name, changes, record.precision, queries)}{at}.")
                texts += _drifts(name, changes)
    return texts


def _saturated(name: str, base: str, load: str, is_base: bool, is_other: bool) -> str:
    if is_base and is_other:
        return f"{base} and {name} are saturated at {load}: latencies depend on the duration. Give lower --rates."
    if is_base:
        return f"{name} is faster: {base} is saturated at {load}, and {name} is not."
    return f"{name} is slower: saturated at {load}."


_BETTER = {"ms": ("a shorter", "a longer"), "": ("more", "fewer")}


def _sentence(name: str, changes: Sequence[AbChange], precision: float, queries: int) -> str:
    """Return what changed, what did not, and what is unknown; `queries` is the number of queries of a system."""
    different = [change for change in changes if change.verdict in ("faster", "slower")]
    main = [change for change in changes if change.is_main]
    equal = [change for change in main if change.verdict == "equal"]
    undecided = [change for change in main if change.verdict == "undecided"]
    parts = []
    if shown := [change for change in different if change.is_main] + _tails(different, main) or different:
        parts.append(f"{name} has " + " and ".join(_difference(change) for change in shown))
    within = f"equal within {precision * 100:.3g}%"
    if equal and len(equal) == len(main):
        parts.append(f"all means are {within}" if parts else f"{name}: all means are {within}")
    elif equal:
        rest = "the other means are" if different and not undecided else _names(equal)
        parts.append(f"{rest} {within}")
    if undecided:
        parts.append(f"{_names(undecided)} undecided")
    return "; ".join([*parts, *_unseen(changes, queries)])


def _unseen(changes: Sequence[AbChange], queries: int) -> Iterator[str]:
    """Yield which changes of the tails could not be found."""
    tails = tails_of(changes)
    unseen = {name: tail for name, tail in tails.items() if tail is None or tail.verdict not in ("faster", "slower")}
    unknown = [name for name, tail in unseen.items() if tail is None or tail.low is None or tail.high is None]
    largest = {
        name: max(map(abs, _interval(tail)))
        for name, tail in unseen.items()
        if tail is not None and name not in unknown
    }
    if largest:
        bounds = " or of ".join(f"{name} above {bound:.0%}" for name, bound in largest.items())
        yield f"a change of {bounds} would have been found"
    if unknown:
        reason = "slow queries came in bursts"
        if queries < MIN_TAIL_QUERIES:
            reason = f"about {MIN_TAIL_QUERIES:,} queries of each system are needed"
        yield f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} unknown: {reason}"


def _tails(different: Sequence[AbChange], main: Sequence[AbChange]) -> list[AbChange]:
    """Return the highest percentile of each latency whose interval is disjoint from that of the mean."""
    means = {change.quantity.split()[0]: _interval(change) for change in main}
    tails: dict[str, AbChange] = {}
    for change in different:
        latency, (low, high) = change.quantity.split()[0], _interval(change)
        if not change.is_main and latency in means and (low > means[latency][1] or high < means[latency][0]):
            tails[latency] = change
    return [*tails.values()]


def _interval(change: AbChange) -> tuple[float, float]:
    return (-math.inf if change.low is None else change.low), (math.inf if change.high is None else change.high)


def _names(changes: Sequence[AbChange]) -> str:
    *names, last = [change.quantity for change in changes]
    return f"{', '.join(names)} and {last} are" if names else f"{last} is"


def _difference(change: AbChange) -> str:
    word = _BETTER[change.unit][change.verdict == "slower"]
    return f"{word} {change.quantity.removesuffix(' mean')} ({change.change:+.1%})"


def _drifts(name: str, changes: Sequence[AbChange]) -> Iterator[str]:
    for change in changes:
        if change.drift is not None and change.is_main:
            before, after = change.drift
            yield (
                f"The change of {change.quantity} is not constant: {name} {before:+.1%} in the first half of the time, "
                f"{after:+.1%} in the second half."
            )


def closing_lines(record: AbRecord) -> Iterator[str]:
    """Yield all lines of a comparison."""
    yield from header_lines(record)
    for load in range(len(record.loads)):
        full = record.saturated_at(load)
        yield load_line(record, load)
        for system in range(1, len(record.systems)):
            if not full or (0 not in full and system not in full):
                yield from table(record, load, system)
        if line := limits_line(record, load):
            yield line
    yield from record.sentences
    yield from (f"note: {note}" for note in record.notes)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if 0 < minutes < 60 else duration(seconds)
