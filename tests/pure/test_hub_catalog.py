import re

import pytest

from cutaway.config import DEFAULT_MODEL
from cutaway.hub.catalog import BUILT_IN, Purpose, nearest_names
from cutaway.hub.store import NAME

SHA256 = re.compile(r"[0-9a-f]{64}")


def test_the_default_model_is_in_the_catalogue_and_offered_to_everyone():
    assert BUILT_IN[DEFAULT_MODEL].purpose is Purpose.EVERYONE


def test_every_file_of_the_catalogue_is_pinned_by_size_and_digest():
    for entry in BUILT_IN.values():
        assert SHA256.fullmatch(entry.sha256)
        assert entry.num_bytes > 0
        assert entry.parts
        for part in entry.parts:
            assert SHA256.fullmatch(part.sha256)
            assert part.num_bytes > 0


def test_no_wheel_and_no_digest_is_listed_twice():
    parts = [part for entry in BUILT_IN.values() for part in entry.parts]
    for values in ([part.filename for part in parts], [part.sha256 for part in parts], [part.member for part in parts]):
        assert len(set(values)) == len(values)


def test_wheels_belong_to_the_project_that_is_asked_for_them():
    for entry in BUILT_IN.values():
        for part in entry.parts:
            assert part.filename.startswith(part.project.replace("-", "_") + "-")
            assert part.member.startswith(part.project.replace("-", "_") + "/")


def test_names_are_those_of_their_keys_and_can_be_file_names():
    for name, entry in BUILT_IN.items():
        assert entry.name == name
        assert NAME.fullmatch(name)


def test_every_entry_names_a_licence_and_where_to_read_it():
    for entry in BUILT_IN.values():
        assert entry.licence
        assert entry.licence_url.startswith("https://")


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        BUILT_IN["another"] = BUILT_IN[DEFAULT_MODEL]  # type: ignore[index]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("smollm2", "smollm2-135m-instruct"),
        ("SmolLM2-135M-Instruct", "smollm2-135m-instruct"),
        ("smolm2-135m-instruct", "smollm2-135m-instruct"),
        ("smollm2-135m-instuct", "smollm2-135m-instruct"),
        ("gemma", "gemma-3-270m"),
        ("gemma3-270m", "gemma-3-270m"),
        ("qwen2.5-coder", "qwen2.5-coder-0.5b-instruct"),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(typed, meant):
    assert nearest_names(typed, BUILT_IN)[0] == meant


def test_a_name_like_no_other_has_no_nearest_name():
    assert nearest_names("zzz", BUILT_IN) == ()
