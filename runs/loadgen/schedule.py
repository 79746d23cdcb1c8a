"""LoadGen's random choices, replayed from the seeds.

The three seeds and the settings decide which samples are loaded, in which order they are issued and, in the Server
scenario, when. LoadGen draws from `std::mt19937`; `std::shuffle`, `std::uniform_int_distribution` and
`std::exponential_distribution` are those of libstdc++ (GCC 11 and later), with which the LoadGen wheels are built.

All results of a round have the same seeds, so orders and schedules are cached.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_DRAW_VALUES = 1 << 32  # mt19937 returns 32 bits per draw
_BATCH = 4096
# Number of cached orders and shuffled libraries: a round has about 150 orders, which take at most 400 MB.
_KEPT_ORDERS, _LONGEST_KEPT_ORDER = 128, 1 << 19
_KEPT_LIBRARIES, _LARGEST_KEPT_LIBRARY = 32, 1 << 20
# Maximum length of cached schedules, 8 MB each; a Server run at 1,000 queries/s has 600,000 queries.
_KEPT_GAPS = 1 << 20


class _Draws:
    """An endless stream of raw 32-bit draws of `std::mt19937(seed)`."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.MT19937()
        # std::mt19937 uses its seed modulo 2**32, and seeds like NumPy's legacy method.
        self._generator._legacy_seeding(seed & 0xFFFFFFFF)
        self._stream = self._batches()

    def _batches(self) -> Iterator[int]:
        while True:
            yield from self._generator.random_raw(_BATCH).tolist()

    def below(self, bound: int) -> int:
        """Draw from `std::uniform_int_distribution(0, bound - 1)`: the high half of draw × bound, with rejection."""
        product = next(self._stream) * bound
        if product % _DRAW_VALUES < bound:
            rejected_below = _DRAW_VALUES % bound
            while product % _DRAW_VALUES < rejected_below:
                product = next(self._stream) * bound
        return product // _DRAW_VALUES

    def shuffle(self, items: list[int]) -> None:
        """Shuffle like `std::shuffle`, with two swap positions per draw while both fit into 32 bits."""
        count = len(items)
        if count < 2:
            return
        if (_DRAW_VALUES - 1) // count < count:
            for place in range(1, count):
                partner = self.below(place + 1)
                items[place], items[partner] = items[partner], items[place]
            return
        if count % 2 == 0:
            partner = self.below(2)
            items[1], items[partner] = items[partner], items[1]
        for place in range(1 + (count % 2 == 0), count, 2):
            after = place + 1
            partner, next_other = divmod(self.below(after * (place + 2)), place + 2)
            items[place], items[partner] = items[partner], items[place]
            items[after], items[next_other] = items[next_other], items[after]


@dataclass(frozen=True)
class OrderSettings:
    """The effective settings that decide the order of issue."""

    scenario: str  # LoadGen's scenario: Offline, Server, SingleStream
    accuracy: bool
    sample_index_rng_seed: int
    min_query_count: int  # effective; 1 in Offline
    sample_concatenate_permutation: bool
    performance_issue_unique: bool = False
    performance_issue_same: bool = False
    performance_issue_same_index: int = 0


def shuffled_library(qsl_rng_seed: int, sample_count: int) -> NDArray[np.int32]:
    """Return the sample indices in the order in which LoadGen loads them, set by set; read-only.

    Args:
        qsl_rng_seed: effective seed.
        sample_count: number of samples to choose from, at most the library's size: the accuracy sample count in an
            accuracy run, otherwise the performance sample count.
    """
    return (_shuffled if sample_count <= _LARGEST_KEPT_LIBRARY else _shuffled.__wrapped__)(qsl_rng_seed, sample_count)


@lru_cache(maxsize=_KEPT_LIBRARIES)
def _shuffled(seed: int, count: int) -> NDArray[np.int32]:
    indices = list(range(count))
    _Draws(seed).shuffle(indices)
    shuffled = np.array(indices, dtype=np.int32)
    shuffled.flags.writeable = False
    return shuffled


def issue_order(loaded: NDArray[np.int32], count: int, settings: OrderSettings) -> NDArray[np.int32]:
    """Return the sample indices in the order in which LoadGen issues them.

    Args:
        loaded: loaded set in LoadGen's order, or a row for each of multiple sets.
        count: number of samples issued from a set (Offline: `generated_samples_per_query`; otherwise of queries).

    Returns:
        `count` sample indices of each set.
    """
    if settings.accuracy or settings.performance_issue_unique:
        settings = replace(settings, min_query_count=1)  # no effect here, so that all such runs share one cached order
    if settings.scenario != "Offline":
        settings = replace(settings, scenario="Server")  # the other scenarios issue in the same order
    places = _places if count <= _LONGEST_KEPT_ORDER else _places.__wrapped__
    order: NDArray[np.int32] = loaded[..., places(loaded.shape[-1], count, settings)]
    return order


@lru_cache(maxsize=_KEPT_ORDERS)
def _places(size: int, count: int, settings: OrderSettings) -> NDArray[np.int32]:
    """Return the order of issue as positions in a loaded set of `size` samples; read-only."""
    places = np.asarray(_drawn_places(size, count, settings), dtype=np.int32)
    places.flags.writeable = False
    return places


def _drawn_places(size: int, count: int, settings: OrderSettings) -> list[int] | NDArray[np.int64]:
    offline, permute = settings.scenario == "Offline", settings.sample_concatenate_permutation
    if settings.performance_issue_same:
        return [settings.performance_issue_same_index] * count
    if offline and not permute:
        return np.resize(np.arange(size), count)
    draws = _Draws(settings.sample_index_rng_seed)
    if settings.accuracy:
        # LoadGen draws this order even if it does not use it.
        draws.shuffle(accuracy_order := list(range(size)))
        if not (permute or settings.performance_issue_unique):
            return accuracy_order[:count]
    unique_order = list(range(size))
    draws.shuffle(unique_order)
    samples_per_query = count if offline else 1
    queries = settings.min_query_count
    if settings.accuracy or settings.performance_issue_unique:
        queries = size // samples_per_query
    equal_order: list[int] = []
    permutation = list(range(size))
    for _ in range(0, queries, size):
        draws.shuffle(permutation)
        equal_order += permutation

    if offline:
        return _offline_places(size, count, draws)
    if settings.performance_issue_unique:
        return unique_order[:count]
    if permute:
        return np.resize(np.array(equal_order, dtype=np.int64), count)  # repeated until `count`
    return np.fromiter((draws.below(size) for _ in range(count)), np.int64, count)


def _offline_places(size: int, count: int, draws: _Draws) -> list[int]:
    """Return the positions of the loaded set repeatedly, shuffled anew each time."""
    order: list[int] = []
    while len(order) + size <= count:
        repeat = list(range(size))
        draws.shuffle(repeat)
        order += repeat
    return order + list(range(count - len(order)))


def poisson_offsets_ns(schedule_rng_seed: int, target_qps: float, count: int) -> NDArray[np.int64]:
    """Return the times at which the Server scenario schedules its queries.

    Args:
        schedule_rng_seed: effective seed.
        target_qps: effective target, exactly as in LoadGen's settings.

    Returns:
        Offsets from the start of the test, in ns; the first query is scheduled at 0.
    """
    if count <= 0:
        return np.empty(0, np.int64)
    # Longer schedules begin with the same gaps. Powers of two limit the number of computed lengths.
    length = 1 << (count - 1).bit_length()
    unit_gaps = (_unit_gaps if length <= _KEPT_GAPS else _unit_gaps.__wrapped__)(schedule_rng_seed, length)
    gaps_ns = unit_gaps[: count - 1] / target_qps
    gaps_ns *= 1e9
    offsets_ns = np.zeros(count, np.int64)
    offsets_ns[1:] = gaps_ns  # truncated to whole ns, like LoadGen
    return np.cumsum(offsets_ns, out=offsets_ns)


@lru_cache(maxsize=8)
def _unit_gaps(schedule_rng_seed: int, count: int) -> NDArray[np.float64]:
    """Return the first gaps of a schedule with one query per second, in s; read-only."""
    generator = np.random.MT19937()
    generator._legacy_seeding(schedule_rng_seed & 0xFFFFFFFF)
    gaps = np.empty(count, np.float64)
    for begin in range(0, count, _KEPT_GAPS):  # in parts, because the longest schedules would not fit into memory
        part = gaps[begin : begin + _KEPT_GAPS]
        draws = generator.random_raw(2 * len(part)).astype(np.float64)
        # A double in [0, 1) takes two draws; the first draw is the low half.
        uniform = (draws[0::2] + draws[1::2] * float(_DRAW_VALUES)) / float(_DRAW_VALUES) ** 2
        uniform = np.minimum(uniform, math.nextafter(1.0, 0.0))
        # The C library's logarithm is used, because NumPy's differs in the last bit, which may change a nanosecond.
        part[:] = -np.fromiter(map(math.log, (1.0 - uniform).tolist()), np.float64, len(part))
    gaps.flags.writeable = False
    return gaps
