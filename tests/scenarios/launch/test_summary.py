"""The closing summary of a run."""

from runs.numbers.result import read_result
from runs.record.layout import RunDir
from runs.rounds import TokenLimits
from scenarios.launch.summary import result_lines
from tests.support.runs.dummy_runs import DummyRuns


def test_results_show_applied_and_official_limits() -> None:
    result = read_result(RunDir(DummyRuns()("Server")).result)
    for tpot_ns, header, shown in ((None, "p99 limit", ["100"]), (10**8, "p99 limit", ["100"]),
                                   (4 * 10**7, "p99 limit   official p99", ["100", "40"])):  # fmt: skip
        official = None if tpot_ns is None else TokenLimits(ttft_ns=2 * 10**9, tpot_ns=tpot_ns)
        *_, head, _, row, _ = result_lines(result, official)
        assert head.endswith(f"p99   {header}")
        assert row.split()[5:] == shown
