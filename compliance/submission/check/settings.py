"""Does the submitted user.conf give the settings that the log shows?

LoadGen skips what it does not know, so this reader does as well: it looks for lines that it can hold against the log.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compliance.submission.check.finding import Findings
from compliance.submission.check.reading import is_regular, read_text
from runs.benchmark import Benchmark
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.given import mismatches
from runs.loadgen.user_conf import Setting, lines_taken

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def check_user_conf(path: Path, names: set[str], benchmark: Benchmark, detail: DetailLog, findings: Findings) -> None:
    """Hold user.conf against the performance log.

    Args:
        names: further names of the model that the submitter may have given LoadGen.
    """
    models = (benchmark.loadgen_key, benchmark.submission_name, *sorted(names))
    _check(path, models, detail, findings)


def check_user_conf_of(path: Path, detail: DetailLog, findings: Findings) -> None:
    """The same where the name that LoadGen was given for the model is not known: of lines of any model only those
    are held against the log that no line of a named model can outweigh."""
    _check(path, None, detail, findings)


def _check(path: Path, models: tuple[str, ...] | None, detail: DetailLog, findings: Findings) -> None:
    if not is_regular(path):
        return  # has a finding already
    text = read_text(path, findings, "scenario-file")
    if text is None:
        return
    lines = list(_lines(text))
    named = set() if models is not None else {line.key for line in lines if line.model != "*"}
    for found in mismatches(lines, models or (), detail, named):
        wanted = f"{found.logged:g}, as {found.record} of the log has it"
        if found.line is None:
            findings.add("user-conf-absent", path, f"no line sets {detail.scenario} {found.key}", wanted)
        else:
            said = f"line {found.line.line}: {found.line.name} = {float(found.line.value):g}"
            findings.add("user-conf-differs", path, said, wanted)


def _lines(text: str) -> Iterator[Setting]:
    """Those with a number, which LoadGen reads up to the first sign that belongs to none (of 5_00 the 5)."""
    for line in lines_taken(text):
        if number := _NUMBER.match(line.value):
            yield replace(line, value=number[0])
