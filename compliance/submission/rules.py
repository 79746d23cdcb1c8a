"""The rules of a submission that its builder and its check share.

Sources: mlcommons/inference, tools/submission/submission_checker/constants.py (here [checker]); mlcommons/
inference_policies, submission_rules.adoc.
"""

MOST_FILE_BYTES = 50 * 1024 * 1024  # [mlcommons/inference_policies, submission_rules.adoc: files are below 50 MB]
