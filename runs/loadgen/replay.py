"""The samples that LoadGen issued in a run, from the seeds and settings in its detail log."""

import numpy as np
from numpy.typing import NDArray

from runs.loadgen.detail_log import DetailLog
from runs.loadgen.schedule import OrderSettings, issue_order, loaded_sets

# Larger counts, of queries and of samples in a library, are damage.
REPLAYABLE, LARGEST_LIBRARY = 10_000_000, 1_000_000


def expected_samples(detail: DetailLog) -> int | None:
    """The number of samples of a run; None for a performance run without results, and where the log does not say."""
    if detail.mode == "AccuracyOnly":
        return _accuracy_sample_count(detail)
    if not detail.has_results:
        return None
    of_query = detail.samples_per_query
    return None if of_query is None else detail.integer("result_query_count") * of_query


def expected_order(detail: DetailLog, count: int) -> NDArray[np.int64] | None:
    """Sample indices in the order of issue.

    Args:
        detail: the run's detail log.
        count: samples issued in a performance run.

    Returns:
        The indices; None if the settings contradict each other, if the log lacks the setting that shuffles, or if the
        replay does not give the logged set of loaded samples (LoadGen was built with another C++ library).
    """
    accuracy = detail.mode == "AccuracyOnly"
    set_size = detail.integer("effective_performance_sample_count")
    to_choose_from = (
        _accuracy_sample_count(detail) if accuracy else min(set_size, detail.integer("qsl_reported_total_count"))
    )
    min_query_count = detail.integer("effective_min_query_count")
    if set_size <= 0 or not 0 < to_choose_from <= LARGEST_LIBRARY:
        return None
    if detail.effective("sample_concatenate_permutation") is None:  # LoadGen before July 2024
        return None
    if not 0 < min_query_count <= REPLAYABLE or not 0 <= count <= REPLAYABLE:
        return None
    sets = loaded_sets(detail.seeds.qsl_rng_seed, to_choose_from, set_size)
    # Of several sets, the log keeps the last one here.
    if detail.loaded_qsl_set != (sets[-1] if accuracy else sets[0]):
        return None
    same_index = detail.integer("effective_performance_issue_same_index")
    issue_same = detail.effective("performance_issue_same") is True
    if issue_same and same_index >= len(sets[0]):
        return None
    settings = OrderSettings(
        scenario=detail.scenario,
        accuracy=accuracy,
        sample_index_rng_seed=detail.seeds.sample_index_rng_seed,
        min_query_count=min_query_count,
        sample_concatenate_permutation=detail.effective("sample_concatenate_permutation") is True,
        performance_issue_unique=detail.effective("performance_issue_unique") is True,
        performance_issue_same=issue_same,
        performance_issue_same_index=same_index,
    )
    if accuracy:
        return np.concatenate([issue_order(chosen, len(chosen), settings) for chosen in sets])
    if detail.scenario == "Offline" and count != detail.samples_per_query:
        return None  # the one query's size decides where the order comes from
    return issue_order(sets[0], count, settings)


def _accuracy_sample_count(detail: DetailLog) -> int:
    total = detail.integer("qsl_reported_total_count")
    wanted = detail.effective("accuracy_sample_count", total)  # older versions do not log it
    return min(wanted, total) if type(wanted) is int else total
