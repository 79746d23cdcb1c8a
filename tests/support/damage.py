"""Helpers for tests that damage files."""

from collections.abc import Callable

from hypothesis import strategies as st

from runs.errors import InputError


def input_error(action: Callable[[], object]) -> InputError | None:
    """The InputError that `action` ends with, or None; anything else goes through."""
    try:
        action()
    except InputError as error:
        return error
    return None


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with one to three places replaced by random bytes."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(changed)))
        changed[place : place + draw(st.integers(0, 40))] = draw(st.binary(max_size=20))
    return bytes(changed)
