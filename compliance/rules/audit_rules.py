"""Rules on the legs of an audit."""

from compliance.rules.rule import Rule, catalogue

_AGAIN = "correct the system and run the audit again"
_MACHINE = "find out what is kept between queries; run the audit again on an idle machine"

AUDIT_RULES: dict[str, Rule] = catalogue(
    "audit",
    (
        ("test06-count", "error", "compliance/TEST06/audit.config", "as many answers are logged as asked for", _AGAIN),
        ("test06-ids", "error", "[rules] TEST06", "answers are whole token ids", _AGAIN),
        ("test06-length", "error", "[rules] generation settings", "answers are as long as allowed", _AGAIN),
        ("test06-token-count", "error", "[rules] TEST06: token counts", "as many tokens are counted as given", _AGAIN),
        ("test06-first-token", "error", "[rules] TEST06: first token", "the first token is the answer's", _AGAIN),
        ("test06-begin", "error", "[ours]", "no answer has a begin-of-sequence id", _AGAIN),
        ("test06-special-ids", "error", "[ours]", "no answer has other special ids", _AGAIN),
        ("test06-end-once", "error", "[rules] TEST06: end of sequence", "an answer ends once", _AGAIN),
        ("test06-end-last", "error", "[rules] TEST06: end of sequence", "nothing follows the end", _AGAIN),
        ("caching-pace", "error", "[ours]", "repeated samples are not answered faster than unique ones", _MACHINE),
        ("caching-second-reference", "error", "[ours]", "unique samples are not answered faster later on", _MACHINE),
        ("caching-lengths", "error", "[ours]", "repeated answers are as long as in the reference", _AGAIN),
        ("caching-answered", "error", "[ours]", "the samples asked for were answered", _AGAIN),
        ("caching-engine", "error", "[rules] no caching of queries", "the engine caches no prompts",
         "run with prefix caching off"),
        ("caching-tokens", "error", "[rules] no caching of queries", "no prompt token came from a cache",
         "run with prefix caching off"),
        ("consistency-tokens", "error", "[ours]", "performance answers are the accuracy leg's, by tokens", _AGAIN),
        ("consistency-hashes", "error", "[ours]", "performance answers are the accuracy leg's, by hashes", _AGAIN),
        ("consistency-record", "error", "[ours]", "LoadGen's log and our record tell of the same answers", _AGAIN),
        ("length-samples", "error", "[ours]", "both legs answered the same samples", _AGAIN),
        ("length-mean", "error", "[ours]", "performance answers are as long as the accuracy leg's", _AGAIN),
        ("test04-judgement", "note", "[ours]", "what end-to-end numbers say beside the official comparison", ""),
    ),
)  # fmt: skip
