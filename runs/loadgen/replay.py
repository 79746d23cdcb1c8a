"""The samples that LoadGen issued in a run, from the seeds and settings in its detail log."""

import numpy as np
from numpy.typing import NDArray

from runs.loadgen.detail_log import DetailLog
from runs.loadgen.schedule import OrderSettings, issue_order, shuffled_library

# Maximum number of queries, and of samples in a library; larger counts mean a damaged log.
REPLAYABLE, LARGEST_LIBRARY = 10_000_000, 1_000_000


def expected_samples(detail: DetailLog) -> int | None:
    """Return the number of samples of a run.

    None for a performance run without results, or if the log does not contain the number.
    """
    if detail.mode == "AccuracyOnly":
        return _accuracy_sample_count(detail)
    if not detail.has_results:
        return None
    of_query = detail.samples_per_query
    return None if of_query is None else detail.integer("result_query_count") * of_query


def expected_order(detail: DetailLog, count: int) -> NDArray[np.int32] | None:
    """Return the sample indices in the order of issue.

    Args:
        detail: detail log of the run.
        count: number of samples issued in a performance run.

    Returns:
        The indices; None if the loaded samples are unknown.
    """
    if (loaded := loaded_samples(detail, count)) is None:
        return None
    library, settings = loaded
    size = min(detail.integer("effective_performance_sample_count"), len(library))
    if not settings.accuracy:
        if detail.scenario == "Offline" and count != detail.samples_per_query:
            return None  # the size of the single query decides the source of the order
        return issue_order(library[:size], count, settings)
    complete = len(library) // size * size
    sets = library[:complete].reshape(-1, size), library[complete:].reshape(1, -1)
    return np.concatenate(
        [issue_order(samples, samples.shape[1], settings).ravel() for samples in sets if samples.size]
    )


def loaded_samples(detail: DetailLog, count: int) -> tuple[NDArray[np.int32], OrderSettings] | None:
    """The samples in the order in which they are loaded, and what decides the order of issue.

    None if the settings contradict each other, if the log lacks the setting that shuffles, or if the replay does not
    give the logged set of loaded samples (LoadGen was built with another C++ library).
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
    library = shuffled_library(detail.seeds.qsl_rng_seed, to_choose_from)
    # With multiple sets, the log has only the last set.
    first = (to_choose_from - 1) // set_size * set_size if accuracy else 0
    if detail.loaded_qsl_set != library[first : first + set_size].tolist():
        return None
    same_index = detail.integer("effective_performance_issue_same_index")
    issue_same = detail.effective("performance_issue_same") is True
    if issue_same and same_index >= min(set_size, to_choose_from):
        return None
    return library, OrderSettings(
        scenario=detail.scenario,
        accuracy=accuracy,
        sample_index_rng_seed=detail.seeds.sample_index_rng_seed,
        min_query_count=min_query_count,
        sample_concatenate_permutation=detail.effective("sample_concatenate_permutation") is True,
        performance_issue_unique=detail.effective("performance_issue_unique") is True,
        performance_issue_same=issue_same,
        performance_issue_same_index=same_index,
    )


def _accuracy_sample_count(detail: DetailLog) -> int:
    total = detail.integer("qsl_reported_total_count")
    wanted = detail.effective("accuracy_sample_count", total)  # older versions do not log this setting
    return min(wanted, total) if type(wanted) is int else total
