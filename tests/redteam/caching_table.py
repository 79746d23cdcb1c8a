"""Verdicts of output_caching on a system that saves part of the time of a repeated prompt, in real runs of LoadGen.

`python -m tests.redteam.caching_table --repetitions 3` in the root of the repository makes the audits (hours on an
idle machine) and prints their table. Options select a part of the table. The dummy engine
computes one request at a time; a request takes about 50 ms, more than half of it for the prompt.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from runs.errors import ExitCode
from tests.support.engines.cheats import CHEAT, SAVING
from tests.support.processes import warm

SAVINGS = (0, 5, 10, 15, 25, 40, 100)  # percent of the time of a repeated prompt
ROWS = (64, 400, 5_000)
LOADS = {"idle": 0, "two busy processes": 2}
MODEL = ("--dummy-ttft-ms", "2", "--dummy-prefill-us", "200", "--dummy-tpot-ms", "0.2", "--dummy-slots", "1")
PROMPT_TOKENS, PROMPT_SPREAD = 150, 0.35
_VERDICTS = {ExitCode.OK: "PASS", ExitCode.NEGATIVE: "FAIL", ExitCode.REFUSED: "none"}


def write_dataset(path: Path, rows: int) -> None:
    """Write a dataset whose prompts have different lengths, tokenized as bytes."""
    chance = random.Random(rows)
    dataset = []
    for number in range(rows):
        tokens = max(16, round(chance.lognormvariate(0, PROMPT_SPREAD) * PROMPT_TOKENS))
        text = f"{number:06} " + "".join(chance.choices("abcdefghij klmnop", k=tokens - 7))
        dataset.append({"input": text, "tok_input": list(text.encode()), "output": "A summary."})
    path.write_text(json.dumps(dataset))


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Let processes compute while the block runs."""
    started = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(processes)]
    with ExitStack() as at_the_end:
        for process in started:
            process.start()
            at_the_end.callback(process.join)
            at_the_end.callback(process.kill)
        yield


def audit(scenario: str, saving: int, dataset: Path, folder: Path) -> tuple[str, int, float]:
    """Run one audit: its verdict, the number of its runs, and its duration in seconds."""
    kind = {CHEAT: "cache-part", SAVING: str(saving / 100)} if saving else {}
    words = ["audit", "--test", "output_caching", "--scenario", scenario, "--engine", "dummy", *MODEL]
    started_s = time.monotonic()
    code, stdout, stderr = warm.run(
        [*words, "--dataset-path", dataset, "--output-log-dir", folder], folder.parent, kind
    )
    if ExitCode(code) not in _VERDICTS:
        raise SystemExit(f"exit code {code}\n{stdout}{stderr}")
    runs = sum(path.is_dir() for path in (folder / "audit/output_caching").iterdir())
    return _VERDICTS[ExitCode(code)], runs, time.monotonic() - started_s


def table(verdicts: dict[tuple[int, int], dict[str, Counter[str]]]) -> str:
    """Return the verdicts as a Markdown table."""
    lines = [f"| saving | rows | {' | '.join(LOADS)} |", f"|---|---|{'---|' * len(LOADS)}"]
    for (saving, rows), by_load in verdicts.items():
        cells = [
            " / ".join(str(by_load[load][word]) for word in _VERDICTS.values()) if load in by_load else ""
            for load in LOADS
        ]
        lines.append(f"| {saving}% | {rows} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--scenario", default="Offline", choices=("Offline", "SingleStream"))
    parser.add_argument("--savings", type=int, nargs="+", default=SAVINGS)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=list(LOADS))
    options = parser.parse_args()
    verdicts: dict[tuple[int, int], dict[str, Counter[str]]] = {}
    with tempfile.TemporaryDirectory() as place:
        for load in options.loads:
            for rows in options.rows:
                dataset = Path(place, f"{rows}.json")
                write_dataset(dataset, rows)
                for saving in options.savings:
                    counts = verdicts.setdefault((saving, rows), {}).setdefault(load, Counter())
                    for number in range(options.repetitions):
                        folder = Path(place, f"{load}-{rows}-{saving}-{number}")
                        with busy(LOADS[load]):
                            verdict, runs, seconds = audit(options.scenario, saving, dataset, folder)
                        counts[verdict] += 1
                        print(f"{load}, {rows} rows, {saving}%: {verdict}, {runs} runs, {seconds:.0f} s", flush=True)
    print(table(verdicts))


if __name__ == "__main__":
    main()
