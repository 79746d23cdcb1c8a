"""The page report.html of one run. It is written after the attestation, so the attestation does not cover it."""

import os
import time

from runs.record.layout import RunDir
from runs.wording import moment

SWITCH = "MLPERF_LLAMA_VLLM_REPORT"  # 0 disables the page; drawing takes a second of CPU time


def write_run_page(run_dir: RunDir) -> str:
    """Write the page; return a line with its path or with the reason of a failure. A failure never fails the run."""
    if os.environ.get(SWITCH) == "0":
        return f"no report: {SWITCH}=0"
    try:
        from compliance.report.page import render_page
        from compliance.report.report_page import make_page
        from runs.files.writing import write_atomic

        page = make_page(run_dir.root.name, moment(time.time_ns()), [(run_dir.root.name, run_dir.root)], [])
        if page.unread:
            return f"no report: {page.unread[0]}"
        write_atomic(run_dir.page, render_page(page))
    except Exception as error:
        return f"no report: {failure_of_page(error)}"
    return f"report: {run_dir.page}"


def failure_of_page(error: Exception) -> str:
    """Return why a page was not written, for example because of a missing font or library, or a full disk."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the page'} cannot be written: {error.strerror}"
    if isinstance(error, ImportError):
        return f"a library cannot be imported: {error}"
    return f"the page cannot be drawn: {error} ({type(error).__name__})"
