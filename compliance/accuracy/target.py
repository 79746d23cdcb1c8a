"""Which reference scores apply to a leg: the benchmark's own, or those of the embedded model on its articles."""

from collections.abc import Callable, Mapping

from qsl.embedded.articles import bundled_baseline
from runs.benchmark import Benchmark, Target
from runs.record.manifest_parts import WeightsPart


def targets_that_apply(
    benchmark: Benchmark,
    count: int | None,
    is_bundled: Callable[[], bool],
    weights_sha256: Callable[[], str | None],
    weights: WeightsPart | None,
) -> tuple[Mapping[str, Target] | None, str]:
    """The targets, and their name; None where there are none.

    Args:
        count: samples that were answered.
        is_bundled: whether they are the bundled articles; asked only where that decides.
        weights_sha256: hash of the model's weights; likewise.
        weights: what their headers say; None where nothing tells it.
    """
    if count == benchmark.accuracy_samples:
        return benchmark.targets, f"{benchmark.submission_name} reference"
    nothing = f"no reference scores for {count:,} samples of this data set"
    baseline = bundled_baseline()
    targets = benchmark.targets_for(baseline.scores) if baseline else None
    if baseline is None or targets is None or count != baseline.gen_num or not is_bundled():
        return None, nothing
    if not baseline.is_of(weights_sha256(), weights):
        return None, f"{nothing}, or of this model"
    return targets, f"bundled articles, {baseline.model} (transformers float32 baseline)"
