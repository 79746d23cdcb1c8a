"""The parts of vLLM that this harness uses, and the differences between its versions.

Versions 0.24 to 0.33 differ in one point: before `SamplingParams.stream_interval`, the interval was a setting of the
engine for all requests.
"""

import dataclasses
import difflib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from runs.benchmark import SamplingPolicy
from runs.errors import InputError, SetupError
from runs.harness import INSTALL, PROGRAM

OLDEST = (0, 24)  # older versions were not tested


class Interface:
    """The parts of the installed vLLM.

    Args:
        one_process: whether to use LLMEngine, whose caller runs each step, instead of AsyncLLM.

    Raises:
        SetupError: If vLLM cannot be imported, is too old, or lacks a part.
    """

    def __init__(self, *, one_process: bool) -> None:
        try:
            import vllm
            from vllm import SamplingParams
            from vllm.engine.arg_utils import AsyncEngineArgs
        except ImportError as error:
            raise SetupError(f"vLLM cannot be imported: {error}", f"{INSTALL}, and see `{PROGRAM} doctor`") from error
        self.version = str(vllm.__version__)
        _refuse_older(self.version)
        try:
            from vllm.inputs import tokens_input
            from vllm.sampling_params import RequestOutputKind
            from vllm.usage.usage_lib import UsageContext

            if one_process:
                from vllm.v1.engine.llm_engine import LLMEngine as EngineClass
            else:
                from vllm.v1.engine.async_llm import AsyncLLM as EngineClass
        except ImportError as error:
            raise SetupError(
                f"vLLM {self.version} cannot be used: {error}", "install one of the versions in docs/install.md"
            ) from error
        self.tokens_input: Callable[[list[int]], Any] = tokens_input
        self.engine_class: Any = EngineClass
        self._arguments: Any = AsyncEngineArgs
        self._parameters: Any = SamplingParams
        self._output_kinds: Any = RequestOutputKind
        self._contexts: Any = UsageContext
        self._interval_by_request = "stream_interval" in inspect.signature(SamplingParams).parameters

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse engine arguments that this vLLM does not have.

        Raises:
            InputError: If an argument is unknown; the fix names similar ones.
        """
        names = [field.name for field in dataclasses.fields(self._arguments)]
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(name, names, 3)
                raise InputError(
                    f"--engine-arg {name}: vLLM {self.version} has no such engine argument",
                    f"did you mean {' or '.join(near)}?" if near else "see vLLM's engine arguments",
                )

    def engine_arguments(self, options: dict[str, Any], sampling: SamplingPolicy, *, stream: bool) -> Any:
        """Return AsyncEngineArgs. For values that vLLM refuses, its exception is raised."""
        if stream and not self._interval_by_request:
            return self._arguments(**{"stream_interval": _interval(sampling), **options})
        return self._arguments(**options)

    def at_fault(self, options: dict[str, Any], sampling: SamplingPolicy, *, stream: bool) -> dict[str, Any]:
        """Find the engine arguments that vLLM refuses, by omitting some: its messages do not always name them.

        Returns:
            The environment variables that vLLM cannot read; otherwise the model, if vLLM refuses it alone; otherwise
            the arguments that vLLM refuses together with only the model; otherwise those without which vLLM accepts the
            others. Empty if vLLM accepts the configuration and fails later.
        """

        def accepted(names: Iterable[str]) -> bool:
            subset = {name: options[name] for name in names}
            try:
                arguments = self.engine_arguments(subset, sampling, stream=stream)
                arguments.create_engine_config(self.usage_context(stream=stream))
            except Exception:  # vLLM may raise any exception
                return False
            return True

        remaining = [name for name in options if name != "model"]
        logging.disable()  # so that the log ends with the lines of the failure
        try:
            if accepted(options):
                wrong = []
            elif unreadable := _unreadable_variables():
                return unreadable
            elif not accepted(["model"]):
                wrong = ["model"]
            else:
                wrong = [name for name in remaining if not accepted(["model", name])]
                wrong = wrong or [name for name in remaining if accepted(options.keys() - {name})] or remaining
        finally:
            logging.disable(logging.NOTSET)
        return {name: options[name] for name in wrong}

    def start(self, arguments: Any, context: Any, *, by_server: bool) -> Any:
        """Start an engine.

        Args:
            by_server: whether the server of sut/vllm/core_process.py forks the core's process.
        """
        if not by_server:
            return self.engine_class.from_engine_args(arguments, usage_context=context)
        from sut.vllm.core_process import from_server, import_model

        import_model(arguments.model)
        with from_server():
            return self.engine_class.from_engine_args(arguments, usage_context=context)

    def usage_context(self, *, stream: bool) -> Any:
        """Return the usage that selects vLLM's default batch sizes: those of its server, or of LLM.generate."""
        return self._contexts.OPENAI_API_SERVER if stream else self._contexts.LLM_CLASS

    def sampling_parameters(self, sampling: SamplingPolicy, *, stream: bool) -> Any:
        """Return SamplingParams with two outputs per request: the first token, and the rest when the request is
        finished. Without `stream`, the request has only the finished output.
        """
        interval = {"stream_interval": _interval(sampling)} if stream and self._interval_by_request else {}
        return self._parameters(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            min_tokens=sampling.min_tokens,
            max_tokens=sampling.max_tokens,
            detokenize=False,
            output_kind=self._output_kinds.DELTA if stream else self._output_kinds.FINAL_ONLY,
            **interval,
        )


def _unreadable_variables() -> dict[str, Any]:
    """Return the environment's values of vLLM's variables that vLLM cannot read."""
    from vllm import envs

    unreadable = {}
    for name, read in envs.environment_variables.items():
        if name in os.environ:
            try:
                read()
            except Exception:  # a conversion may raise any exception
                unreadable[name] = os.environ[name]
    return unreadable


def _interval(sampling: SamplingPolicy) -> int:
    return sampling.max_tokens + 1  # one more than the longest output


def _refuse_older(version: str) -> None:
    """Refuse a vLLM older than OLDEST by its version number. Source builds without a number are accepted."""
    number = re.match(r"(\d+)\.(\d+)\.\d", version)
    if number and (0, 0) < tuple(map(int, number.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SetupError(
            f"vLLM {version} is older than {oldest}, the oldest version that this harness supports",
            f"install vLLM {oldest} or newer",
        )
