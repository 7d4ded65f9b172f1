"""How tokens spell bytes, and what the library's errors become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from cutaway.errors import CorruptFile, InvalidValue
from cutaway.text.vocabulary import BYTE_TO_CHAR, CHAR_TO_BYTE, Alphabet, contained, spell_out

DECODER = decoders.ByteLevel()


def test_the_byte_level_alphabet_is_a_bijection_that_keeps_printable_ascii():
    assert len(BYTE_TO_CHAR) == len(CHAR_TO_BYTE) == 256
    assert all(BYTE_TO_CHAR[byte] == chr(byte) for byte in range(0x21, 0x7F))
    assert (BYTE_TO_CHAR[0x20], BYTE_TO_CHAR[0x0A], BYTE_TO_CHAR[0xAD]) == ("Ġ", "Ċ", "Ń")


@given(st.lists(st.text(min_size=1, max_size=6)))
def test_byte_level_pieces_spell_what_the_library_decodes(pieces):
    spelled = b"".join(spell_out(piece, Alphabet.BYTE_LEVEL) for piece in pieces)
    assert spelled.decode("utf-8", "replace") == DECODER.decode(pieces)


@given(st.binary(max_size=30))
def test_bytes_come_back_through_their_stand_ins(data):
    assert spell_out("".join(BYTE_TO_CHAR[byte] for byte in data), Alphabet.BYTE_LEVEL) == data


@pytest.mark.parametrize(
    ("piece", "spelled"),
    [
        ("▁tom", b" tom"),
        ("▁▁", b"  "),
        ("<0x0A>", b"\n"),
        ("<0xFF>", b"\xff"),
        ("<0xff>", b"<0xff>"),
        ("é", "é".encode()),
    ],
)
def test_sentence_piece_pieces_spell_spaces_and_bytes(piece, spelled):
    assert spell_out(piece, Alphabet.SENTENCE_PIECE) == spelled


def test_errors_of_the_library_become_ours_and_panics_too():
    class PanicException(BaseException):
        pass

    for cause in (ValueError("why"), Exception("why"), PanicException("why")):
        with (
            pytest.raises(CorruptFile, match="broken: why") as caught,
            contained(CorruptFile("broken", hint="mend it")),
        ):
            raise cause
        assert caught.value.hint == "mend it"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), InvalidValue("x", "y"), SystemExit(3)])
def test_what_is_not_the_library_s_fault_goes_on(error):
    with pytest.raises(type(error)) as caught, contained(CorruptFile("broken")):
        raise error
    assert caught.value is error
