"""The page of one run, report.html beside its logs. It is written after the attestation and is no evidence."""

import os
import time

from runs.record.layout import RunDir
from runs.wording import moment

SWITCH = "MLPERF_LLAMA_VLLM_REPORT"  # 0: no page; drawing takes a second of processor time


def write_run_page(run_dir: RunDir) -> str:
    """Write the page; returns a line that names it, or says why there is none. A run never fails for its page."""
    if os.environ.get(SWITCH) == "0":
        return f"no report: {SWITCH}=0"
    try:
        from compliance.report.page import render
        from compliance.report.report_page import make_page
        from runs.files import write_atomic

        page = make_page(run_dir.root.name, moment(time.time_ns()), [(run_dir.root.name, run_dir.root)], [])
        if page.left_out:
            return f"no report: {page.left_out[0]}"
        write_atomic(run_dir.page, render(page))
    except Exception as error:  # a font or a library is missing, the disk is full: nothing of the run is lost
        return f"no report: {type(error).__name__}: {error}"
    return f"report: {run_dir.page}"
