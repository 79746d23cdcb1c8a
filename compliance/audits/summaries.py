"""The audits in one line each, in the order of `--help`, which imports none of them."""

# By name: registry id and directory name.
SUMMARIES = {
    "output_caching": "Repeated samples must not be answered faster than unique ones. Offline, SingleStream.",
    "TEST04": "Official comparison of any two runs. Not required for this benchmark.",
    "TEST06": "100 logged answers of a performance leg: lengths, counts, first tokens, special ids.",
    "output_consistency": "Answers of a performance leg are those of the accuracy leg, token by token.",
    "output_length": "Mean output length of a performance leg within 10 % of the accuracy leg's.",
}
