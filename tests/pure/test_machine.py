import os

import pytest

from cutaway.machine import (
    available_memory_bytes,
    parse_cgroups,
    parse_cpuinfo,
    parse_meminfo,
    parse_sysctl,
    parse_vm_stat,
    read_cpu,
    read_memory,
)

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu vme sse2 avx avx2 fma f16c avx512f avx512bw avx_vnni avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu
"""

GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes crc32 atomics asimdhp cpuid asimddp sve i8mm bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""

APPLE = """machdep.cpu.cores_per_package: 10
machdep.cpu.brand_string: Apple M2 Pro
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.AdvSIMD: 1
hw.optional.floatingpoint: 1
"""

INTEL_MAC = """machdep.cpu.brand_string: Intel(R) Core(TM) i7
machdep.cpu.features: FPU SSE2 FMA F16C AVX1.0
machdep.cpu.leaf7_features: AVX2 AVX512F AVX512VNNI
hw.optional.avx2_0: 1
"""

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10.
Pages active:                            999.
Pages inactive:                           20.
Pages speculative:                         3.
Pages wired down:                        999.
Pages purgeable:                           7.
"Translation faults":                1234567.
"""

MIB = 1 << 20


@pytest.mark.parametrize(
    ("parse", "text", "model", "features"),
    [
        (
            *(parse_cpuinfo, XEON, "Intel(R) Xeon(R) Platinum 8480C"),
            "avx2 fma f16c avx512f avx512_vnni avx_vnni avx512_bf16 amx_tile amx_int8 amx_bf16",
        ),
        (parse_cpuinfo, GRAVITON, "Arm Neoverse V1", "neon dotprod i8mm bf16 sve"),
        (parse_cpuinfo, GRAVITON.replace("0xd40", "0xfff"), "Arm core, part 0xfff", "neon dotprod i8mm bf16 sve"),
        (parse_cpuinfo, "", "", ""),
        (parse_cpuinfo, "flags\nnonsense: : :\n:\n", "", ""),
        (parse_sysctl, APPLE, "Apple M2 Pro", "neon dotprod i8mm bf16"),
        (parse_sysctl, INTEL_MAC, "Intel(R) Core(TM) i7", "avx2 fma f16c avx512f avx512_vnni"),
        (parse_sysctl, "", "", ""),
    ],
)
def test_name_and_features_are_read_from_what_the_system_tells(parse, text, model, features):
    assert parse(text) == (model, tuple(features.split()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal: 2000 kB\nMemFree: 100 kB\nMemAvailable: 1500 kB\n", (2000 * 1024, 1500 * 1024)),
        ("MemTotal: 2000 kB\nMemFree: 100 kB\nCached: 300 kB\n", (2000 * 1024, 400 * 1024)),
        ("MemTotal: 200 kB\nMemFree: 100 kB\nCached: 300 kB\n", (200 * 1024, 200 * 1024)),
        ("MemTotal: many kB\nHugePages_Total:\n", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_memory_is_read_from_meminfo(text, expected):
    assert parse_meminfo(text) == expected


def test_available_memory_of_macos_is_read_from_vm_stat():
    assert parse_vm_stat(VM_STAT) == 40 * 16384
    assert parse_vm_stat("") == 0


def test_groups_are_read_by_controller():
    text = "9:cpu,cpuacct:/a\n4:memory:/b:c\n1:name=systemd:/\n0::/d\nnonsense\n"
    assert {key: parse_cgroups(text)[key] for key in ("cpu", "cpuacct", "memory")} == {
        "cpu": "/a",
        "cpuacct": "/a",
        "memory": "/b:c",
    }
    assert parse_cgroups("0::/d\n") == {"": "/d"}
    assert parse_cgroups("") == {}


class FakeRoot:
    """A folder that looks like the root of a machine of 1000 MiB and four cores with two threads each."""

    def __init__(self, path):
        self.path = path
        self.write("proc/meminfo", f"MemTotal: {1000 * 1024} kB\nMemAvailable: {900 * 1024} kB\n")
        self.write("proc/cpuinfo", XEON)
        for cpu in range(8):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")

    def write(self, name, text):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def group_v2(self, path, limit, current, inactive=0, active=0):
        folder = f"sys/fs/cgroup{path}"
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.current", f"{current}\n")
        self.write(f"{folder}/memory.stat", f"anon 5\ninactive_file {inactive}\nactive_file {active}\n")

    def group_v1(self, path, limit, usage, inactive=0, active=0):
        folder = f"sys/fs/cgroup/memory{path}"
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{usage}\n")
        stat = f"inactive_file 1\ntotal_inactive_file {inactive}\ntotal_active_file {active}\n"
        self.write(f"{folder}/memory.stat", stat)

    def memory(self):
        memory = read_memory(self.path)
        return memory.total_bytes // MIB, memory.available_bytes // MIB, memory.limited_by


@pytest.fixture
def root(tmp_path):
    return FakeRoot(tmp_path)


def test_without_groups_the_machine_is_the_limit(root):
    assert root.memory() == (1000, 900, "machine")


def test_the_limit_of_a_v2_group_counts_and_its_page_cache_does_not(root):
    root.write("proc/self/cgroup", "0::/box\n")
    root.group_v2("/box", 300 * MIB, 200 * MIB, inactive=50 * MIB, active=30 * MIB)
    assert root.memory() == (300, 180, "cgroup")


def test_the_limits_of_groups_above_count_too(root):
    root.write("proc/self/cgroup", "0::/outer/inner\n")
    root.group_v2("/outer/inner", 300 * MIB, 10 * MIB)
    root.group_v2("/outer", 400 * MIB, 380 * MIB)
    assert root.memory() == (300, 20, "cgroup")


def test_inside_a_container_the_path_of_the_host_leads_to_the_top(root):
    root.write("proc/self/cgroup", "0::/kubepods/pod1/box\n")
    root.group_v2("", 300 * MIB, 100 * MIB)
    assert root.memory() == (300, 200, "cgroup")


def test_the_limit_of_a_v1_group_counts(root):
    root.write("proc/self/cgroup", "5:memory:/docker/abc\n0::/\n")
    root.group_v1("/docker/abc", 300 * MIB, 200 * MIB, inactive=50 * MIB, active=30 * MIB)
    root.group_v1("", 2**63 - 4096, 800 * MIB)
    assert root.memory() == (300, 180, "cgroup")


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), str(2000 * MIB), "", "nonsense"])
def test_a_group_without_a_limit_below_the_machines_changes_nothing(root, limit):
    root.write("proc/self/cgroup", "4:memory:/box\n0::/box\n")
    root.group_v2("/box", limit, 500 * MIB)
    root.group_v1("/box", limit, 500 * MIB)
    assert root.memory() == (1000, 900, "machine")


def test_a_group_that_is_used_up_leaves_nothing(root):
    root.write("proc/self/cgroup", "0::/box\n")
    root.group_v2("/box", 300 * MIB, 301 * MIB)
    assert root.memory() == (300, 0, "cgroup")


def test_two_threads_of_a_core_count_as_one_core(root):
    cpu = read_cpu(root.path)
    assert (cpu.num_logical_cores, cpu.num_physical_cores, cpu.num_usable_cores) == (8, 4, 4)
    assert cpu.model == "Intel(R) Xeon(R) Platinum 8480C"


@pytest.mark.parametrize(
    ("quota", "num_usable"),
    [("max 100000", 4), ("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("", 4)],
)
def test_a_quota_of_processor_time_limits_the_threads(root, quota, num_usable):
    root.write("proc/self/cgroup", "0::/box\n")
    root.write("sys/fs/cgroup/box/cpu.max", quota)
    assert read_cpu(root.path).num_usable_cores == num_usable


@pytest.mark.parametrize(("quota", "num_usable"), [("-1", 4), ("200000", 2)])
def test_a_v1_quota_of_processor_time_limits_the_threads(root, quota, num_usable):
    root.write("proc/self/cgroup", "3:cpu,cpuacct:/box\n")
    root.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", quota)
    root.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000")
    assert read_cpu(root.path).num_usable_cores == num_usable


def test_a_machine_that_tells_nothing_still_has_one_core(tmp_path):
    cpu = read_cpu(tmp_path)
    assert (cpu.model, cpu.features, cpu.num_usable_cores) == ("", (), 1)
    assert read_memory(tmp_path).total_bytes == 0


def test_this_machine_is_described_without_contradictions():
    cpu, memory = read_cpu(), read_memory()
    assert 1 <= cpu.num_usable_cores <= cpu.num_physical_cores <= cpu.num_logical_cores <= (os.cpu_count() or 1)
    assert 0 < memory.available_bytes <= memory.total_bytes
    assert available_memory_bytes() > 0
