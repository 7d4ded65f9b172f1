// As linear.h for 16 rows at a time with AMX, the same bits: a tile is 16 rows times 16 outputs of one group, whose 32
// inputs give exact integers; they become float in the order of the groups.

#pragma once

constexpr int kMinTileRows = 9;      // fewer are faster without tiles
constexpr int kUnpackedGroups = 48;  // 24 KiB, half of the nearest cache
constexpr int kPartialRows = 128;
constexpr int kAhead = 2;  // tiles that are multiplied before one is read: what a product takes until it is in memory
constexpr int kNumResults = 4;
constexpr int kUnpackedBytes = kPanelRows * kGroup;

// One group: activations [16, 32] times weights [8 steps, 16 outputs, 4], to 16 x 16 integers.
template <Format format, int index>
inline void multiply_group(const int8_t* x, const uint8_t* w, int32_t* to) {
    constexpr int result = index % kNumResults, a = 4 + index % 2, b = 6 + index % 2;
    load_tile<a>(x, kGroup);
    load_tile<b>(w, 64);
    if constexpr (format == kScaled8)  // signed times signed; else weights are not
        asm volatile("tilezero %%tmm%c0\n\ttdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(result), "i"(a), "i"(b));
    else
        asm volatile("tilezero %%tmm%c0\n\ttdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(result), "i"(a), "i"(b));
    store_tile<result>(to, 64);
}

// Blocks become the bytes that a tile is loaded from: nibbles apart, and signed where q - 128 is meant.
template <Format format>
void unpack_groups(const Share& share, const uint8_t* block, int num_groups, uint8_t* to) {
    const __m512i low = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(-128);
    for (int group = 0; group < num_groups; ++group, block += block_bytes(format), to += kUnpackedBytes) {
        const uint8_t* ahead = share.ahead(block, kPrefetchBytes);
        for (size_t line = 0; line < block_bytes(format); line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
        if constexpr (format == kAffine4) {
            for (int i = 0; i < 4; ++i) {
                const __m512i packed = _mm512_loadu_si512(block + 64 * i);
                _mm512_store_si512(to + 128 * i, _mm512_and_si512(packed, low));
                _mm512_store_si512(to + 128 * i + 64, _mm512_and_si512(_mm512_srli_epi16(packed, 4), low));
            }
        } else {
            for (int i = 0; i < 8; ++i) {
                const __m512i steps = _mm512_loadu_si512(block + 64 * i);
                _mm512_store_si512(to + 64 * i, format == kScaled8 ? _mm512_xor_si512(steps, sign) : steps);
            }
        }
    }
}

// Groups of a panel for 16 rows. ``multiply`` runs ahead of ``scale`` and beyond the last group, where there is room.
template <Format format>
struct TileProduct {
    const int8_t* values;  // of the rows, as ``Activations`` has them, and so on
    const float* scales;
    const float* offsets;
    const uint8_t* block;
    const uint8_t* unpacked;

    template <int index>
    inline __attribute__((always_inline)) void multiply(int32_t (*results)[kTileRows * kPanelRows]) const {
        multiply_group<format, index>(values + index * kTileRows * kGroup, unpacked + index * kUnpackedBytes,
                                      results[index % kNumResults]);
    }

    template <int index>
    inline __attribute__((always_inline)) void step(int32_t (*results)[kTileRows * kPanelRows],
                                                    Lanes (&totals)[kTileRows]) const {
        multiply<index + kAhead>(results);
        const uint8_t* numbers = block + index * block_bytes(format) + (format == kAffine4 ? 256 : 512);
        const Lanes d = format == kAffine8 ? _mm512_loadu_ps(numbers) : load_half(numbers);
#pragma GCC unroll 16
        for (int row = 0; row < kTileRows; ++row) {
            const Lanes dot = _mm512_cvtepi32_ps(_mm512_load_si512(results[index] + row * kPanelRows));
            const Lanes both = _mm512_mul_ps(d, _mm512_set1_ps(scales[index * kTileRows + row]));
            totals[row] = _mm512_fmadd_ps(dot, both, totals[row]);
        }
        if constexpr (format != kScaled8) {
            const Lanes m = format == kAffine8 ? _mm512_loadu_ps(numbers + 64) : load_half(numbers + 32);
#pragma GCC unroll 16
            for (int row = 0; row < kTileRows; ++row)
                totals[row] = _mm512_fmadd_ps(m, _mm512_set1_ps(offsets[index * kTileRows + row]), totals[row]);
        }
    }

    // Adds the groups to ``totals``, which stay in registers.
    inline __attribute__((always_inline)) void run(int num_groups, Lanes (&totals)[kTileRows]) {
        alignas(64) int32_t results[kNumResults][kTileRows * kPanelRows];
        multiply<0>(results);
        multiply<1>(results);
        for (; num_groups >= kNumResults; num_groups -= kNumResults) {
            step<0>(results, totals);
            step<1>(results, totals);
            step<2>(results, totals);
            step<3>(results, totals);
            values += kNumResults * kTileRows * kGroup;
            scales += kNumResults * kTileRows;
            offsets += kNumResults * kTileRows;
            block += kNumResults * block_bytes(format);
            unpacked += kNumResults * kUnpackedBytes;
        }
        if (num_groups > 0) step<0>(results, totals);
        if (num_groups > 1) step<1>(results, totals);
        if (num_groups > 2) step<2>(results, totals);
    }
};

// The first rows times one panel. Totals of wide matrices wait in ``partial`` for the next groups.
template <Format format>
void linear_panel_tiles(const Share& share, int num_rows, int panel) {
    const Matrix& w = share.w;
    alignas(64) uint8_t unpacked[(kUnpackedGroups + kAhead) * kUnpackedBytes];
    alignas(64) float partial[kPartialRows][kPanelRows];
    for (int first = 0; first < num_rows; first += kPartialRows) {
        const int end = num_rows - first < kPartialRows ? num_rows - first : kPartialRows;
        for (int group = 0; group < w.num_groups(); group += kUnpackedGroups) {
            const bool last = w.num_groups() - group <= kUnpackedGroups;
            const int count = last ? w.num_groups() - group : kUnpackedGroups;
            const uint8_t* block = w.panel(panel) + group * block_bytes(format);
            unpack_groups<format>(share, block, count, unpacked);
            for (int row = 0; row < end; row += kTileRows) {
                const Activations here = share.x.from(first + row);
                Lanes totals[kTileRows];
#pragma GCC unroll 16
                for (int i = 0; i < kTileRows; ++i)
                    totals[i] = group ? _mm512_load_ps(partial[row + i]) : _mm512_setzero_ps();
                TileProduct<format>{here.values + group * kTileRows * kGroup, here.scales + group * kTileRows,
                                    here.offsets + group * kTileRows, block, unpacked}
                    .run(count, totals);
#pragma GCC unroll 16
                for (int i = 0; i < kTileRows; ++i) {
                    if (!last) {
                        _mm512_store_ps(partial[row + i], totals[i]);
                    } else if (row + i < end) {
                        store_outputs(share, first + row + i, panel, totals[i]);
                    }
                }
            }
        }
    }
}
