"""Quality on a text: how perplexity is computed, and that of the native kernels beside float32."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench.perplexity import TEXT, Variant, compare, cut_windows, score
from cutaway.executor.torch_model import TorchModel
from cutaway.kernels import native
from cutaway.models.build import load_decoder
from cutaway.models.native import load_native
from cutaway.text.fake import BOS_ID, ByteTokenizer
from cutaway.text.load import load_text
from cutaway.weights.checkpoint import open_checkpoint

CONTEXT = 512
MAX_RATIO = 1.005


def test_a_text_is_cut_into_whole_windows_of_which_the_second_half_is_scored() -> None:
    windows = cut_windows(ByteTokenizer(), "abcdefghijklmnopq\n", 8)
    assert [bytes(window.token_ids.tolist()) for window in windows] == [b"abcdefgh", b"ijklmnop"]
    assert [(window.first, bytes(window.targets.tolist())) for window in windows] == [(4, b"fgh"), (4, b"nop")]


def test_bos_stands_before_the_text_and_in_place_of_the_first_token_of_each_window() -> None:
    windows = cut_windows(ByteTokenizer(BOS_ID), "abcdefghijklmno\n", 8)
    assert [window.token_ids.tolist() for window in windows] == [[BOS_ID, *b"abcdefg"], [BOS_ID, *b"ijklmno"]]


def test_a_last_line_break_counts_for_nothing() -> None:
    assert len(cut_windows(ByteTokenizer(), "abcdefg\n", 8)) == 0
    assert len(cut_windows(ByteTokenizer(), "abcdefgh\n", 8)) == 1


def test_scores_are_those_worked_out_by_hand() -> None:
    exact = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    ours = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]).log()
    scores = score(ours, exact, torch.tensor([0, 2]))
    assert scores.perplexity == pytest.approx((4 * 1.25) ** 0.5)
    assert scores.divergence.tolist() == pytest.approx([0.25 * math.log(2), 0], abs=1e-7)
    assert scores.agrees.tolist() == [False, True]
    ratio, error = scores.ratio_to(score(exact, exact, torch.tensor([0, 2])))
    assert ratio == pytest.approx(2**0.5)
    assert error == pytest.approx(ratio * math.log(2) / 2)


def test_the_text_is_the_one_that_is_described() -> None:
    description = (TEXT.parent / "README.md").read_text(encoding="utf-8")
    assert f"`{hashlib.sha256(TEXT.read_bytes()).hexdigest()}`" in description


@pytest.mark.parametrize(
    ("name", "num_windows", "max_divergence"),
    [
        ("smollm2-135m-instruct", 4, 0.004),
        ("qwen2.5-coder-0.5b-instruct", 2, 0.0014),
        ("gemma-3-270m", 2, 0.003),
    ],
)
def test_native_kernels_foresee_a_text_about_as_well_as_float32(
    name: str, num_windows: int, max_divergence: float, real_model: Callable[[str], Path]
) -> None:
    checkpoint = open_checkpoint(real_model(name))
    windows = cut_windows(load_text(checkpoint)[0], TEXT.read_text(encoding="utf-8"), CONTEXT)
    assert len(windows) >= 39
    exact = Variant(TorchModel(load_decoder(checkpoint, torch.float32)), 4)
    ours = Variant(load_native(checkpoint, native.instruction_sets()[0], 2), 2)
    expected, scores = compare(exact, {"native": ours}, windows[:num_windows])
    ratio, error = scores["native"].ratio_to(expected)
    # Chance moves the ratio of a few windows by more than the limit: bench.perplexity takes the whole text. Divergence
    # is what the ratio's logarithm would come to on text that float32 writes, and steady from window to window.
    assert abs(math.log(ratio)) < math.log(MAX_RATIO) + 2 * error
    assert 0 < scores["native"].divergence.mean() < max_divergence
