"""A tokenizer without files, for engines without a model: one id a UTF-8 byte."""

from collections.abc import Iterable, Sequence

from runs.errors import InputError

BOS_ID = 256
EOS_ID = 257


class ByteTokenizer:
    """Ids 0 to 255 are bytes, 256 begins a text and 257 ends one."""

    vocab_size = 258
    eos_token_id = EOS_ID
    fingerprint = "bytes-1"

    def encode(self, text: str) -> list[int]:
        """BOS and the bytes of `text`."""
        return [BOS_ID, *text.encode(errors="replace")]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        return [self.encode(text) for text in texts]

    def batch_decode(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """The text of each sequence of ids, without begin and end; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InputError: an id outside 0 to 257.
        """
        return list(map(_decoded, sequences))


def _decoded(ids: Iterable[int]) -> str:
    content = bytearray()
    for token_id in ids:
        if not 0 <= token_id <= EOS_ID:
            raise InputError(f"token id {token_id} is outside 0 to {EOS_ID}, the ids of the byte tokenizer")
        if token_id < BOS_ID:
            content.append(token_id)
    return content.decode(errors="replace")
