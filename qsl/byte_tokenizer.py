"""A tokenizer without files, for engines without a model: one id a UTF-8 byte."""

from collections.abc import Iterable, Sequence

from runs.errors import InputError

BOS_ID = 256
EOS_ID = 257
_SPECIAL_TEXT = {BOS_ID: "<s>", EOS_ID: "</s>"}


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

    def batch_decode(self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = True) -> list[str]:
        """The text of each sequence of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InputError: an id outside 0 to 257.
        """
        return [self._decode(sequence, skip_special_tokens) for sequence in sequences]

    def _decode(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        content = bytearray()
        for token_id in ids:
            if 0 <= token_id < 256:
                content.append(token_id)
            elif token_id not in _SPECIAL_TEXT:
                raise InputError(f"token id {token_id} is outside 0 to {EOS_ID}, the ids of the byte tokenizer")
            elif not skip_special_tokens:
                content += _SPECIAL_TEXT[int(token_id)].encode()
        return content.decode(errors="replace")
