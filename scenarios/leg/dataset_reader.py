"""Reading the data set in the leg's process while the engine starts, and in its way as little as possible.

Parsing 100 MB of JSON holds the interpreter's lock for about a second. vLLM first needs the interpreter itself, then
waits for its core, which starts in a process of its own: the reading begins when this process has become idle.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from qsl.dataset import Dataset, load_dataset
from runs.errors import SetupError
from runs.record.manifest import LegPlan

IDLE_SHARE = 0.5  # of one core, over a look's interval
LOOK_INTERVAL_S = 0.2


class DatasetBeside:
    """The data set of a plan, read in a thread.

    Args:
        load: reads it.
        times_s: a monotonic clock, and this process's CPU time.
    """

    def __init__(
        self,
        plan: LegPlan,
        load: Callable[..., Dataset] = load_dataset,
        times_s: Callable[[], tuple[float, float]] = lambda: (time.monotonic(), time.process_time()),
    ) -> None:
        self.future: Future[Dataset] = Future()
        self._plan = plan
        self._begun = False
        self._load, self._times_s = load, times_s
        self._wall_s, self._cpu_s = times_s()

    def look(self) -> None:
        """Begin if this process has been idle since the last look; to be called a few times a second.

        Raises:
            HarnessError: the reading has failed.
        """
        if self.future.done():
            self.future.result()
        wall_s, cpu_s = self._times_s()
        if wall_s - self._wall_s < LOOK_INTERVAL_S:
            return
        if cpu_s - self._cpu_s < IDLE_SHARE * (wall_s - self._wall_s):
            self.begin()
        self._wall_s, self._cpu_s = wall_s, cpu_s

    def begin(self) -> None:
        """Begin if that has not happened yet."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._read, name="data-set", daemon=True).start()

    def _read(self) -> None:
        plan = self._plan
        try:
            dataset = self._load(Path(plan.dataset_path), count=plan.sample_count, checked_sha256=plan.dataset_sha256)
            if dataset.sha256 != plan.dataset_sha256:
                raise SetupError(f"{plan.dataset_path} changed since the leg was planned", "start the leg again")
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(dataset)
