"""The report of all mistakes in a command at once, each with a line to type."""

import contextlib
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from runs.errors import HarnessError, InputError
from runs.harness import PROGRAM

MAX_SHOWN = 20
Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


class Mistakes:
    """The mistakes in a command line, with a fix for each.

    Args:
        command: Name of the command, which replaces `run` in messages.
    """

    def __init__(self, command: str = "run") -> None:
        self.errors: list[HarnessError] = []
        self.command = command

    def add(self, text: str, fix: str) -> None:
        self._add(InputError(text, fix))

    def _add(self, error: HarnessError) -> None:
        if str(error) not in map(str, self.errors):
            self.errors.append(error)

    @contextlib.contextmanager
    def collected(self, option: str = "", here: str = "") -> Iterator[None]:
        """Collect the error that ends the block, with `here` for `option`."""
        try:
            yield
        except HarnessError as error:
            texts = [
                text.replace(option, here).replace(f"{PROGRAM} run", f"{PROGRAM} {self.command}")
                for text in (error.message, error.fix)
            ]
            self._add(type(error)(*texts, cause=error.cause))

    def attempt(
        self, function: Callable[Parameters, Value], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Value | None:
        """Return the value of a function; None after an error, which is collected."""
        with self.collected():
            return function(*args, **kwargs)
        return None

    def __bool__(self) -> bool:
        return bool(self.errors)

    def accept(self, value: Value | None) -> Value:
        """Return the value of the last check, or raise an error with all mistakes. A missing value is a mistake."""
        self.refuse()
        assert value is not None
        return value

    def refuse(self) -> None:
        """Raise an error with all mistakes, if there are any: an InputError, unless none of them is bad input."""
        if not self.errors:
            return
        kind = next((type(error) for error in self.errors if isinstance(error, InputError)), type(self.errors[0]))
        *earlier, last = self.errors[:MAX_SHOWN]
        message = "\n".join([*map(str, earlier), last.message])
        raise kind(message, last.fix, cause=last.cause if len(self.errors) == 1 else "")
