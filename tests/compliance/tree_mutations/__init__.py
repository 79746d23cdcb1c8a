"""Ways to spoil a clean submission tree, each with the rule that must find it and the file that must be named.

Each module registers the mutations of one part of the tree; importing this package imports them all.
"""

from tests.compliance.tree_mutations import answers, audits, descriptions, logs, places
from tests.compliance.tree_mutations.registry import MUTATIONS, Mutation, edit_object, edit_text
from tests.runs.editing import edit_detail

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
