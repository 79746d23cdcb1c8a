"""(t) Clients beside a scripted server: what each of them reports, and what the server's log says.

The server has a script: each token at its time. Its log has the times of the writes. The clients run in turns, with
one process each, at each rate.
"""

import dataclasses
import math
import os
import resource
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from qsl.datasets.cnn_dailymail import article_prompt
from qsl.embedded.articles import bundled_articles
from runs.harness import HARNESS_ROOT
from runs.processes.child import run_program

from .report import Grid, PeerPart
from .sizes import Sizes
from .support.load_clients import CLIENTS, ClientLoad, LoadClient, Speed
from .support.models import TINY, make_llama
from .support.truth_server import LoggedCompletion, build_server, read_log, truth_server

MODEL = "truth"  # name of the model at the server
TTFT_MS, TPOT_MS, OUTPUT_TOKENS = 5.0, 5.0, 128
MAX_SHARE = 0.05  # limit for the error of TPOT and tokens/s
MAX_TTFT_ERROR_MS = TPOT_MS  # limit for the error of the TTFT: the time of a token
MIN_SENT_SHARE = 0.5  # a client that sends a smaller share of the requested rate is not measured at higher rates
CLIENT_LOG = "client.log"
HEADINGS = (
    *("client", "requests/s", "sent/s", "TTFT p50", "log", "TTFT p99", "log", "TPOT p50", "log", "tokens/s", "log"),
    *("late p99", "within limits"),
)


@dataclass(frozen=True)
class ClientMeasurement:
    """A run of a client: its report, the server's log of the same requests, and the cost."""

    client: str
    rate: float  # requests/s, as requested
    reported: Speed
    logged: Speed
    sent_per_s: float  # rate of the requests in the log
    late_p99_ms: float  # p99 of the server's delay against its script
    cpu_s: float  # processor time of the client, with its start
    tokens: int  # tokens that the server sent, also before the measurement

    @property
    def is_true(self) -> bool:
        """True if the errors of the client are within the limits."""
        reported, logged = self.reported, self.logged
        return (
            abs(reported.ttft_p50_ms - logged.ttft_p50_ms) <= MAX_TTFT_ERROR_MS
            and abs(reported.tpot_p50_ms / logged.tpot_p50_ms - 1) <= MAX_SHARE
            and abs(reported.tokens_per_s / logged.tokens_per_s - 1) <= MAX_SHARE
        )

    @property
    def sends_enough(self) -> bool:
        return self.sent_per_s >= MIN_SENT_SHARE * self.rate

    def row(self) -> tuple[str | float, ...]:
        """Return the row of the table, in the order of HEADINGS."""
        names = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tokens_per_s")
        pairs = (value for name in names for value in (getattr(self.reported, name), getattr(self.logged, name)))
        return self.client, self.rate, self.sent_per_s, *pairs, self.late_p99_ms, "yes" if self.is_true else "no"


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Measure each installed client at each rate."""
    part = PeerPart("t", "clients beside a scripted server")
    server, model = build_server(work), make_llama(work / "model", TINY)
    prompts = _write_prompts(work / "prompts.jsonl", max(_requests(rate, sizes) for rate in sizes.truth_rates))
    clients = {client.name: client for client in CLIENTS if client.find()}
    measured: dict[str, list[ClientMeasurement]] = {name: [] for name in clients}
    for rate in sizes.truth_rates:
        for name, client in [*clients.items()]:
            folder = work / f"{name.replace(' ', '-')}-{rate:g}"
            load = ClientLoad("", MODEL, rate, _requests(rate, sizes), OUTPUT_TOKENS, prompts, model)
            try:
                measured[name].append(measurement := _measure(client, load, folder, server, sizes.truth_limit_s))
                reason = "" if measurement.sends_enough else f"it sent {measurement.sent_per_s:.0f} requests/s"
            except _NoResult as error:
                reason = f"{error} (see {folder})"
            if reason:
                part.notes.append(f"{name} at {rate:g} requests/s: {reason}. It was not measured at higher rates.")
                del clients[name]
    add_results(part, measured)
    part.notes += _method()
    return part


def add_results(part: PeerPart, measured: dict[str, list[ClientMeasurement]]) -> None:
    """Add the table, and for each client the highest rate with errors within the limits, and its cost."""
    rows = [run for runs in measured.values() for run in runs]
    part.grids.append(
        Grid(HEADINGS, [measurement.row() for measurement in sorted(rows, key=lambda measurement: measurement.rate)])
    )
    for name, runs in measured.items():
        part.add(f"{name}: errors within the limits up to", "requests/s", [highest_true(runs)])
        if len(runs) > 1:
            part.add(f"{name}: processor time per 1,000 tokens", "ms", [cpu_ms_per_1000_tokens(runs)])


def highest_true(runs: Sequence[ClientMeasurement]) -> float:
    """Return the rate up to which the client's errors are within the limits at all measured rates; 0 if at none."""
    highest = 0.0
    for measurement in sorted(runs, key=lambda measurement: measurement.rate):
        if not measurement.is_true:
            break
        highest = measurement.rate
    return highest


def cpu_ms_per_1000_tokens(runs: Sequence[ClientMeasurement]) -> float:
    """Return the additional processor time per additional token, from the fewest to the most tokens. The start of the
    client, which costs the same at each rate, is not included.
    """
    least, most = (
        min(runs, key=lambda measurement: measurement.tokens),
        max(runs, key=lambda measurement: measurement.tokens),
    )
    return 1e6 * (most.cpu_s - least.cpu_s) / (most.tokens - least.tokens) if most.tokens > least.tokens else math.nan


def logged_speed(log: Sequence[LoggedCompletion]) -> tuple[Speed, float, float]:
    """Return the speed in the server's log, the rate of the requests, and the p99 of the delays in ms."""
    columns = np.array(
        [
            (completion.read, completion.first, completion.last, completion.late, completion.tokens)
            for completion in log
        ],
        dtype=np.int64,
    )
    read, first, last, late, tokens = columns.T
    ttft_p50, ttft_p99 = np.percentile(first - read, (50, 99)) / 1e6
    tpot_ns = (last - first)[tokens > 1] / (tokens[tokens > 1] - 1)
    tokens_per_s = 1e9 * tokens.sum() / (last.max() - read.min())
    sent_per_s = 1e9 * (len(log) - 1) / max(1, read.max() - read.min())
    speed = Speed(len(log), float(ttft_p50), float(ttft_p99), float(np.median(tpot_ns)) / 1e6, float(tokens_per_s))
    return speed, float(sent_per_s), float(np.percentile(late, 99)) / 1e6


class _NoResult(Exception):
    """The reason why a client has no result."""


def _measure(client: LoadClient, load: ClientLoad, folder: Path, server: Path, limit_s: float) -> ClientMeasurement:
    folder.mkdir(parents=True)
    log = folder / "server.jsonl"
    program = client.find()
    assert program is not None
    cpu_s = _children_cpu_s()
    with truth_server(server, log, TTFT_MS, TPOT_MS) as url, (folder / CLIENT_LOG).open("wb") as output:
        command = [program, *client.arguments(dataclasses.replace(load, url=url), folder.resolve())]
        environment = {**os.environ, **client.environment}
        try:
            done = run_program(command, timeout_s=limit_s, output=output, cwd=HARNESS_ROOT, env=environment)
        except subprocess.TimeoutExpired as error:
            raise _NoResult(f"no result within {limit_s:.0f} s") from error
        cpu_s = _children_cpu_s() - cpu_s  # the server still runs, so its time is not included
    if done.returncode not in client.exit_codes:
        raise _NoResult(f"exit code {done.returncode}{_error_in(folder / CLIENT_LOG)}")
    try:
        reported = client.read(folder)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _NoResult(f"its result cannot be read ({type(error).__name__}: {error})") from error
    completions = read_log(log)
    if not load.requests <= reported.requests <= len(completions):
        raise _NoResult(f"{reported.requests} of {load.requests} requests completed, {len(completions)} in the log")
    # Probes and the warm-up come before the measured requests.
    logged, sent_per_s, late_p99_ms = logged_speed(completions[-reported.requests :])
    tokens = sum(completion.tokens for completion in completions)
    return ClientMeasurement(client.name, load.rate, reported, logged, sent_per_s, late_p99_ms, cpu_s, tokens)


def _error_in(log: Path) -> str:
    """Return the last line of an output that begins with `error:`."""
    errors = [line for line in log.read_text(errors="replace").splitlines() if line.lower().startswith("error:")]
    return f", {errors[-1]}" if errors else ""


def _children_cpu_s() -> float:
    """Return the processor time of all child processes that have ended, with their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _requests(rate: float, sizes: Sizes) -> int:
    return round(rate * sizes.truth_seconds)


def _write_prompts(path: Path, count: int) -> Path:
    """Write the prompts of the harness's bundled dataset, as often as needed."""
    texts = [article_prompt(article.article) for article in bundled_articles()]
    rows = [orjson.dumps({"prompt": text, "text": text}) + b"\n" for text in texts]
    path.write_bytes(b"".join(rows[number % len(rows)] for number in range(count)))
    return path


def _method() -> Iterator[str]:
    yield (
        f"script: TTFT {TTFT_MS:g} ms, TPOT {TPOT_MS:g} ms, {OUTPUT_TOKENS} tokens, one event and one write per token. "
        "Columns named log: the same quantity from the server's log. sent/s: rate at which the requests reached the "
        "server. late p99: delay of the server against its script. Times are in ms."
    )
    yield (
        f"limits: TTFT p50 within {MAX_TTFT_ERROR_MS:g} ms of the log (the time of a token), TPOT p50 and tokens/s "
        f"within {MAX_SHARE:.0%}. One run per rate. Processor time: without the client's start."
    )
    for client in CLIENTS:
        if client.find() is None:
            hint = f"; {client.variable} can name the program" if client.variable else ""
            yield f"{client.name}: not installed{hint}"
