"""Metadata getters: the right type inside its limits, or an error that says which key, value and limit."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway.errors import CorruptFile
from cutaway.weights.metadata import Metadata, PackedArray, flatten

PATH = Path("config.json")


def of(value: object) -> Metadata:
    return Metadata(PATH, {"key": value})


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda m: m.integer("key"), 7),
        (lambda m: m.number("key"), 0.5),
        (lambda m: m.text("key"), "word"),
        (lambda m: m.flag("key"), False),
        (lambda m: m.strings("key"), ("a", "b")),
        (lambda m: m.integers("key"), (1, 2)),
        (lambda m: m.numbers("key"), (0.5, 2.0)),
    ],
)
def test_a_value_of_the_right_type_comes_back_unchanged(read: Callable[[Metadata], object], value: object) -> None:
    assert read(of(value)) == value
    assert type(read(of(value))) is type(value)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (lambda m: m.integer("key"), [1.0, "1", True, [1], {}]),
        (lambda m: m.number("key"), ["1", True, [1], math.nan, math.inf, 10**400]),
        (lambda m: m.text("key"), [1, ["a"], True]),
        (lambda m: m.flag("key"), [0, 1, "true"]),
        (lambda m: m.strings("key"), [1, ["a", 1], [["a"]], {"a": 1}]),
        (lambda m: m.integers("key"), ["1", [1, True], [1, 1.0], ["1"], 1.5]),
        (lambda m: m.numbers("key"), ["1", [1.0, math.nan], [True], [10**400]]),
    ],
)
def test_a_value_of_another_type_is_refused_with_key_and_value(
    read: Callable[[Metadata], object], wrong: list[object]
) -> None:
    for value in wrong:
        with pytest.raises(CorruptFile) as error:
            read(of(value))
        assert "config.json: 'key' must be" in error.value.message
        assert repr(value)[:40] in error.value.message
        assert error.value.hint


@pytest.mark.parametrize("name", ["integer", "number", "text", "flag", "strings", "integers", "numbers"])
def test_a_missing_or_null_key_is_refused_unless_there_is_a_default(name: str) -> None:
    defaults = {"integer": 0, "number": 0.0, "text": "", "flag": False, "strings": (), "integers": (), "numbers": ()}
    for metadata in (Metadata(PATH, {}), of(None)):
        with pytest.raises(CorruptFile, match=r"config\.json: the metadata have no 'key'"):
            getattr(metadata, name)("key")
        assert getattr(metadata, name)("key", default=defaults[name]) == defaults[name]


def test_limits_are_inclusive_and_named() -> None:
    assert of(1).integer("key", minimum=1, maximum=5) == 1
    assert of(5).integer("key", minimum=1, maximum=5) == 5
    for value in (0, 6, -(10**30), 10**30):
        with pytest.raises(CorruptFile, match="at least 1 and of at most 5, but is"):
            of(value).integer("key", minimum=1, maximum=5)
    assert of(0.5).number("key", minimum=0.5) == 0.5
    with pytest.raises(CorruptFile, match=r"a finite number of at least 0\.5, but is 0\.4"):
        of(0.4).number("key", minimum=0.5)
    assert of([3, 9]).integers("key", minimum=3, maximum=9) == (3, 9)
    for values in ([2, 9], [3, 10]):
        with pytest.raises(CorruptFile, match="at least 3 and of at most 9"):
            of(values).integers("key", minimum=3, maximum=9)


def test_a_default_must_keep_the_limits_too() -> None:
    with pytest.raises(CorruptFile):
        Metadata(PATH, {}).integer("key", default=0, minimum=1)


def test_a_whole_number_is_a_number_and_a_single_value_is_a_list() -> None:
    assert of(3).number("key") == 3.0
    assert isinstance(of(3).number("key"), float)
    assert of([1, 2]).numbers("key") == (1.0, 2.0)
    assert of(3).integers("key") == (3,)
    assert of(0.5).numbers("key") == (0.5,)
    assert of("a").strings("key") == ("a",)


def test_packed_arrays_are_unpacked_only_when_the_kind_is_right() -> None:
    def explode() -> tuple[object, ...]:
        raise AssertionError("unpacked in vain")

    assert of(PackedArray("integer", 2, lambda: (1, 2))).integers("key") == (1, 2)
    assert of(PackedArray("integer", 2, lambda: (1, 2))).numbers("key") == (1.0, 2.0)
    packed = of(PackedArray("text", 49_152, explode))
    for read in (packed.integers, packed.numbers, packed.integer, packed.text):
        with pytest.raises(CorruptFile, match="but is an array of 49,152 elements of kind text"):
            read("key")


def test_a_long_value_is_shortened_in_messages() -> None:
    with pytest.raises(CorruptFile) as error:
        of("x" * 100_000).integer("key")
    assert len(error.value.message) < 200


def test_nested_objects_are_reached_by_dots() -> None:
    tree = {"a": 1, "rope_scaling": {"factor": 8.0, "deep": {"er": "x"}}, "list": [{"b": 1}], "none": None}
    metadata = Metadata(PATH, flatten(PATH, tree))
    assert metadata.number("rope_scaling.factor") == 8.0
    assert metadata.text("rope_scaling.deep.er") == "x"
    assert "rope_scaling" in metadata
    assert "none" not in metadata


def test_two_keys_that_become_one_and_bottomless_nesting_are_refused() -> None:
    with pytest.raises(CorruptFile, match=r"'a\.b' is there twice"):
        flatten(PATH, {"a.b": 1, "a": {"b": 2}})
    tree: dict[str, object] = {}
    for _ in range(9):
        tree = {"n": tree}
    with pytest.raises(CorruptFile, match="deeper than 8"):
        flatten(PATH, tree)
