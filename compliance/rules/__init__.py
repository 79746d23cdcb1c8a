"""The catalogue: every rule that anything is judged by, with what it is worth, where it comes from and what to do.

Sources:
  [rules]    mlcommons/inference_policies, inference_rules.adoc; [submission] its submission_rules.adoc
  [checker]  mlcommons/inference commit b66003e1, tools/submission/submission_checker, file.function
  [loadgen]  LoadGen 6.0.17: what it writes, so what an unchanged log looks like
  [ours]     follows from what a result claims; the official checker does not look at it
"""

from compliance.rules.audit_rules import AUDIT_RULES
from compliance.rules.gate_rules import GATE_RULES
from compliance.rules.leg_rules import LEG_RULES
from compliance.rules.machine_rules import MACHINE_RULES
from compliance.rules.rule import Kind, Rule
from compliance.rules.signoff_rules import SIGNOFF_RULES
from compliance.rules.submit_rules import SUBMIT_RULES
from compliance.rules.tree_rules import TREE_RULES
from runs.errors import HarnessError

__all__ = ["RULES", "Kind", "Rule", "UnknownRuleError", "find_rule"]

_ALL = (LEG_RULES, SIGNOFF_RULES, AUDIT_RULES, TREE_RULES, SUBMIT_RULES, GATE_RULES, MACHINE_RULES)
RULES: dict[str, Rule] = {rule_id: rule for rules in _ALL for rule_id, rule in rules.items()}


class UnknownRuleError(HarnessError):
    """A rule that the catalogue, or a policy, does not know: a mistake in this program, and no verdict."""


def find_rule(rule_id: str) -> Rule:
    """The rule of that id.

    Raises:
        UnknownRuleError: the catalogue has none.
    """
    if rule_id not in RULES:
        raise UnknownRuleError(f"the catalogue has no rule {rule_id}", "add it in compliance/rules")
    return RULES[rule_id]
