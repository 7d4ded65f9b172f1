"""GGUF models in several files: any part opens all, and a set that does not belong together is refused."""

from pathlib import Path

import pytest
from model_bytes import ARCHITECTURE, Tensor, Value, gguf_bytes

from cutaway.errors import CorruptFile, UnknownModel
from cutaway.weights.gguf_split import read_gguf_model


def write_part(
    folder: Path, number: int, count: int, tensors: list[str], *, said: tuple[int, int] | None = None, total: int = 4
) -> Path:
    """Part ``number`` of ``count`` by its name; by its metadata too, unless ``said`` has other numbers."""
    said_number, said_count = said or (number, count)
    metadata = {
        **(ARCHITECTURE if number == 1 else {}),
        "split.no": Value(2, said_number - 1),
        "split.count": Value(2, said_count),
        "split.tensors.count": Value(5, total),
    }
    path = folder / f"tiny-{number:05}-of-{count:05}.gguf"
    path.write_bytes(gguf_bytes(metadata, {name: Tensor((2,)) for name in tensors}))
    return path


def write_three(folder: Path) -> list[Path]:
    return [write_part(folder, number, 3, names) for number, names in enumerate((["a"], [], ["b", "c", "d"]), start=1)]


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_part_opens_all_parts_in_order(tmp_path: Path, opened: int) -> None:
    paths = write_three(tmp_path)
    parts = read_gguf_model(paths[opened])
    assert [part.file.path for part in parts] == paths
    assert [tensor.name for part in parts for tensor in part.file.tensors] == ["a", "b", "c", "d"]
    assert parts[0].metadata.text("general.architecture") == "llama"


@pytest.mark.parametrize("count", [0, 1])
def test_a_merged_file_is_whole_whatever_its_name(tmp_path: Path, count: int) -> None:
    path = tmp_path / "merged.gguf"
    path.write_bytes(gguf_bytes({**ARCHITECTURE, "split.count": Value(2, count)}))
    assert len(read_gguf_model(path)) == 1


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(tmp_path: Path, missing: int) -> None:
    paths = write_three(tmp_path)
    paths[missing].unlink()
    with pytest.raises(CorruptFile) as error:
        read_gguf_model(paths[missing - 1])
    assert error.value.message == f"{paths[missing]}: part {missing + 1} of 3 is missing"
    assert error.value.hint


def test_a_missing_file_that_is_asked_for_is_an_unknown_model(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    paths[0].unlink()
    with pytest.raises(UnknownModel):
        read_gguf_model(paths[0])


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-40])
    with pytest.raises(CorruptFile, match="00003-of-00003"):
        read_gguf_model(paths[0])


def test_a_part_under_another_name_is_refused_with_the_name_that_is_expected(tmp_path: Path) -> None:
    path = write_three(tmp_path)[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(CorruptFile, match=r"one of 3 parts.*-00001-of-00003\.gguf"):
        read_gguf_model(path)


def test_parts_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    write_part(tmp_path, 2, 3, [], said=(3, 3))
    with pytest.raises(CorruptFile, match="part 2 of 3, but it says that it is part 3 of 3"):
        read_gguf_model(paths[0])


def test_a_part_of_another_split_is_refused(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    write_part(tmp_path, 3, 3, ["b", "c", "d"], said=(3, 4))
    with pytest.raises(CorruptFile, match="says that it is part 3 of 4"):
        read_gguf_model(paths[0])


def test_a_wrong_number_of_tensors_is_refused(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    write_part(tmp_path, 2, 3, ["extra"])
    with pytest.raises(CorruptFile, match=r"5 tensors together, but split\.tensors\.count says 4"):
        read_gguf_model(paths[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = write_three(tmp_path)
    write_part(tmp_path, 2, 3, ["a"])
    with pytest.raises(CorruptFile, match="tensor 'a' is also in"):
        read_gguf_model(paths[0])


def test_an_absurd_number_of_parts_is_refused(tmp_path: Path) -> None:
    path = write_part(tmp_path, 1, 60_000, ["a"])
    with pytest.raises(CorruptFile, match=r"split\.count"):
        read_gguf_model(path)
