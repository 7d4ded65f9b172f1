// Compiled once for each instruction set; CUTAWAY_ISA names the set.

#include "kernels.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "half.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cutaway {
namespace {

#include "lanes.h"
#include "one_row.h"
#if defined(__AVX512VNNI__)
#include "lanes_avx512.h"
#include "rows_avx512.h"
#include "linear_avx512.h"
#include "attention_avx512.h"
#if defined(__AMX_INT8__)
#include "tiles.h"
#include "attention_chunks.h"
#include "attention_amx.h"
#include "linear_amx.h"
#include "linear_wide.h"
#endif
#else
#include "rows.h"
#if defined(__AVX2__)
#include "linear_avx2.h"
#include "attention_avx2.h"
#else
#include "linear.h"
#include "attention.h"
#endif
#endif
#include "softmax.h"

constexpr int kMaxTile = 8;  // rows that share one reading of the weights

template <Format format>
void linear_panel(const Share& share, int panel) {
    const int num_rows = share.num_rows;
    int row = 0;
#if defined(__AMX_INT8__)
    const int rest = num_rows % kTileRows;
    row = rest < kMinTileRows ? num_rows - rest : num_rows;
    if (row) linear_panel_tiles<format>(share, row, panel);
#endif
    for (; row + kMaxTile <= num_rows; row += kMaxTile) linear_tile<format, kMaxTile>(share, row, panel);
    for (; row + 4 <= num_rows; row += 4) linear_tile<format, 4>(share, row, panel);
    for (; row < num_rows; ++row) linear_tile<format, 1>(share, row, panel);
}

template <Format format>
void linear_format(const Share& share) {
#if defined(__AMX_INT8__)
    if (share.x.numbers) return linear_wide<format>(share);
    const bool has_tiles = share.num_rows >= kMinTileRows;
    if (has_tiles) configure_tiles(TileConfig(kTileRows, kGroup, kGroup / 4));
#endif
    for (int panel = share.begin; panel < share.end; ++panel) linear_panel<format>(share, panel);
#if defined(__AMX_INT8__)
    if (has_tiles) release_tiles();
#endif
}

void linear(const Share& share) {
    switch (static_cast<Format>(share.w.format)) {
        case kAffine4:
            return linear_format<kAffine4>(share);
        case kScaled8:
            return linear_format<kScaled8>(share);
        case kAffine8:
            return linear_format<kAffine8>(share);
    }
}

void prepare(const float* x, const Activations& to) {
#if defined(__AMX_BF16__)
    if (to.numbers) return round_row(x, to);
#endif
    quantize(x, to);
}

constexpr int kMaxHeads = 64;  // query heads that share a key-value head

// One row after the other: softmax in two passes over the keys, in their order.
template <int dim>
void attend_rows(const AttentionItem& item) {
    for (int index = 0; index < item.num_rows; ++index) {
        const OneRow row(item.row(index));
        float inverse[kMaxHeads];
        score<dim>(row);
        for (int head = 0; head < row.num_heads; ++head)
            inverse[head] = weigh(row.scores + head * (row.end - row.first), row.end - row.first);
        mix<dim>(row, inverse);
    }
}

template <int dim>
void attend_dim(const AttentionItem& item) {
#if defined(__AMX_BF16__)
    if constexpr (dim % 32 == 0) return attend_tiles<dim>(item);
#endif
    attend_rows<dim>(item);
}

int rows_together([[maybe_unused]] int num_heads, [[maybe_unused]] int dim) {
#if defined(__AMX_BF16__)
    if (dim % 32 == 0) return num_heads < kMaxQueries ? kMaxQueries / num_heads : 1;
#endif
    return 1;
}

void store(const CacheRow& row) {
#if defined(__AMX_BF16__)
    if (row.dim % 32 == 0) return store_tiles(row);
#endif
    const int64_t size = int64_t{kPiece} * row.dim;
    for (int head = 0; head < row.num_kv_heads; ++head) {
        uint16_t* keys = row.piece + 2 * head * size + row.position * row.dim;
        for (int i = 0; i < row.dim; ++i) keys[i] = to_bfloat16_one(row.keys[head * row.dim + i]);
        for (int i = 0; i < row.dim; ++i) keys[size + i] = to_bfloat16_one(row.values[head * row.dim + i]);
    }
}

Chunking chunking([[maybe_unused]] int dim) {
#if defined(__AMX_BF16__)
    if (dim % 32 == 0) return {kChunk, dim + kLanes};
#endif
    return {0, 0};
}

template <int dim>
void attend_chunk_dim([[maybe_unused]] const AttentionItem& item, [[maybe_unused]] int64_t chunk,
                      [[maybe_unused]] float* to) {
#if defined(__AMX_BF16__)
    if constexpr (dim % 32 == 0) return attend_chunk_tiles<dim>(item, chunk, to);
#endif
    std::abort();  // ``chunking`` says that there are none
}

template <int dim>
void join_chunks_dim([[maybe_unused]] const AttentionItem& item, [[maybe_unused]] const float* chunks) {
#if defined(__AMX_BF16__)
    if constexpr (dim % 32 == 0) return join_tiles<dim>(item, chunks);
#endif
    std::abort();
}

// Calls what was made for heads of so many channels. native.HEAD_DIMS says which there are.
template <typename Function>
void for_dim(int dim, Function function) {
    switch (dim) {
        case 32:
            return function(std::integral_constant<int, 32>());
        case 64:
            return function(std::integral_constant<int, 64>());
        case 80:
            return function(std::integral_constant<int, 80>());
        case 96:
            return function(std::integral_constant<int, 96>());
        case 128:
            return function(std::integral_constant<int, 128>());
        case 256:
            return function(std::integral_constant<int, 256>());
    }
    std::abort();
}

void attend(const AttentionItem& item) {
    for_dim(item.dim, [&](auto dim) { attend_dim<dim()>(item); });
}

void fetch([[maybe_unused]] const AttentionItem& item) {
#if defined(__AMX_BF16__)
    for_dim(item.dim, [&](auto dim) { fetch_tiles<dim()>(item); });
#endif
}

void attend_chunk(const AttentionItem& item, int64_t chunk, float* to) {
    for_dim(item.dim, [&](auto dim) { attend_chunk_dim<dim()>(item, chunk, to); });
}

void join_chunks(const AttentionItem& item, const float* chunks) {
    for_dim(item.dim, [&](auto dim) { join_chunks_dim<dim()>(item, chunks); });
}

#define CUTAWAY_TEXT(x) #x
#define CUTAWAY_STRING(x) CUTAWAY_TEXT(x)
#define CUTAWAY_JOIN(a, b) a##b
#define CUTAWAY_NAME(a, b) CUTAWAY_JOIN(a, b)

}  // namespace

const Kernels* CUTAWAY_NAME(CUTAWAY_ISA, _kernels)() {
    static const Kernels kernels = {
        CUTAWAY_STRING(CUTAWAY_ISA), kNeverWide, linear, prepare, rms_norm, rotate, rows_together, attend, chunking,
        attend_chunk, join_chunks, fetch, store, silu_mul, gelu_mul, exp_sum, scan, join_scans,
    };
    return &kernels;
}

#if defined(__AMX_BF16__)
const Kernels* fast_amx_kernels() {
    static const Kernels kernels = [] {
        Kernels fast = *amx_kernels();
        fast.name = "amx, fast";
        fast.min_wide_rows = kMinTileRows;
        return fast;
    }();
    return &kernels;
}
#endif

}  // namespace cutaway
