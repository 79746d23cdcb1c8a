"""Shared by the tests with the real vLLM: a tiny model, its greedy answers by transformers, legs as a user runs them.

Everything here starts at least one engine, which takes half a minute; whatever can be shared is made once.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from qsl.cache import CACHE_VARIABLE
from qsl.dataset import Dataset, load_dataset
from qsl.embedded.articles import bundled_articles, bundled_dataset
from runs.environment import HARNESS_ROOT
from runs.record.layout import RunDir
from runs.record.progress import Progress, read_progress
from runs.record.requests_log import RequestTable, read_requests
from tests.support.official import SAMPLING
from tests.support.tiny_llama import make_tiny_llama

LEG_TIMEOUT_S = 600.0  # far beyond any leg here, also on a busy machine
# Words that would claim something. INVALID is another word.
CLAIM = re.compile(r"\b(VALID|PASS|PASSED)\b")

# Logits of the tiny model have a spread of 0.2; float32 arithmetic in another order moves them by about 1e-6.
TIE = 1e-4
PROMPTS_FOR_STOP_IDS = 16
MORE_STOP_IDS = 3
MOST_ENDED = 13


@dataclass(frozen=True)
class Answer:
    """A greedy answer: ids, and at each position the runner-up and how far behind it was (logits)."""

    ids: list[int]
    runners_up: list[int]
    margins: list[float]

    def matches(self, ids: list[int]) -> bool:
        """Identical, or parted at a position where both choices are equally good within float32's accuracy."""
        if ids == self.ids:
            return True
        for mine, own, other, margin in zip(ids, self.ids, self.runners_up, self.margins, strict=False):
            if mine != own:
                return mine == other and margin < TIE
        return False  # one stopped where the other went on


class Greedy:
    """transformers' greedy decoding in float32, one prompt at a time: what any engine's output is compared with."""

    def __init__(self, model_path: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)  # the model is far too small for two, which only wait for each other
        self._model = AutoModelForCausalLM.from_pretrained(str(model_path), dtype="float32")
        self._answers: dict[tuple[int, ...], Answer] = {}

    def __call__(self, prompt: list[int]) -> Answer:
        key = tuple(prompt)
        if key not in self._answers:
            self._answers[key] = self._generate(prompt)
        return self._answers[key]

    def _generate(self, prompt: list[int]) -> Answer:
        import torch

        output = self._model.generate(
            torch.tensor([prompt]),
            min_new_tokens=SAMPLING.min_tokens,
            max_new_tokens=SAMPLING.max_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            pad_token_id=0,
        )
        best = torch.cat(output.scores).topk(2)
        ids = output.sequences[0, len(prompt) :].tolist()
        return Answer(ids, best.indices[:, 1].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist())


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of our own and a small key-value cache, for this process and all legs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
        yield


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, own_environment: None) -> Path:
    """The tiny Llama with several stop ids in generation_config.json, as Llama-3.1 has them: outputs vary in length.

    A random model never says its one end-of-text id. The further ones stand in most of its answers, but not in all.
    """
    texts = [article.article for article in bundled_articles()]
    folder = make_tiny_llama(tmp_path_factory.mktemp("model") / "tiny-llama", texts)
    prompts = load_dataset(bundled_dataset(str(folder))).prompts[:PROMPTS_FOR_STOP_IDS]
    greedy = Greedy(folder)
    answers = [greedy(prompt).ids for prompt in prompts]
    opening = {token for ids in answers for token in ids[:4]}
    holders: dict[int, set[int]] = {}
    for number, ids in enumerate(answers):
        for token in set(ids) - opening:
            holders.setdefault(token, set()).add(number)
    stops: list[int] = []
    ended: set[int] = set()
    for _ in range(MORE_STOP_IDS):
        usable = [token for token in sorted(holders) if len(ended | holders[token]) <= MOST_ENDED]
        stops.append(max(usable, key=lambda token: len(ended | holders[token])))
        ended |= holders[stops[-1]]
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "eos_token_id": [settings["eos_token_id"], *stops]}))
    return folder


@pytest.fixture(scope="session")
def dataset(tiny_model: Path) -> Dataset:
    """The bundled articles, tokenised for the tiny model."""
    return load_dataset(bundled_dataset(str(tiny_model)))


@pytest.fixture(scope="session")
def greedy(tiny_model: Path) -> Greedy:
    return Greedy(tiny_model)


# Legs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FinishedLeg:
    """A leg that a user started and that came to its end, whatever that was."""

    run: RunDir
    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        log = self.run.engine_log
        tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}\n--- engine.log\n{tail}"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.run.manifest.read_bytes())
        return content

    @cached_property
    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.run.result.read_bytes())
        return content

    @cached_property
    def requests(self) -> RequestTable:
        return read_requests(self.run.requests)

    def claims(self) -> list[str]:
        """Files (and terminal output) in which a word of success stands."""
        texts = {path.name: path.read_text() for path in (self.run.summary, self.run.result) if path.exists()}
        observed = {key: value for key, value in self.manifest.items() if key not in ("asked", "resolved", "notes")}
        texts |= {self.run.manifest.name: json.dumps(observed), "stdout": self.stdout, "stderr": self.stderr}
        return [name for name, text in texts.items() if CLAIM.search(text)]


def leg_command(model: Path, run_dir: Path, conf: str, arguments: list[str]) -> list[str]:
    """The command line of a leg, with a user.conf of its own beside the run directory."""
    conf_path = run_dir.with_suffix(".conf")
    conf_path.write_text(conf)
    return [
        sys.executable,
        str(HARNESS_ROOT / "main.py"),
        *arguments,
        "--vllm",
        "--model-path",
        str(model),
        "--user-conf",
        str(conf_path),
        "--output-log-dir",
        str(run_dir),
    ]


def run_leg(command: list[str], run_dir: Path) -> FinishedLeg:
    """Run a leg to its end."""
    done = subprocess.run(
        command, cwd=run_dir.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LEG_TIMEOUT_S
    )
    return FinishedLeg(RunDir(run_dir), done.returncode, done.stdout, done.stderr)


class RunningLeg:
    """A leg whose queries are being answered right now, with all its processes."""

    def __init__(self, command: list[str], run_dir: Path) -> None:
        self.run = RunDir(run_dir)
        self._output = run_dir.with_suffix(".stdout"), run_dir.with_suffix(".stderr")
        with self._output[0].open("wb") as stdout, self._output[1].open("wb") as stderr:
            self.parent = psutil.Popen(
                command, cwd=run_dir.parent, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        self.processes: list[psutil.Process] = []

    def wait_until_answering(self) -> None:
        """Return once some queries are answered (and on record) and others are open."""

        def answering() -> bool:
            assert self.parent.poll() is None, f"the leg ended early:\n{self.finished()}"
            progress = self.progress  # its rates count what is written to requests.jsonl
            return progress is not None and progress.phase == "running" and progress.samples_per_second > 0

        assert wait_for(answering, LEG_TIMEOUT_S), f"no answers:\n{self.finished()}"
        assert self.progress is not None
        assert self.progress.outstanding > 0
        self.processes = [self.parent, *self.parent.children(recursive=True)]

    @property
    def progress(self) -> Progress | None:
        return read_progress(self.run.progress)

    @property
    def leg_process(self) -> psutil.Process:
        """The process of the leg itself, child of the one the user started."""
        assert self.progress is not None
        return psutil.Process(self.progress.pid)

    @property
    def engine_core(self) -> psutil.Process:
        """vLLM's engine core: it names itself so."""
        (core,) = [process for process in self.leg_process.children(recursive=True) if is_engine_core(process)]
        return core

    def finished(self, timeout_s: float = 0.0) -> FinishedLeg:
        """Wait for the end of the process that the user started."""
        try:
            code = self.parent.wait(timeout_s)
        except psutil.TimeoutExpired:
            code = None
        stdout, stderr = (path.read_text() for path in self._output)
        return FinishedLeg(self.run, code if code is not None else -999, stdout, stderr)

    def survivors(self, within_s: float) -> list[str]:
        """Processes of this leg that still run after a while; usually returns long before."""
        wait_for(lambda: not self._alive(), within_s)
        return [f"{process.pid} {process.name()}" for process in self._alive()]

    def _alive(self) -> list[psutil.Process]:
        return [process for process in self.processes if _runs(process)]

    def end(self) -> None:
        """Leave nothing behind, whatever the test found."""
        found = [self.parent, *self.parent.children(recursive=True)] if _runs(self.parent) else []
        for process in {*found, *self.processes}:
            if _runs(process):
                process.send_signal(signal.SIGKILL)
        self.parent.wait()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until a condition holds; whether it did."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def is_engine_core(process: psutil.Process) -> bool:
    try:
        return "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
