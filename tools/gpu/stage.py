"""A stage: its steps, its output, and its files in $OUT.

A step has an estimate. A step that would end after the stage's time is skipped, and its failure ends no other step.
After each step the files in $OUT are complete, because the machine may be withdrawn.
"""

import io
import math
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from runs.files.writing import write_atomic, write_json
from runs.record.new_run import free_directory
from tools.gpu.gpu_load import GpuLoad

T = TypeVar("T")
Precision = Literal["bf16", "fp8", "fp8kv"]
ALWAYS = -math.inf  # estimate of a step that must not be skipped, because it ends started processes
MAX_LINES = 60  # maximum number of printed lines
MAX_COLUMNS = 200
MAX_ARCHIVE_BYTES = 15 << 20
# Files excluded from the archive: always (prompts of LLM.generate), and if the archive would become too large.
LARGE = (("llm.json",), ("requests.jsonl", "mlperf_log_accuracy.json"), ("mlperf_log_detail.txt",))


class Skipped(Exception):
    """A step that is impossible on this machine; the message is the reason."""


@dataclass(frozen=True)
class Options:
    """The options of a stage."""

    seconds: float
    precision: Precision = "fp8"
    rate: float | None = None  # Offline samples/s
    small: bool = False  # tiny model and few samples, for a rehearsal
    dummy: bool = False  # the dummy engine instead of vLLM, for a rehearsal without a GPU

    def seconds_of_a_run(self, full: float) -> float:
        """Return the duration of a Server run that takes `seconds` at full size."""
        return 2.0 if self.dummy else 20.0 if self.small else full


class GpuStage:
    """A running stage.

    Args:
        name: name of the stage, such as "1".
        work: directory for models, datasets and run directories.
        out: directory for the files to keep.
    """

    def __init__(self, name: str, options: Options, work: Path, out: Path) -> None:
        self.name, self.options, self.work, self.out = name, options, work, out
        self.folder = free_directory(work / f"stage{name}")
        self.load = GpuLoad()
        self._started_s = time.monotonic()
        self._lines: list[str] = []
        self._numbers: dict[str, Any] = {"stage": name, "command": sys.argv, "time": time.strftime("%FT%T%z")}

    @property
    def left_s(self) -> float:
        """Remaining seconds of the stage."""
        return self.options.seconds - (time.monotonic() - self._started_s)

    def say(self, line: str) -> None:
        """Print a line, up to MAX_LINES, and add it to the stage's text."""
        self._lines.append(line)
        if len(self._lines) <= MAX_LINES:
            print(line[:MAX_COLUMNS], flush=True)
        write_atomic(self.out / f"stage{self.name}.txt", "\n".join(self._lines) + "\n")

    def keep(self, name: str, value: Any) -> None:
        """Add values to the stage's JSON file."""
        self._numbers[name] = value
        write_json(self.out / f"stage{self.name}.json", self._numbers)

    def step(self, name: str, estimate_s: float, job: Callable[[], T]) -> T | None:
        """Run a step; return its value, or None if it was skipped or failed."""
        if self.left_s < estimate_s:
            self.say(f"-- {name}: skipped: {self.left_s:.0f} s left, about {estimate_s:.0f} s needed")
            return None
        started_s = time.monotonic()
        try:
            return job()
        except Skipped as reason:
            self.say(f"-- {name}: skipped: {reason}")
        except Exception as error:
            self.say(f"!! {name}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            self.keep(f"seconds of {name}", round(time.monotonic() - started_s, 1))
            self.pack()
        return None

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
        write_atomic(self.out / f"stage{self.name}.tar.gz", content.getvalue())

    def _add(self, archive: tarfile.TarFile, path: Path) -> None:
        try:
            content = path.read_bytes()  # read at once, because the file may be replaced meanwhile
        except OSError:
            return  # a directory, or a removed file
        member = tarfile.TarInfo(path.relative_to(self.folder.parent).as_posix())
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
