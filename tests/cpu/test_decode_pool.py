"""The threads that decode: all chunks are done, errors come out, and torch stays alone in each thread."""

import threading

import pytest
import torch

from cutaway.weights.decode_pool import DecodePool


def test_every_chunk_is_done_once_and_in_other_threads() -> None:
    pool, done, names = DecodePool(), [], set()

    def work(number: int) -> None:
        done.append(number)
        names.add(threading.current_thread().name)

    pool.run(work, range(100))
    pool.close()
    assert sorted(done) == list(range(100))
    assert all(name.startswith("decode") for name in names)


def test_torch_uses_one_thread_inside_and_as_many_as_before_outside() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        pool, inside = DecodePool(), []
        pool.run(lambda _: inside.append(torch.get_num_threads()), range(20))
        pool.close()
        assert set(inside) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_chunk_comes_out() -> None:
    pool = DecodePool()

    def fail(number: int) -> None:
        if number == 7:
            raise KeyError("chunk 7")

    with pytest.raises(KeyError, match="chunk 7"):
        pool.run(fail, range(20))
    pool.close()
