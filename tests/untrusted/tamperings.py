"""All tamperings of a result, by subject."""

from tests.untrusted import left_out, other_legs, several_engines, smaller_numbers, told_twice, words_of_loadgen
from tests.untrusted.tampering import TAMPERINGS, Tampering

SUBJECTS = (left_out, told_twice, other_legs, several_engines, smaller_numbers, words_of_loadgen)
__all__ = ["TAMPERINGS", "Tampering"]
