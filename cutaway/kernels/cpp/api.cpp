// What Python calls, by ctypes.

#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "decoder.h"
#include "pack.h"

#if defined(CUTAWAY_HAS_AMX)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#define CUTAWAY_API extern "C" __attribute__((visibility("default")))

using namespace cutaway;

namespace {

#if defined(CUTAWAY_HAS_AMX)
// Tiles are more state than a process has by default; the system gives it to whoever asks.
bool has_tiles() {
#if defined(__linux__)
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    constexpr unsigned kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & kTiles) != kTiles) return false;
    if (!__builtin_cpu_supports("avx512bf16")) return false;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

// The sets that were built and that this processor has, best first.
std::vector<const Kernels*> available() {
    std::vector<const Kernels*> sets;
#if defined(CUTAWAY_HAS_AVX512)
    if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vnni")) {
#if defined(CUTAWAY_HAS_AMX)
        if (has_tiles()) sets.push_back(amx_kernels());
#endif
        sets.push_back(avx512_kernels());
    }
#endif
#if defined(CUTAWAY_HAS_AVX2)
    if (__builtin_cpu_supports("x86-64-v3")) sets.push_back(avx2_kernels());
#endif
    sets.push_back(portable_kernels());
    return sets;
}

// What trades the same bits in any company for speed, where there is such a set; else null.
const Kernels* fast_kernels() {
#if defined(CUTAWAY_HAS_AMX)
    if (available().front() == amx_kernels()) return fast_amx_kernels();
#endif
    return nullptr;
}

const Kernels& best() {
    static const Kernels* const kernels = available().front();
    return *kernels;
}

}  // namespace

// Name of the ``index``-th instruction set that this processor has, best first; null after the last.
CUTAWAY_API const char* cutaway_instruction_set(int32_t index) {
    const auto sets = available();
    return index < static_cast<int32_t>(sets.size()) ? sets[index]->name : nullptr;
}

CUTAWAY_API int32_t cutaway_decoder_scan(Decoder* decoder, const float* scores, int64_t num_rows, RowScan* out) {
    try {
        decoder->scan(scores, num_rows, out);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

// The sum of e^((score - top) / temperature) over a row of scores, of which none is larger than ``top`` or NaN.
CUTAWAY_API double cutaway_exp_sum(const float* scores, int64_t n, float top, double temperature) {
    return best().exp_sum(scores, n, top, temperature);
}

CUTAWAY_API void cutaway_scan(const float* scores, int64_t n, RowScan* out) {
    RowScan parts[kScanParts];
    for (int part = 0; part < kScanParts; ++part)
        parts[part] = best().scan(scores, scan_part(n, part), scan_part(n, part + 1));
    *out = best().join_scans(scores, parts, kScanParts);
}

// Name of the set for ``fast`` numerics; null if there is none.
CUTAWAY_API const char* cutaway_fast_set() {
    const Kernels* fast = fast_kernels();
    return fast ? fast->name : nullptr;
}

// What this was built from; see sources.py.
CUTAWAY_API const char* cutaway_sources() { return CUTAWAY_SOURCES; }

CUTAWAY_API int32_t cutaway_packed_format(int32_t stored_type) { return packed_format(stored_type); }

CUTAWAY_API int64_t cutaway_packed_bytes(int32_t stored_type, int64_t rows, int64_t cols) {
    const auto format = static_cast<Format>(packed_format(stored_type));
    return (rows + kPanelRows - 1) / kPanelRows * (cols / kGroup) * static_cast<int64_t>(block_bytes(format));
}

CUTAWAY_API void cutaway_pack(int32_t stored_type, const uint8_t* stored, int64_t num_rows, int64_t cols, int64_t first,
                              uint8_t* panels) {
    pack(stored_type, stored, num_rows, cols, first, panels);
}

CUTAWAY_API void cutaway_unpack_row(const Matrix* w, int64_t row, float* out) { unpack_row(*w, row, out); }

CUTAWAY_API Decoder* cutaway_decoder_new(const DecoderConfig* config, const LayerWeights* layers, int32_t num_layers,
                                         const Matrix* embedding, const Product* head, const float* norm,
                                         const float* const* frequencies, int32_t num_ropes,
                                         const char* instruction_set, int32_t num_threads) {
    try {
        std::vector<const Kernels*> sets = available();
        if (const Kernels* fast = fast_kernels()) sets.push_back(fast);
        for (const Kernels* kernels : sets)
            if (std::strcmp(kernels->name, instruction_set) == 0)
                return new Decoder(*config, std::vector<LayerWeights>(layers, layers + num_layers), *embedding, *head,
                                   norm, std::vector<const float*>(frequencies, frequencies + num_ropes), kernels,
                                   num_threads);
    } catch (const std::exception&) {  // no memory, or no threads
    }
    return nullptr;
}

CUTAWAY_API void cutaway_decoder_free(Decoder* decoder) { delete decoder; }

// 0, or 1 when memory ran out.
CUTAWAY_API int32_t cutaway_decoder_forward(Decoder* decoder, const Batch* batch, float* hidden) {
    try {
        decoder->forward(*batch, hidden);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

CUTAWAY_API int32_t cutaway_decoder_logits(Decoder* decoder, const float* hidden, int64_t num_rows, float* out) {
    try {
        decoder->logits(hidden, num_rows, out);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}
