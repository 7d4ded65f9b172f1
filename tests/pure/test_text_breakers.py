"""Which tokens of a vocabulary break a repetition, against a search in what they spell."""

from itertools import product

import pytest

from cutaway.text.breakers import BreakerFinder
from cutaway.text.fake import ByteTokenizer
from cutaway.text.tokenizer import Encoding


class PieceTokenizer(ByteTokenizer):
    """Takes the longest piece each time; may put a space in front, like SentencePiece."""

    def __init__(self, pieces: list[str], adds_space: bool = False) -> None:
        super().__init__()
        self.pieces = pieces
        self.vocab_size = len(pieces)
        self.adds_space = adds_space

    def encode(self, text: str) -> Encoding:
        text = " " + text if self.adds_space else text
        token_ids = []
        while text:
            piece = max((piece for piece in self.pieces if text.startswith(piece)), key=len)
            token_ids.append(self.pieces.index(piece))
            text = text[len(piece) :]
        return Encoding(tuple(token_ids), ((0, 0),) * len(token_ids))

    def escape(self, text: str) -> str:
        return text

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id].encode()


PIECES = ["a", "b", "c", ".", "\n", " ", "ab", "a.", ".\n", "bc", "b.\n", "..", "c\n\n"]


@pytest.mark.parametrize("text", ["\n", ".", "a", ".\n", "\n\n", "abc", "b.", "x"])
@pytest.mark.parametrize("adds_space", [False, True])
def test_a_breaker_is_found_wherever_it_lies_across_tokens(text: str, adds_space: bool) -> None:
    pieces = [*PIECES, "x"]
    found = BreakerFinder(PieceTokenizer(pieces, adds_space)).find((text,))
    assert found.single_ids == {index for index, piece in enumerate(pieces) if text in piece}
    for heads, rest in found.sequences:
        for head in heads:
            assert text in "".join(pieces[token_id] for token_id in (head, *rest)), "what is found has it"
        assert not found.single_ids & heads
    # Two tokens that have it only together begin with one that is found, unless the rest is encoded otherwise.
    all_heads = frozenset().union(*(heads for heads, _ in found.sequences))
    for first, second in product(range(len(pieces)), repeat=2):
        together = pieces[first] + pieces[second]
        if text in together and text not in pieces[first] and text not in pieces[second]:
            assert first in all_heads


def test_several_breakers_are_found_together_and_remembered() -> None:
    finder = BreakerFinder(PieceTokenizer(PIECES))
    found = finder.find(("\n", "bc"))
    assert found.single_ids == {4, 8, 9, 10, 12}
    assert found.sequences == (({1, 6}, (2,)),)
    assert finder.find(("\n", "bc")) is found
    assert finder.find(()).single_ids == frozenset()


def test_a_character_of_several_tokens_is_found_as_it_is_encoded() -> None:
    found = BreakerFinder(ByteTokenizer()).find(("…",))
    assert found.single_ids == frozenset()
    first, *rest = "…".encode()
    assert found.sequences == (({first}, tuple(rest)),)
