"""Builds the native kernels into the package. Without a C++ compiler there are none, and the package runs on torch."""

import os
import platform
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("cutaway/kernels/cpp")
LIBRARY = Path("cutaway/kernels/_native.so")
FLAGS = [
    *("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"),
    # Rounded where the source says so, and nowhere else.
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
]
# kernels.cpp is compiled once for each of these that the compiler knows; which one runs is decided when the library is
# loaded.
INSTRUCTION_SETS: dict[str, list[str]] = {"portable": []}
if platform.machine() in ("x86_64", "AMD64"):
    INSTRUCTION_SETS["avx2"] = ["-march=x86-64-v3"]
    INSTRUCTION_SETS["avx512"] = ["-march=x86-64-v4", "-mavx512vnni", "-mprefer-vector-width=512"]
    INSTRUCTION_SETS["amx"] = [*INSTRUCTION_SETS["avx512"], "-mamx-tile", "-mamx-int8", "-mamx-bf16", "-mavx512bf16"]


class NativeKernels(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before it builds, also for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; see ``BuildHookInterface.initialize``."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
        (root / LIBRARY).unlink(missing_ok=True)
        if compiler is None or os.name != "posix":
            self._tell("there is no C++ compiler; the package will run on torch alone, which is slower")
            return
        try:
            _build(compiler, root)
        except subprocess.CalledProcessError as error:
            self._tell(f"the native kernels cannot be built; the package will run on torch alone:\n{error.stderr}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(str(LIBRARY))

    def _tell(self, message: str) -> None:
        print(f"cutaway: {message}", file=sys.stderr)


def _build(compiler: str, root: Path) -> None:
    with TemporaryDirectory() as folder:
        objects = Path(folder)

        def compilation(source: Path, name: str, flags: list[str]) -> list[str | Path]:
            return [*FLAGS, *flags, "-c", source, "-o", objects / f"{name}.o"]

        known = [name for name, flags in INSTRUCTION_SETS.items() if _knows(compiler, flags)]
        jobs = [
            compilation(SOURCES / "kernels.cpp", name, [*INSTRUCTION_SETS[name], f"-DCUTAWAY_ISA={name}"])
            for name in known
        ]
        has = [f"-DCUTAWAY_HAS_{name.upper()}" for name in known]
        has.append(f'-DCUTAWAY_SOURCES="{_digest(root)}"')
        jobs += [compilation(SOURCES / f"{name}.cpp", name, has) for name in ("api", "decoder", "pack", "pool", "work")]

        def compile_one(arguments: list[str | Path]) -> None:
            command = [compiler, *map(str, arguments)]
            subprocess.run(command, check=True, cwd=root, capture_output=True, text=True)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, jobs))
        library = objects / LIBRARY.name
        compile_one(["-shared", "-pthread", *objects.glob("*.o"), "-o", library])
        shutil.move(library, root / LIBRARY)


def _digest(root: Path) -> str:
    digest: str = runpy.run_path(str(root / "cutaway/kernels/sources.py"))["digest"]()
    return digest


def _knows(compiler: str, flags: list[str]) -> bool:
    """Whether a compiler, which may be older than an instruction set, takes its flags."""
    command = [compiler, *flags, "-x", "c++", "-fsyntax-only", os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0
