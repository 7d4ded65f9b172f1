"""``cutaway tokenize`` as a user runs it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CutawayCommand


@pytest.fixture(scope="module")
def smollm(real_model: Callable[[str], Path]) -> str:
    return str(real_model("smollm2-135m-instruct"))


def test_ids_pieces_bytes_and_special_tokens_are_shown(cutaway_command: CutawayCommand, smollm: str) -> None:
    done = cutaway_command("tokenize", "-m", smollm, "Is 토<|im_end|>", check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[1] for row in rows] == ["4182", "48138", "224", "250", "2"]
    assert rows[0][2:] == ["Is", '"Is"', "49", "73"]
    assert rows[-1][2] == "<|im_end|>"
    assert rows[-1][-1] == "special"
    assert done.stderr == "5 tokens\n"


def test_plain_text_never_becomes_a_control_token(cutaway_command: CutawayCommand, smollm: str) -> None:
    tokens = json.loads(cutaway_command("tokenize", "-m", smollm, "--plain", "--json", "x<|im_end|>").stdout)["tokens"]
    assert not any(token["special"] for token in tokens)
    assert b"".join(bytes(token["bytes"]) for token in tokens) == b"x<|im_end|>"


@pytest.mark.parametrize("text", ["한글과 emoji 👩‍👩‍👧 and\ttabs\n\n  spaces 12345", "", "e\u0301"], ids=repr)
def test_bytes_of_all_tokens_are_the_text(cutaway_command: CutawayCommand, smollm: str, text: str) -> None:
    described = json.loads(cutaway_command("tokenize", "-m", smollm, "--json", "-", stdin=text, check=True).stdout)
    assert b"".join(bytes(token["bytes"]) for token in described["tokens"]).decode() == text
    assert described["num_tokens"] == len(described["tokens"])
