"""The rule on LoadGen's sources: a result must use the LoadGen of MLCommons, unchanged."""

from collections.abc import Iterator

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.results.run_evidence import RunEvidence
from runs.loadgen.loadgen_sources import source_change, unchanged_sources


@decides(
    "official",
    ("log-sources", "error", OURS, "changes of LoadGen's sources", "rerun with an unchanged LoadGen"),
    needs=("log",),
)  # fmt: skip
def loadgen_sources(run: RunEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the hashes of LoadGen's sources and the Git status in the log with those of its revision."""
    detail = run.detail
    change = source_change(detail)
    if not change and unchanged_sources(detail) is None:
        yield NotApplied(f"the sources of LoadGen {detail.get('loadgen_version')} are unknown", ("log-sources",))
    else:
        keys = ("loadgen_version", "loadgen_git_status_message", "loadgen_file_sha1")
        yield compared("log-sources", not change, change or "none", "none", detail.path, decided_by=keys)
