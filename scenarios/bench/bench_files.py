"""The files of a bench: points.csv, report.html and, on request, a file for each run in the format of vLLM."""

import os

from runs.bench.bench_record import BenchRecord
from runs.bench.points import POINTS, points_csv, vllm_file_name, vllm_result
from runs.files.writing import write_atomic, write_json
from runs.record.layout import RunDir
from runs.record.requests_log import read_request_table
from scenarios.bench.bench_plan import Bench
from scenarios.launch.run_page import SWITCH, failure_of_page


def write_files(bench: Bench, record: BenchRecord) -> str:
    """Write the files; return a line with the page or with the reason why it is missing."""
    write_atomic(bench.folder / POINTS, points_csv(record))
    options = bench.options
    if options.save_result or options.save_detailed:
        for run in (run for run in record.runs if run.duration_s is not None):
            name = options.result_filename if len(record.runs) == 1 else None
            table = read_request_table(RunDir(bench.folder / run.run_dir).requests) if options.save_detailed else None
            write_json(bench.folder / (name or vllm_file_name(record, run)), vllm_result(record, run, table))
    if os.environ.get(SWITCH) == "0":
        return f"no page: {SWITCH}=0"
    try:
        from compliance.report.bench_page import write_bench_page

        return f"page: {write_bench_page(bench.folder)}"
    except Exception as error:  # the numbers stay
        return f"no page: {failure_of_page(error)}"
