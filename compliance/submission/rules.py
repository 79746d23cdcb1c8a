"""The rules of a submission that its builder and its check share.

Sources: mlcommons/inference, tools/submission/submission_checker/constants.py (here [checker]); mlcommons/
inference_policies, submission_rules.adoc.
"""

DATACENTER, EDGE = "datacenter", "edge"
SUITE_OF = {"llama3.1-8b": DATACENTER, "llama3.1-8b-edge": EDGE}
# [checker: required-scenarios-*, optional-scenarios-*, and one of the two latter; the same in v5.1, v6.0 and v6.1]
ALL_OF = {"llama3.1-8b": ("Offline",), "llama3.1-8b-edge": ("SingleStream", "Offline")}
ONE_OF = {"llama3.1-8b": ("Server", "Interactive"), "llama3.1-8b-edge": ()}
# [checker: models_TEST06 has llama3.1-8b and not llama3.1-8b-edge]
AUDITED = frozenset({"llama3.1-8b"})
MOST_FILE_BYTES = 50 * 1024 * 1024  # [mlcommons/inference_policies, submission_rules.adoc: files are below 50 MB]
