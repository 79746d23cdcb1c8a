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

_DRAW_VALUES = 1 << 32  # mt19937 gives 32 bits a draw
_BATCH = 4096
# Orders and shuffled libraries that are kept: a round has about 150 orders. All of them stay within 400 MB.
_KEPT_ORDERS, _LONGEST_KEPT_ORDER = 128, 1 << 19
_KEPT_LIBRARIES, _LARGEST_KEPT_LIBRARY = 32, 1 << 20
# Schedules up to this length are kept, 8 MB each; a Server run at 1,000 queries/s has 600,000.
_KEPT_GAPS = 1 << 20


class _Draws:
    """An endless stream of raw 32-bit draws of `std::mt19937(seed)`."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.MT19937()
        # std::mt19937 takes its seed modulo 2**32, and seeds as NumPy's legacy method does.
        self._generator._legacy_seeding(seed & 0xFFFFFFFF)
        self._stream = self._batches()

    def _batches(self) -> Iterator[int]:
        while True:
            yield from self._generator.random_raw(_BATCH).tolist()

    def below(self, bound: int) -> int:
        """`std::uniform_int_distribution(0, bound - 1)`: the high half of draw × bound, with rejection."""
        product = next(self._stream) * bound
        if product % _DRAW_VALUES < bound:
            rejected_below = _DRAW_VALUES % bound
            while product % _DRAW_VALUES < rejected_below:
                product = next(self._stream) * bound
        return product // _DRAW_VALUES

    def shuffle(self, items: list[int]) -> None:
        """`std::shuffle`: two swap positions per draw while both fit into 32 bits."""
        count = len(items)
        if count < 2:
            return
        if (_DRAW_VALUES - 1) // count < count:
            for place in range(1, count):
                other = self.below(place + 1)
                items[place], items[other] = items[other], items[place]
            return
        if count % 2 == 0:
            other = self.below(2)
            items[1], items[other] = items[other], items[1]
        for place in range(1 + (count % 2 == 0), count, 2):
            after = place + 1
            other, next_other = divmod(self.below(after * (place + 2)), place + 2)
            items[place], items[other] = items[other], items[place]
            items[after], items[next_other] = items[next_other], items[after]


@dataclass(frozen=True)
class OrderSettings:
    """The effective settings that decide the order of issue."""

    scenario: str  # LoadGen's: Offline, Server, SingleStream
    accuracy: bool
    sample_index_rng_seed: int
    min_query_count: int  # effective; 1 in Offline
    sample_concatenate_permutation: bool
    performance_issue_unique: bool = False
    performance_issue_same: bool = False
    performance_issue_same_index: int = 0


def shuffled_library(qsl_rng_seed: int, sample_count: int) -> NDArray[np.int32]:
    """The sample indices in the order in which LoadGen loads them, one set after another; read-only.

    Args:
        qsl_rng_seed: the effective seed.
        sample_count: samples to choose from: the accuracy sample count in an accuracy run, else the performance
            sample count; never more than the library has.
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
    """Sample indices in the order in which LoadGen issues them.

    Args:
        loaded: the loaded set, in LoadGen's order, or a row for each of multiple sets.
        count: samples issued from a set (Offline: `generated_samples_per_query`; else the number of queries).

    Returns:
        `count` sample indices of each set.
    """
    if settings.accuracy or settings.performance_issue_unique:
        settings = replace(settings, min_query_count=1)  # without effect here: one order serves all such runs
    if settings.scenario != "Offline":
        settings = replace(settings, scenario="Server")  # the other scenarios issue alike
    places = _places if count <= _LONGEST_KEPT_ORDER else _places.__wrapped__
    order: NDArray[np.int32] = loaded[..., places(loaded.shape[-1], count, settings)]
    return order


@lru_cache(maxsize=_KEPT_ORDERS)
def _places(size: int, count: int, settings: OrderSettings) -> NDArray[np.int32]:
    """The order of issue as places in a loaded set of `size` samples; read-only."""
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
        # If it is not used, LoadGen draws it all the same.
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
        return np.resize(np.array(equal_order, dtype=np.int64), count)  # over and over
    return np.fromiter((draws.below(size) for _ in range(count)), np.int64, count)


def _offline_places(size: int, count: int, draws: _Draws) -> list[int]:
    """The loaded set over and over, each time freshly shuffled."""
    order: list[int] = []
    while len(order) + size <= count:
        repeat = list(range(size))
        draws.shuffle(repeat)
        order += repeat
    return order + list(range(count - len(order)))


def poisson_offsets_ns(schedule_rng_seed: int, target_qps: float, count: int) -> NDArray[np.int64]:
    """When the Server scenario schedules its queries.

    Args:
        schedule_rng_seed: the effective seed.
        target_qps: the effective target, exactly as LoadGen was given it.

    Returns:
        Offsets from the start of the test, in ns; the first query is scheduled at 0.
    """
    if count <= 0:
        return np.empty(0, np.int64)
    # A longer one begins with the same gaps: with powers of two, few lengths are computed.
    length = 1 << (count - 1).bit_length()
    unit_gaps = (_unit_gaps if length <= _KEPT_GAPS else _unit_gaps.__wrapped__)(schedule_rng_seed, length)
    gaps_ns = unit_gaps[: count - 1] / target_qps
    gaps_ns *= 1e9
    offsets_ns = np.zeros(count, np.int64)
    offsets_ns[1:] = gaps_ns  # cut to whole ones, as LoadGen does
    return np.cumsum(offsets_ns, out=offsets_ns)


@lru_cache(maxsize=8)
def _unit_gaps(schedule_rng_seed: int, count: int) -> NDArray[np.float64]:
    """The first gaps of a schedule of one query a second, in s; read-only."""
    generator = np.random.MT19937()
    generator._legacy_seeding(schedule_rng_seed & 0xFFFFFFFF)
    gaps = np.empty(count, np.float64)
    for begin in range(0, count, _KEPT_GAPS):  # a part at a time: the longest schedules would take all memory
        part = gaps[begin : begin + _KEPT_GAPS]
        draws = generator.random_raw(2 * len(part)).astype(np.float64)
        # A double in [0, 1) takes two draws, the first one the low half.
        uniform = (draws[0::2] + draws[1::2] * float(_DRAW_VALUES)) / float(_DRAW_VALUES) ** 2
        uniform = np.minimum(uniform, math.nextafter(1.0, 0.0))
        # The C library's logarithm: NumPy's own differs in the last bit, and a bit may be a nanosecond.
        part[:] = -np.fromiter(map(math.log, (1.0 - uniform).tolist()), np.float64, len(part))
    gaps.flags.writeable = False
    return gaps
