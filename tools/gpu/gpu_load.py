"""The load of the GPU during a stage, sampled every second with nvidia-smi."""

import contextlib
import statistics
import subprocess
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from runs.files.writing import write_json

_QUERY = "utilization.gpu,power.draw,clocks.sm,memory.used,temperature.gpu"
_COMMAND = ("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-l", "1")
BUSY_PERCENT = 50.0


@dataclass(frozen=True)
class LoadSample:
    """A sample of nvidia-smi."""

    time_s: float  # time on the monotonic clock
    load_percent: float
    power_w: float
    clock_mhz: float
    memory_mib: float
    temperature_c: float


def query_gpu(fields: str) -> str:
    """Return fields as printed by nvidia-smi, or the reason why it fails."""
    try:
        command = ("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unknown ({error.strerror}: nvidia-smi)"
    return (done.stdout or done.stderr).strip()


class GpuLoad:
    """A sampler of the GPU's load until `stop`; it has no samples if nvidia-smi is missing."""

    def __init__(self) -> None:
        self.samples: list[LoadSample] = []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(_COMMAND, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # nvidia-smi may print "[N/A]"
                self.samples.append(LoadSample(time.monotonic(), *(float(field) for field in line.split(","))))

    def since(self, started_s: float) -> str:
        """Return the means over the busy seconds since a time, and the peak memory."""
        samples = [sample for sample in self.samples if sample.time_s >= started_s]
        busy = [sample for sample in samples if sample.load_percent >= BUSY_PERCENT]
        if not busy:
            return "idle" if samples else "unknown"
        power, clock, heat = (
            statistics.mean(getattr(sample, name) for sample in busy)
            for name in ("power_w", "clock_mhz", "temperature_c")
        )
        memory = max(sample.memory_mib for sample in samples)
        return f"busy {len(busy)} s, {power:.0f} W, {clock:.0f} MHz, {memory:.0f} MiB, {heat:.0f} °C"

    def stop(self, path: Path) -> None:
        """End nvidia-smi and write the samples."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        write_json(path, [astuple(sample) for sample in self.samples])
