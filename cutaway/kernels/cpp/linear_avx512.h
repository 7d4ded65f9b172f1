// As linear.h with AVX-512 VNNI, the same bits.

#pragma once

constexpr int kPrefetchBytes = 64 * 320;

template <Format format>
struct Block {
    __m512i steps[8];
    Lanes d, m;

    explicit Block(const uint8_t* p) {
        if constexpr (format == kAffine4) {
            const __m512i low = _mm512_set1_epi8(15);
            for (int i = 0; i < 4; ++i) {
                __m512i packed = _mm512_loadu_si512(p + 64 * i);
                steps[2 * i] = _mm512_and_si512(packed, low);
                steps[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
            }
            d = load_half(p + 256);
            m = load_half(p + 288);
        } else {
            for (int i = 0; i < 8; ++i) steps[i] = _mm512_loadu_si512(p + 64 * i);
            if constexpr (format == kScaled8) {
                d = load_half(p + 512);
            } else {
                d = _mm512_loadu_ps(p + 512);
                m = _mm512_loadu_ps(p + 576);
            }
        }
    }
};

// The outputs of a panel for a row.
inline void store_outputs(const Share& share, int row, int panel, Lanes total) {
    const __mmask16 mask = static_cast<__mmask16>((1u << share.w.num_lanes(panel)) - 1);
    float* to = share.out + row * share.stride + panel * kPanelRows;
    if (share.add) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(mask, to));
    _mm512_mask_storeu_ps(to, mask, total);
}

template <Format format, int tile>
void linear_tile(const Share& share, int first, int panel) {
    const Matrix& w = share.w;
    const int num_groups = w.num_groups();
    const uint8_t* p = w.panel(panel);
    const Activations here = share.x.from(first);
    Lanes totals[tile];
    for (int row = 0; row < tile; ++row) totals[row] = _mm512_setzero_ps();
    for (int group = 0; group < num_groups; ++group, p += block_bytes(format)) {
        const uint8_t* ahead = share.ahead(p, kPrefetchBytes);
        for (size_t line = 0; line < block_bytes(format); line += 64) _mm_prefetch(ahead + line, _MM_HINT_T1);
        const Block<format> block(p);
        for (int row = 0; row < tile; ++row) {
            const int at = group * kTileRows + row;
            const int8_t* v = here.values + at * kGroup;
            __m512i even = format == kScaled8 ? _mm512_set1_epi32(here.starts[at]) : _mm512_setzero_si512();
            __m512i odd = _mm512_setzero_si512();
            for (int step = 0; step < 8; step += 2) {
                int32_t a, b;
                std::memcpy(&a, v + 4 * step, 4);
                std::memcpy(&b, v + 4 * step + 4, 4);
                even = _mm512_dpbusd_epi32(even, block.steps[step], _mm512_set1_epi32(a));
                odd = _mm512_dpbusd_epi32(odd, block.steps[step + 1], _mm512_set1_epi32(b));
            }
            const Lanes dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
            const Lanes scale = _mm512_mul_ps(block.d, _mm512_set1_ps(here.scales[at]));
            totals[row] = _mm512_fmadd_ps(dot, scale, totals[row]);
            if constexpr (format != kScaled8)
                totals[row] = _mm512_fmadd_ps(block.m, _mm512_set1_ps(here.offsets[at]), totals[row]);
        }
    }
    for (int row = 0; row < tile; ++row) store_outputs(share, first + row, panel, totals[row]);
}
