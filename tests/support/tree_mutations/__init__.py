"""Ways to spoil a clean submission tree, each with the rule that must find it and the file that must be named.

Each module registers the mutations of one part of the tree; importing this package imports them all.
"""

from tests.support.editing import edit_detail
from tests.support.tree_mutations import answers, audits, descriptions, logs, places
from tests.support.tree_mutations.registry import MUTATIONS, Mutation, edit_object, edit_text

__all__ = [
    "MUTATIONS",
    "Mutation",
    "answers",
    "audits",
    "descriptions",
    "edit_detail",
    "edit_object",
    "edit_text",
    "logs",
    "places",
]
