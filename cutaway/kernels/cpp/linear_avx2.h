// As linear.h with AVX2, the same bits: a step is two vectors of 8 outputs with 4 inputs each.

#pragma once

constexpr int kParts = 2;

// Integers of a block. Two products of bytes and their sum must fit into 16 bits: nibbles do as they are; other bytes
// are taken as q - 128, the magnitude apart from the sign, since one side of the instruction has none.
template <Format format>
struct Block {
    __m256i steps[8][kParts];
    __m256 d[kParts], m[kParts];

    explicit Block(const uint8_t* p) {
        const __m256i low = _mm256_set1_epi8(15), sign = _mm256_set1_epi8(-128);
        for (int part = 0; part < kParts; ++part) {
            const uint8_t* q = p + 32 * part;
            if constexpr (format == kAffine4) {
                for (int i = 0; i < 4; ++i) {
                    const __m256i packed = load(q + 64 * i);
                    steps[2 * i][part] = _mm256_and_si256(packed, low);
                    steps[2 * i + 1][part] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
                }
                d[part] = halves(p + 256 + 16 * part);
                m[part] = halves(p + 288 + 16 * part);
            } else {
                for (int i = 0; i < 8; ++i) steps[i][part] = _mm256_xor_si256(load(q + 64 * i), sign);
                if constexpr (format == kScaled8) {
                    d[part] = halves(p + 512 + 16 * part);
                } else {
                    d[part] = _mm256_loadu_ps(reinterpret_cast<const float*>(p + 512) + 8 * part);
                    m[part] = _mm256_loadu_ps(reinterpret_cast<const float*>(p + 576) + 8 * part);
                }
            }
        }
    }

    // Sums of products with the 32 inputs of a row; exact. ``start`` is -128 times the sum of the inputs.
    __m256i dot(const int8_t* x, int part, [[maybe_unused]] int32_t start) const {
        const __m256i ones = _mm256_set1_epi16(1);
        __m256i total = _mm256_setzero_si256();
        for (int step = 0; step < 8; ++step) {
            int32_t four;
            std::memcpy(&four, x + 4 * step, 4);
            const __m256i inputs = _mm256_set1_epi32(four), q = steps[step][part];
            if constexpr (format == kAffine4) {  // eight sums of two products of at most 15 * 127 fit, too
                total = _mm256_add_epi16(total, _mm256_maddubs_epi16(q, inputs));
            } else {
                const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(inputs, q));
                total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
            }
        }
        if constexpr (format == kAffine4) return _mm256_madd_epi16(total, ones);
        if constexpr (format == kAffine8) return _mm256_sub_epi32(total, _mm256_set1_epi32(start));
        return total;
    }

   private:
    static __m256i load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static __m256 halves(const uint8_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
};

template <Format format, int tile>
void linear_tile(const Share& share, int first, int panel) {
    const Matrix& w = share.w;
    const int num_groups = w.num_groups();
    const uint8_t* p = w.panel(panel);
    const Activations here = share.x.from(first);
    __m256 totals[tile][kParts];
    for (auto& row : totals)
        for (auto& total : row) total = _mm256_setzero_ps();
    for (int group = 0; group < num_groups; ++group, p += block_bytes(format)) {
        const Block<format> block(p);
        for (int row = 0; row < tile; ++row) {
            const int at = group * kTileRows + row;
            const __m256 scale = _mm256_set1_ps(here.scales[at]), offset = _mm256_set1_ps(here.offsets[at]);
            for (int part = 0; part < kParts; ++part) {
                const __m256 dot = _mm256_cvtepi32_ps(block.dot(here.values + at * kGroup, part, here.starts[at]));
                __m256& total = totals[row][part];
                total = _mm256_fmadd_ps(dot, _mm256_mul_ps(block.d[part], scale), total);
                if constexpr (format != kScaled8) total = _mm256_fmadd_ps(block.m[part], offset, total);
            }
        }
    }
    const int num_lanes = w.num_lanes(panel);
    for (int row = 0; row < tile; ++row) {
        alignas(32) float lanes[kPanelRows];
        for (int part = 0; part < kParts; ++part) _mm256_store_ps(lanes + 8 * part, totals[row][part]);
        float* to = share.out + (first + row) * share.stride + panel * kPanelRows;
        for (int lane = 0; lane < num_lanes; ++lane) to[lane] = share.add ? lanes[lane] + to[lane] : lanes[lane];
    }
}
