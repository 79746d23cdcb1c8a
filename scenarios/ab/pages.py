"""The page of a comparison; a failure to write it does not end the comparison."""

import os
from pathlib import Path

from scenarios.launch.run_page import SWITCH, failure_of_page


def write_ab_page(folder: Path) -> str:
    """Write ab.html; return a line with its path or with the reason why it is missing."""
    if os.environ.get(SWITCH) == "0":
        return f"no page: {SWITCH}=0"
    try:
        from compliance.report.ab_page import write_page_of_ab

        return f"page: {write_page_of_ab(folder)}"
    except Exception as error:  # the numbers stay
        return f"no page: {failure_of_page(error)}"
