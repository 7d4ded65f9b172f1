// Products of many rows in bfloat16 with AMX. Weights stay as they are in memory and become bfloat16 on the way; a
// result is about as near to float32 as with the integers of linear_amx.h or nearer, but not the same bits.

#pragma once

constexpr int kWideGroups = 24;  // of two panels at once: 48 KiB
constexpr int kWideRows = 128;
constexpr int kWideBlock = kPanelRows * kGroup;

// Two times 16 floats, rounded to bfloat16 and laid side by side.
inline __m512i join_bfloat16(Lanes low, Lanes high) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const __m512i first = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
    const __m512i second = _mm512_add_epi32(_mm512_castps_si512(high), half);
    return _mm512_ternarylogic_epi32(first, second, upper, 0xf8);  // first | (second & upper)
}

// A block becomes the tile [16 pairs of inputs, 16 outputs, 2].
template <Format format>
inline void widen_block(const uint8_t* block, uint16_t* to) {
    constexpr bool is_packed = format == kAffine4;
    constexpr int num_bytes = is_packed ? 256 : 512;
    const Lanes d = format == kAffine8 ? _mm512_loadu_ps(block + num_bytes) : load_half(block + num_bytes);
    Lanes m;
    if constexpr (format == kScaled8)
        m = _mm512_mul_ps(d, _mm512_set1_ps(-128));
    else
        m = is_packed ? load_half(block + num_bytes + 32) : _mm512_loadu_ps(block + num_bytes + 64);
    const Lanes digits = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const auto number = [&](__m512i line, int shift) {
        const __m512i shifted = _mm512_srli_epi32(line, shift);
        Lanes q;
        if constexpr (is_packed)
            q = _mm512_permutexvar_ps(shifted, digits);  // looks at the lowest four bits
        else
            q = _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)));
        return _mm512_fmadd_ps(q, d, m);
    };
    for (int at = 0; at < num_bytes; at += 64) {
        const __m512i line = _mm512_loadu_si512(block + at);
        for (int half = 0; half < (is_packed ? 2 : 1); ++half) {
            for (int pair = 0; pair < 2; ++pair, to += 2 * kPanelRows) {
                const int shift = 16 * pair + 4 * half;
                _mm512_store_si512(to, join_bfloat16(number(line, shift), number(line, shift + 8)));
            }
        }
    }
}

// Some groups of one or two panels, as tiles.
struct WideWeights {
    alignas(64) uint16_t tiles[2][kWideGroups][kWideBlock];

    template <Format format>
    void fill(const Share& share, int panel, int num_panels, int first_group, int num_groups) {
        for (int index = 0; index < num_panels; ++index) {
            const uint8_t* block = share.w.panel(panel + index);
            block += first_group * block_bytes(format);
            for (int group = 0; group < num_groups; ++group, block += block_bytes(format)) {
                const uint8_t* ahead = share.ahead(block, kPrefetchBytes);
                for (size_t line = 0; line < block_bytes(format); line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
                widen_block<format>(block, tiles[index][group]);
            }
        }
    }
};

template <int result, int left, int right>
inline void multiply_wide() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(result), "i"(left), "i"(right));
}

// Sums of one or two tiles of rows and of panels; tile 2 * rows + panel of the results.
template <bool two_rows, bool two_panels>
void multiply_tiles(const uint16_t* x, int64_t row_stride, const WideWeights& w, int num_groups, bool is_first,
                    float (*sums)[kTileRows * kPanelRows]) {
    if (is_first) {
        asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
    } else {
        load_tile<0>(sums[0], 64);
        if constexpr (two_panels) load_tile<1>(sums[1], 64);
        if constexpr (two_rows) load_tile<2>(sums[2], 64);
        if constexpr (two_rows && two_panels) load_tile<3>(sums[3], 64);
    }
    for (int group = 0; group < num_groups; ++group, x += kWideBlock) {
        load_tile<4>(x, 64);
        load_tile<6>(w.tiles[0][group], 64);
        multiply_wide<0, 4, 6>();
        if constexpr (two_panels) load_tile<7>(w.tiles[1][group], 64), multiply_wide<1, 4, 7>();
        if constexpr (two_rows) load_tile<5>(x + row_stride, 64), multiply_wide<2, 5, 6>();
        if constexpr (two_rows && two_panels) multiply_wide<3, 5, 7>();
    }
    store_tile<0>(sums[0], 64);
    if constexpr (two_panels) store_tile<1>(sums[1], 64);
    if constexpr (two_rows) store_tile<2>(sums[2], 64);
    if constexpr (two_rows && two_panels) store_tile<3>(sums[3], 64);
}

// Sums go to the rows from ``first`` on, as far as there are rows and outputs.
inline void write_sums(const Share& share, int first, int panel, const float* sums) {
    const int num_rows = share.num_rows - first < kTileRows ? share.num_rows - first : kTileRows;
    for (int row = 0; row < num_rows; ++row)
        store_outputs(share, first + row, panel, _mm512_load_ps(sums + row * kPanelRows));
}

// One or two panels for up to ``kWideRows`` rows.
template <Format format>
void linear_panels_wide(const Share& share, int first_row, int panel, int num_panels) {
    WideWeights weights;
    alignas(64) float sums[kWideRows / 8][kTileRows * kPanelRows];  // [rows / 32, 4 results]
    const int end = share.num_rows - first_row < kWideRows ? share.num_rows - first_row : kWideRows;
    const int64_t row_stride = int64_t{share.x.num_groups} * kWideBlock;
    for (int group = 0; group < share.w.num_groups(); group += kWideGroups) {
        const int left = share.w.num_groups() - group, count = left < kWideGroups ? left : kWideGroups;
        weights.fill<format>(share, panel, num_panels, group, count);
        for (int row = 0; row < end; row += 2 * kTileRows) {
            const uint16_t* x = share.x.from(first_row + row).numbers + int64_t{group} * kWideBlock;
            const bool two_rows = row + kTileRows < end;
            auto multiply = num_panels == 2 ? multiply_tiles<false, true> : multiply_tiles<false, false>;
            if (two_rows) multiply = num_panels == 2 ? multiply_tiles<true, true> : multiply_tiles<true, false>;
            multiply(x, row_stride, weights, count, group == 0, sums + row / 8);
        }
    }
    for (int row = 0; row < end; row += kTileRows)
        for (int index = 0; index < num_panels; ++index)
            write_sums(share, first_row + row, panel + index, sums[row / 32 * 4 + row / 16 % 2 * 2 + index]);
}

template <Format format>
void linear_wide(const Share& share) {
    configure_tiles(TileConfig(kTileRows, 64, kGroup / 2));
    for (int panel = share.begin; panel < share.end; panel += 2)
        for (int row = 0; row < share.num_rows; row += kWideRows)
            linear_panels_wide<format>(share, row, panel, share.end - panel < 2 ? 1 : 2);
    release_tiles();
}

// A row of numbers becomes the first row of ``to``, in bfloat16.
inline void round_row(const float* x, const Activations& to) {
    for (int group = 0; group < to.num_groups; ++group, x += kGroup) {
        const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + kLanes), _mm512_loadu_ps(x));
        _mm512_storeu_si512(to.numbers + group * kWideBlock, reinterpret_cast<__m512i>(rounded));
    }
}
