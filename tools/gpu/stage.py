"""The stages of the measurements, and their files in $OUT.

A step has an estimate. A step that would end after the stage's time is skipped, and its failure ends no other step.
The files in $OUT are complete at each moment, because the machine may be withdrawn.
"""

import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from runs.files.writing import write_atomic
from runs.record.new_run import free_directory
from tools.gpu.expected import OFF, comparison, expected_figures, with_unit
from tools.gpu.gpu_load import GpuLoad
from tools.gpu.results import RESULTS, RUNNING, Figure, Results, StageRecord, StageState, read_results, write_results

T = TypeVar("T")
TEXT = "measure.txt"
DONE = "done"
INTERRUPTED, NO_TIME, STOPPED = "interrupted", "no time", "stopped"  # ends of steps that more time could complete
GPU = "GPU"  # key of the GPU's name in the system of results.json
MAX_LINES = 80  # maximum number of printed lines
MAX_COLUMNS = 200
MAX_ARCHIVE_BYTES = 15 << 20
# Files excluded from the archive: always, and if the archive would become too large.
LARGE = (("prompts.jsonl",), ("requests.jsonl", "mlperf_log_accuracy.json"), ("mlperf_log_detail.txt",))


class Skipped(Exception):
    """A step that is impossible on this machine; the message is the reason."""


class OutOfTimeError(Exception):
    """A step that was stopped, because the time of the stage ended."""


@dataclass(frozen=True)
class Options:
    """The options of the measurements."""

    seconds: float  # time of this command
    rate: float | None = None  # Offline samples/s
    dummy: bool = False  # the dummy engine instead of vLLM, for a rehearsal without a GPU

    def run_s(self, full: float) -> float:
        """Return the duration of a run that takes `full` seconds on a GPU."""
        return 2.0 if self.dummy else full


class Session:
    """The measurements on one machine, over all commands.

    Args:
        work: directory for models, datasets, run directories, and the results so far.
        out: directory for the files to keep.
    """

    def __init__(self, options: Options, work: Path, out: Path) -> None:
        self.options, self.work, self.out = options, work, out
        for folder in (work, out):
            folder.mkdir(parents=True, exist_ok=True)
        self.load = GpuLoad()
        self._started_s = time.monotonic()
        self._printed = 0
        self.results = self.results_in(work)
        text = work / TEXT
        self._lines = text.read_text().splitlines() if text.exists() else []

    @staticmethod
    def results_in(work: Path) -> Results:
        """Return the results of the earlier commands; empty results before the first command."""
        return read_results(work / RESULTS) if (work / RESULTS).exists() else Results()

    @property
    def left_s(self) -> float:
        """Remaining seconds of the command."""
        return self.options.seconds - (time.monotonic() - self._started_s)

    def say(self, line: str) -> None:
        """Print a line, up to MAX_LINES, and add it to measure.txt."""
        self._lines.append(line)
        self._printed += 1
        if self._printed <= MAX_LINES:
            print(line[:MAX_COLUMNS], flush=True)
        for folder in (self.work, self.out):
            write_atomic(folder / TEXT, "\n".join(self._lines) + "\n")

    def update(self, **values: Any) -> None:
        """Replace parts of the results, in the directory of the next command too."""
        self.results = self.results.model_copy(update=values)
        for folder in (self.work, self.out):
            write_results(folder / RESULTS, self.results)


@dataclass(frozen=True)
class Stage:
    """A question that is answered within a share of the time."""

    name: str
    title: str
    share_s: float  # time that the stage may take
    least_s: float  # time below which the stage is not started
    measure: "Callable[[GpuStage], None]"


class GpuStage:
    """A running stage.

    Args:
        seconds: time of the stage in this command.
    """

    def __init__(self, stage: Stage, session: Session, seconds: float) -> None:
        self.name, self.session, self.options = stage.name, session, session.options
        self.work, self.folder = session.work, session.work / stage.name
        self.folder.mkdir(exist_ok=True)
        self._seconds, self._started_s = seconds, time.monotonic()
        earlier = session.results.stages.get(stage.name, StageRecord(state=RUNNING))
        self._steps, self._earlier_s = dict(earlier.steps), earlier.seconds
        self.close(RUNNING)

    @property
    def left_s(self) -> float:
        """Remaining seconds of the stage."""
        return self._seconds - (time.monotonic() - self._started_s)

    @property
    def steps(self) -> dict[str, str]:
        """How each step ended so far."""
        return dict(self._steps)

    def say(self, line: str) -> None:
        self.session.say(line)

    @property
    def is_complete(self) -> bool:
        """True if more time would not complete a further step."""
        return not any(outcome.startswith((INTERRUPTED, NO_TIME, STOPPED)) for outcome in self._steps.values())

    def new_folder(self, name: str) -> Path:
        """Return the path of a new directory of the stage; a step that is repeated does not use its earlier one."""
        return free_directory(self.folder / name)

    def is_done(self, step: str) -> bool:
        """Return whether a step was completed, also by an earlier command."""
        return self._steps.get(step) == DONE

    def value_of(self, figure: str) -> float | None:
        """Return a measured number; None if it was not measured."""
        measured = self.session.results.figures.get(figure)
        return measured.value if measured is not None and isinstance(measured.value, float) else None

    def record(self, figure: str, value: float | str, more: str = "", **detail: Any) -> None:
        """Write a figure into results.json, and print it beside its expected value.

        Args:
            figure: ID in expected.yaml.
            more: further numbers of the measurement, as text.
        """
        row = expected_figures()[figure]
        text = ", ".join(filter(None, [with_unit(value, row.unit), more]))
        gpu = self.session.results.system.get(GPU, "")
        compared = "" if self.options.dummy else comparison(figure, value, gpu)
        entry = Figure(value=value, text=text, compared=compared, detail=detail)
        self.session.update(figures={**self.session.results.figures, figure: entry})
        mark = "!!" if compared.startswith(OFF) else "=="
        self.say(f"{mark} {row.title}: {text}" + (f" ({compared})" if compared else ""))

    def step(self, name: str, estimate_s: float, job: Callable[[], T]) -> T | None:
        """Run a step that is not done; return its value, or None if it was skipped or failed.

        Args:
            estimate_s: time that the step takes on a GPU.
        """
        if self.is_done(name):
            return None
        needed_s = 5.0 if self.options.dummy else estimate_s
        if self.left_s < needed_s:
            self._end(name, f"{NO_TIME}: {self.left_s:.0f} s left, about {needed_s:.0f} s needed")
            return None
        started_s = time.monotonic()
        outcome = INTERRUPTED
        try:
            value = job()
            outcome = DONE
            return value
        except Skipped as reason:
            outcome = f"skipped: {reason}"
        except OutOfTimeError as reason:
            outcome = f"{STOPPED}: {reason}"
        except Exception as error:
            outcome = f"failed: {type(error).__name__}: {str(error)[:300]}"
        finally:
            self._end(name, outcome, time.monotonic() - started_s)
            self.pack()
        return None

    def _end(self, step: str, outcome: str, seconds: float = 0.0) -> None:
        self._steps[step] = outcome
        if outcome != DONE:
            self.say(f"-- {self.name} {step}: {outcome}" + (f" ({seconds:.0f} s)" if seconds else ""))
        self.close(RUNNING)

    def close(self, state: StageState) -> None:
        """Write the state of the stage into results.json."""
        seconds = round(self._earlier_s + time.monotonic() - self._started_s, 1)
        record = StageRecord(state=state, seconds=seconds, steps=self.steps)
        self.session.update(stages={**self.session.results.stages, self.name: record})

    def pack(self) -> None:
        """Write the run directories and logs as an archive. Files of a running run are copied as they are."""
        content = io.BytesIO()
        left_out: set[str] = set()
        for names in LARGE:
            left_out.update(names)
            content = io.BytesIO()
            with tarfile.open(fileobj=content, mode="w:gz", compresslevel=5) as archive:
                for path in sorted(self.folder.rglob("*")):
                    if path.name not in left_out:
                        self._add(archive, path)
            if content.tell() <= MAX_ARCHIVE_BYTES:
                break
        write_atomic(self.session.out / f"{self.name}.tar.gz", content.getvalue())

    def _add(self, archive: tarfile.TarFile, path: Path) -> None:
        try:
            content = path.read_bytes()  # read at once, because the file may be replaced meanwhile
        except OSError:
            return  # a directory, or a removed file
        member = tarfile.TarInfo(path.relative_to(self.folder.parent).as_posix())
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
