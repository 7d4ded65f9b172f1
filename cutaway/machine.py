"""What this machine offers: processor features, cores, and memory, as far as this process may use them.

Owns the reading of ``/proc``, ``/sys`` and, on macOS, ``sysctl``. Refuses to know torch and models; imports the
standard library only. Invariants: a limit set on the container (cgroup v1 or v2), or on the process, counts like
one of the machine; what cannot be found out is an empty string or a cautious number, never an error. The functions
that begin with ``parse`` are pure.
"""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# What kernels choose by, under the name that the field uses, and as Linux and macOS spell it.
FEATURES: Mapping[str, tuple[str, ...]] = {
    "avx2": ("avx2",),
    "fma": ("fma",),
    "f16c": ("f16c",),
    "avx512f": ("avx512f",),
    "avx512_vnni": ("avx512_vnni", "avx512vnni"),
    "avx_vnni": ("avx_vnni",),
    "avx512_bf16": ("avx512_bf16",),
    "avx512_fp16": ("avx512_fp16",),
    "amx_tile": ("amx_tile",),
    "amx_int8": ("amx_int8",),
    "amx_bf16": ("amx_bf16",),
    "neon": ("asimd", "neon", "hw.optional.neon", "hw.optional.advsimd"),
    "dotprod": ("asimddp", "hw.optional.arm.feat_dotprod"),
    "i8mm": ("i8mm", "hw.optional.arm.feat_i8mm"),
    "bf16": ("bf16", "hw.optional.arm.feat_bf16"),
    "sve": ("sve",),
    "sve2": ("sve2",),
    "sme": ("sme", "hw.optional.arm.feat_sme"),
}

# Of these, any one makes products of bfloat16 numbers faster than those of float32.
BF16_FEATURES = frozenset({"avx512_bf16", "amx_bf16", "bf16"})

# ARM's cores tell a number instead of a name (Arm's Main ID Register, part numbers of implementer 0x41).
ARM_PARTS = {"0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd49": "Neoverse N2", "0xd4f": "Neoverse V2"}

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor, as this process sees it.

    Attributes:
        model: its name.
        architecture: as ``uname`` spells it: ``x86_64``, ``aarch64``, ``arm64``.
        features: those of ``FEATURES`` that it has.
        num_physical_cores: cores that this process may run on; two threads of one core count once.
        num_logical_cores: threads of execution that this process may run on.
        num_usable_cores: how many threads of arithmetic are worth starting: the physical cores, or fewer when the
            container may use less processor time than that.
    """

    model: str
    architecture: str
    features: tuple[str, ...]
    num_physical_cores: int
    num_logical_cores: int
    num_usable_cores: int

    @property
    def has_bfloat16(self) -> bool:
        """Whether products of bfloat16 numbers are faster here than those of float32."""
        return not BF16_FEATURES.isdisjoint(self.features)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes; page cache counts as available, because the system gives it back.

    Attributes:
        total_bytes: what the machine has, or what the container may use if that is less.
        available_bytes: what can be had now without swapping.
        limited_by: who sets the limit: ``machine`` or ``cgroup``.
    """

    total_bytes: int
    available_bytes: int
    limited_by: str


def read_cpu(root: Path = ROOT) -> Cpu:
    """The processor; ``root`` is where ``proc`` and ``sys`` lie."""
    if sys.platform == "darwin" and root == ROOT:
        return _mac_cpu()
    text = _read(root / "proc/cpuinfo")
    allowed = _allowed_cpus() if root == ROOT else _listed_cpus(root)
    num_logical = max(1, len(allowed))
    num_physical = len({siblings for cpu in allowed if (siblings := _siblings(root, cpu))}) or num_logical
    model, features = parse_cpuinfo(text)
    quota = _cpu_quota(root)
    num_usable = num_physical if quota is None else max(1, min(num_physical, int(quota)))
    return Cpu(model, platform.machine(), features, num_physical, num_logical, num_usable)


def read_memory(root: Path = ROOT) -> Memory:
    """The memory; ``root`` is where ``proc`` and ``sys`` lie."""
    if sys.platform == "darwin" and root == ROOT:
        return _mac_memory()
    total, available = parse_meminfo(_read(root / "proc/meminfo"))
    limits = [(limit, used) for limit, used in _memory_limits(root) if limit < total]
    if not limits:
        return Memory(total, available, "machine")
    room = min(max(0, limit - used) for limit, used in limits)  # a group also shares the limits of those above it
    return Memory(min(limit for limit, _ in limits), min(available, room), "cgroup")


def available_memory_bytes() -> int:
    """Memory that can be had now without swapping, inside the limits of the container and of this process."""
    room = address_room_bytes()
    available = read_memory().available_bytes
    return available if room is None else min(available, room)


def address_room_bytes() -> int | None:
    """Bytes of address space that this process may still take (``ulimit -v``); ``None`` without a limit."""
    if sys.platform != "linux":
        return None
    import resource  # not on every platform

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    used = int(_read(ROOT / "proc/self/statm").split()[0]) * resource.getpagesize()
    return max(0, limit - used)


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and features from the text of ``/proc/cpuinfo``; of several processors, the first one's."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    model = fields.get("model name") or fields.get("hardware", "")
    if not model and (part := fields.get("cpu part")):
        model = f"Arm {ARM_PARTS[part]}" if part in ARM_PARTS else f"Arm core, part {part}"
    return model, _features(flags)


def parse_meminfo(text: str) -> tuple[int, int]:
    """Total and available bytes from the text of ``/proc/meminfo``; zeros for what it does not say."""
    sizes = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            sizes[key] = int(words[0]) * 1024
    total = sizes.get("MemTotal", 0)
    free = sizes.get("MemFree", 0) + sizes.get("Cached", 0)  # kernels before 3.14 have no MemAvailable
    return total, sizes.get("MemAvailable", min(total, free))


def parse_cgroups(text: str) -> dict[str, str]:
    """Path of this process in each hierarchy, from ``/proc/self/cgroup``: by controller, and v2 under ``""``."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def parse_sysctl(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and features from the output of ``sysctl machdep.cpu hw.optional`` on macOS."""
    model, flags = "", set()
    for line in text.splitlines():
        key, _, value = (word.strip() for word in line.partition(":"))
        if key == "machdep.cpu.brand_string":
            model = value
        elif key in ("machdep.cpu.features", "machdep.cpu.leaf7_features"):
            flags.update(value.lower().split())
        elif key.startswith("hw.optional.") and value == "1":
            flags.add(key.lower())
    return model, _features(flags)


def parse_vm_stat(text: str) -> int:
    """Available bytes from the output of ``vm_stat`` on macOS."""
    page_bytes, num_pages = 4096, 0
    for line in text.splitlines():
        if "page size of" in line:
            page_bytes = int(line.partition("page size of")[2].split()[0])
        key, _, value = line.partition(":")
        if key in ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable"):
            num_pages += int(value.strip().rstrip("."))
    return num_pages * page_bytes


def _features(flags: set[str]) -> tuple[str, ...]:
    return tuple(name for name, spellings in FEATURES.items() if not flags.isdisjoint(spellings))


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each group with a limit that this process is in."""
    paths = parse_cgroups(_read(root / "proc/self/cgroup"))
    mount = root / "sys/fs/cgroup"
    for folder in _ancestry(mount, paths.get("")):
        if (limit := _number(folder / "memory.max")) is not None:
            cache = _file_cache(folder, ("inactive_file", "active_file"))
            yield limit, (_number(folder / "memory.current") or 0) - cache
    for folder in _ancestry(mount / "memory", paths.get("memory")):
        if (limit := _number(folder / "memory.limit_in_bytes")) is not None:
            cache = _file_cache(folder, ("total_inactive_file", "total_active_file"))
            yield limit, (_number(folder / "memory.usage_in_bytes") or 0) - cache


def _cpu_quota(root: Path) -> float | None:
    """Cores' worth of time that this process may use, or ``None`` without such a limit."""
    paths = parse_cgroups(_read(root / "proc/self/cgroup"))
    mount = root / "sys/fs/cgroup"
    quotas = []
    for folder in _ancestry(mount, paths.get("")):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    for folder in _ancestry(mount / "cpu", paths.get("cpu")):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota is not None and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _ancestry(mount: Path, path: str | None) -> Iterator[Path]:
    """The group's folder and those above it. Inside a container the path may be the host's: then only the top is."""
    if path is None:
        return
    folder = mount / path.strip("/")
    while folder != mount:
        yield folder
        folder = folder.parent
    yield mount


def _file_cache(folder: Path, keys: tuple[str, ...]) -> int:
    lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in keys)


def _allowed_cpus() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset(range(os.cpu_count() or 1))


def _listed_cpus(root: Path) -> frozenset[int]:
    names = (path.name.removeprefix("cpu") for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"))
    return frozenset(int(name) for name in names if name.isdigit())


def _siblings(root: Path, cpu: int) -> str:
    return _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").strip()


def _number(path: Path) -> int | None:
    """The number in a file, or ``None`` where it says ``max`` or -1 or is not there."""
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _mac_cpu() -> Cpu:
    model, features = parse_sysctl(_output("sysctl", "machdep.cpu", "hw.optional"))
    num_logical = os.cpu_count() or 1
    # Apple's efficiency cores would hold back the others at every barrier; older machines have one kind only.
    performance = _output("sysctl", "-n", "hw.perflevel0.physicalcpu").strip()
    physical = _output("sysctl", "-n", "hw.physicalcpu").strip()
    num_physical = int(physical) if physical.isdigit() else num_logical
    num_usable = int(performance) if performance.isdigit() else num_physical
    return Cpu(model, platform.machine(), features, num_physical, num_logical, num_usable)


def _mac_memory() -> Memory:
    total = _output("sysctl", "-n", "hw.memsize").strip()
    available = parse_vm_stat(_output("vm_stat"))
    return Memory(int(total) if total.isdigit() else available, available, "machine")


def _output(program: str, *arguments: str) -> str:
    import subprocess

    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
