// Compiled once for each instruction set; CUTAWAY_ISA names the set.

#include "kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "half.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace cutaway {
namespace {

constexpr int kLanes = 16;
constexpr int kMaxTile = 8;  // rows that share one reading of the weights
constexpr int kPrefetchBytes = 64 * 320;

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

inline float from_bfloat16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

inline uint16_t to_bfloat16_one(float x) {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN stays NaN
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float sum_lanes(const float* lanes) {
    float sums[kLanes];
    std::memcpy(sums, lanes, sizeof sums);
    for (int width = kLanes / 2; width; width /= 2)
        for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    return sums[0];
}

// e^x for x <= 0 within two units in the last place; 0 below -87. Source: the range reduction and the degree-5 polynomial
// of Cephes' expf (Moshier, 1984-2000).
inline float exp_negative(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float n = std::floor(fma(clamped, 1.44269504088896341f, 0.5f));
    float r = fma(n, -0.693359375f, clamped);
    r = fma(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fma(p, r, 1.3981999507e-3f);
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    p = fma(p, r, 5.0000001201e-1f);
    float y = fma(p, r * r, r) + 1.0f;
    float scale = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
    return x < -87.0f ? 0.0f : y * scale;
}

inline float sigmoid(float x) {  // of the magnitude, so that nothing overflows
    float e = exp_negative(-std::fabs(x));
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}

// ---------------------------------------------------------------- linear

#if defined(__AVX512VNNI__)

using Lanes = __m512;

inline Lanes load_half(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

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

template <Format format, int tile>
void linear_tile(const Matrix& w, const Activations& x, int first, int panel, float* out, int64_t stride, bool add) {
    const int num_groups = w.num_groups();
    const uint8_t* p = w.data + panel * w.panel_bytes();
    const int8_t* values = x.values + static_cast<int64_t>(first) * x.cols;
    const float* scales = x.scales + static_cast<int64_t>(first) * num_groups;
    const int32_t* sums = x.sums + static_cast<int64_t>(first) * num_groups;
    Lanes totals[tile];
    for (int row = 0; row < tile; ++row) totals[row] = _mm512_setzero_ps();
    for (int group = 0; group < num_groups; ++group, p += block_bytes(format)) {
        for (size_t line = 0; line < block_bytes(format); line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes + line), _MM_HINT_T0);
        const Block<format> block(p);
        for (int row = 0; row < tile; ++row) {
            const int8_t* v = values + static_cast<int64_t>(row) * x.cols + group * kGroup;
            __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
            for (int step = 0; step < 8; step += 2) {
                int32_t a, b;
                std::memcpy(&a, v + 4 * step, 4);
                std::memcpy(&b, v + 4 * step + 4, 4);
                even = _mm512_dpbusd_epi32(even, block.steps[step], _mm512_set1_epi32(a));
                odd = _mm512_dpbusd_epi32(odd, block.steps[step + 1], _mm512_set1_epi32(b));
            }
            __m512i dot = _mm512_add_epi32(even, odd);
            const int64_t at = static_cast<int64_t>(row) * num_groups + group;
            if constexpr (format == kScaled8) dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(128 * sums[at]));
            const Lanes scale = _mm512_set1_ps(scales[at]);
            totals[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(block.d, scale), totals[row]);
            if constexpr (format != kScaled8) {
                const Lanes sum = _mm512_set1_ps(scales[at] * static_cast<float>(sums[at]));
                totals[row] = _mm512_fmadd_ps(block.m, sum, totals[row]);
            }
        }
    }
    const int num_lanes = w.rows - panel * kPanelRows < kPanelRows ? w.rows - panel * kPanelRows : kPanelRows;
    const __mmask16 mask = static_cast<__mmask16>((1u << num_lanes) - 1);
    for (int row = 0; row < tile; ++row) {
        float* to = out + (first + row) * stride + panel * kPanelRows;
        Lanes total = totals[row];
        if (add) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(mask, to));
        _mm512_mask_storeu_ps(to, mask, total);
    }
}

#else

template <Format format>
struct Block {
    uint8_t steps[8][64];
    float d[kPanelRows], m[kPanelRows];

    explicit Block(const uint8_t* p) {
        if constexpr (format == kAffine4) {
            for (int i = 0; i < 4; ++i)
                for (int byte = 0; byte < 64; ++byte) {
                    steps[2 * i][byte] = p[64 * i + byte] & 15;
                    steps[2 * i + 1][byte] = p[64 * i + byte] >> 4;
                }
            halves(p + 256, d);
            halves(p + 288, m);
        } else {
            std::memcpy(steps, p, 512);
            if constexpr (format == kScaled8) {
                halves(p + 512, d);
            } else {
                std::memcpy(d, p + 512, sizeof d);
                std::memcpy(m, p + 576, sizeof m);
            }
        }
    }

    static void halves(const uint8_t* p, float* out) {
        uint16_t bits[kPanelRows];
        std::memcpy(bits, p, sizeof bits);
        for (int row = 0; row < kPanelRows; ++row) out[row] = from_half(bits[row]);
    }
};

template <Format format, int tile>
void linear_tile(const Matrix& w, const Activations& x, int first, int panel, float* out, int64_t stride, bool add) {
    const int num_groups = w.num_groups();
    const uint8_t* p = w.data + panel * w.panel_bytes();
    float totals[tile][kPanelRows] = {};
    for (int group = 0; group < num_groups; ++group, p += block_bytes(format)) {
        const Block<format> block(p);
        for (int row = 0; row < tile; ++row) {
            const int8_t* v = x.values + static_cast<int64_t>(first + row) * x.cols + group * kGroup;
            int32_t dot[kPanelRows] = {};
            for (int step = 0; step < 8; ++step)
                for (int lane = 0; lane < kPanelRows; ++lane)
                    for (int byte = 0; byte < 4; ++byte)
                        dot[lane] += static_cast<int32_t>(block.steps[step][4 * lane + byte]) * v[4 * step + byte];
            const int64_t at = static_cast<int64_t>(first + row) * num_groups + group;
            const float scale = x.scales[at], sum = scale * static_cast<float>(x.sums[at]);
            for (int lane = 0; lane < kPanelRows; ++lane) {
                int32_t exact = format == kScaled8 ? dot[lane] - 128 * x.sums[at] : dot[lane];
                float total = fma(static_cast<float>(exact), block.d[lane] * scale, totals[row][lane]);
                totals[row][lane] = format == kScaled8 ? total : fma(block.m[lane], sum, total);
            }
        }
    }
    const int num_lanes = w.rows - panel * kPanelRows < kPanelRows ? w.rows - panel * kPanelRows : kPanelRows;
    for (int row = 0; row < tile; ++row) {
        float* to = out + (first + row) * stride + panel * kPanelRows;
        for (int lane = 0; lane < num_lanes; ++lane) to[lane] = add ? totals[row][lane] + to[lane] : totals[row][lane];
    }
}

#endif

template <Format format>
void linear_panel(const Matrix& w, const Activations& x, int num_rows, int panel, float* out, int64_t stride, bool add) {
    int row = 0;
    for (; row + kMaxTile <= num_rows; row += kMaxTile)
        linear_tile<format, kMaxTile>(w, x, row, panel, out, stride, add);
    for (; row + 4 <= num_rows; row += 4) linear_tile<format, 4>(w, x, row, panel, out, stride, add);
    for (; row < num_rows; ++row) linear_tile<format, 1>(w, x, row, panel, out, stride, add);
}

void linear(const Matrix& w, const Activations& x, int num_rows, int begin, int end, float* out, int64_t stride,
            bool add) {
    for (int panel = begin; panel < end; ++panel) {
        switch (static_cast<Format>(w.format)) {
            case kAffine4:
                linear_panel<kAffine4>(w, x, num_rows, panel, out, stride, add);
                break;
            case kScaled8:
                linear_panel<kScaled8>(w, x, num_rows, panel, out, stride, add);
                break;
            case kAffine8:
                linear_panel<kAffine8>(w, x, num_rows, panel, out, stride, add);
                break;
        }
    }
}

// A group's largest magnitude becomes 127. A group with a number that is not finite gets a scale that is none either.
void quantize(const float* x, int n, int8_t* values, float* scales, int32_t* sums) {
    for (int group = 0; group < n / kGroup; ++group) {
        const float* g = x + group * kGroup;
        uint32_t largest = 0;
        for (int i = 0; i < kGroup; ++i) {
            uint32_t bits = std::bit_cast<uint32_t>(g[i]) & 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
        const bool finite = largest < 0x7f800000;
        const float magnitude = std::bit_cast<float>(largest);
        const float inverse = finite && magnitude > 0 ? 127.0f / magnitude : 0.0f;
        int32_t sum = 0;
        for (int i = 0; i < kGroup; ++i) {
            // The magic number rounds to the nearest integer, ties to even.
            float shifted = (finite ? g[i] * inverse : 0.0f) + 12582912.0f;
            int32_t q = std::bit_cast<int32_t>(shifted) - 0x4b400000;
            values[group * kGroup + i] = static_cast<int8_t>(q);
            sum += q;
        }
        scales[group] = finite ? magnitude / 127.0f : std::bit_cast<float>(0x7fc00000u);
        sums[group] = sum;
    }
}

// ---------------------------------------------------------------- rows

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
    float lanes[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = fma(x[i + lane], x[i + lane], lanes[lane]);
    for (int lane = 0; i + lane < n; ++lane) lanes[lane] = fma(x[i + lane], x[i + lane], lanes[lane]);
    const float scale = 1.0f / std::sqrt(sum_lanes(lanes) / static_cast<float>(n) + eps);
    for (int j = 0; j < n; ++j) out[j] = x[j] * scale * weight[j];
}

void rotate(float* heads, int num_heads, int dim, const float* cos, const float* sin) {
    const int half = dim / 2;
    for (int head = 0; head < num_heads; ++head, heads += dim) {
        for (int i = 0; i < half; ++i) {
            const float a = heads[i], b = heads[i + half];
            heads[i] = fma(a, cos[i], -(b * sin[i]));
            heads[i + half] = fma(b, cos[i], a * sin[i]);
        }
    }
}

#if defined(__AVX512VNNI__)

inline Lanes widen(const uint16_t* p) {
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16));
}

// As ``exp_negative``, 16 at a time.
inline Lanes exp_lanes(Lanes x) {
    const __mmask16 tiny = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_LT_OQ);
    const Lanes clamped = _mm512_mask_mov_ps(x, tiny, _mm512_set1_ps(-87.0f));
    const Lanes n = _mm512_roundscale_ps(
        _mm512_fmadd_ps(clamped, _mm512_set1_ps(1.44269504088896341f), _mm512_set1_ps(0.5f)),
        _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    Lanes r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), clamped);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
    Lanes p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    const Lanes y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~tiny), y, _mm512_castsi512_ps(exponent));
}

// Two vectors become one: lane i of each added to its lane i + width, the sums of the first below those of the second
// within runs of 2 * width lanes. Four times from 16 vectors, widths 8, 4, 2, 1: the 16 sums of ``sum_lanes``, in order.
inline Lanes fold8(Lanes a, Lanes b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
inline Lanes fold4(Lanes a, Lanes b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
inline Lanes fold2(Lanes a, Lanes b) {
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))));
}
inline Lanes fold1(Lanes a, Lanes b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

// Where a vector has to stand for ``sum_each`` so that its sum comes to lane 0, 1, 2 ...
constexpr int kFoldOrder[kLanes] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};

// The sums of 16 vectors.
inline Lanes sum_each(const Lanes* v) {
    Lanes eight[8], four[4], two[2];
    for (int i = 0; i < 8; ++i) eight[i] = fold8(v[i], v[i + 8]);
    for (int i = 0; i < 4; ++i) four[i] = fold4(eight[i], eight[i + 4]);
    for (int i = 0; i < 2; ++i) two[i] = fold2(four[i], four[i + 2]);
    return fold1(two[0], two[1]);
}

template <int dim>
void score(const AttentionItem& item) {
    constexpr int chunks = dim / kLanes;
    const int64_t num_keys = item.end - item.first;
    alignas(64) float keys[kLanes][dim];
    for (int64_t j = 0; j < num_keys; j += kLanes) {
        const int count = static_cast<int>(num_keys - j < kLanes ? num_keys - j : kLanes);
        for (int key = 0; key < kLanes; ++key) {
            const int64_t at = item.first + j + (key < count ? key : 0);
            const uint16_t* k = item.keys + item.slots[at] * item.slot_stride;
            for (int c = 0; c < chunks; ++c) _mm512_store_ps(keys[key] + c * kLanes, widen(k + c * kLanes));
        }
        for (int head = 0; head < item.num_heads; ++head) {
            Lanes totals[kLanes];
            for (int key = 0; key < kLanes; ++key) totals[key] = _mm512_setzero_ps();
            for (int c = 0; c < chunks; ++c) {
                const Lanes q = _mm512_loadu_ps(item.query + head * dim + c * kLanes);
                for (int key = 0; key < kLanes; ++key)
                    totals[kFoldOrder[key]] =
                        _mm512_fmadd_ps(q, _mm512_load_ps(keys[key] + c * kLanes), totals[kFoldOrder[key]]);
            }
            const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
            _mm512_mask_storeu_ps(item.scores + head * num_keys + j, mask, sum_each(totals));
        }
    }
}

// Values of ``chunks`` chunks of some heads: sums over the keys, in their order.
template <int heads, int chunks>
void mix_part(const AttentionItem& item, int dim, int head, int chunk, const float* inverse) {
    const int64_t num_keys = item.end - item.first;
    Lanes totals[heads][chunks];
    for (auto& row : totals)
        for (auto& total : row) total = _mm512_setzero_ps();
    const float* weights = item.scores + head * num_keys;
    for (int64_t j = 0; j < num_keys; ++j) {
        const uint16_t* v = item.values + item.slots[item.first + j] * item.slot_stride + chunk * kLanes;
        Lanes value[chunks];
        for (int c = 0; c < chunks; ++c) value[c] = widen(v + c * kLanes);
        for (int h = 0; h < heads; ++h) {
            const Lanes weight = _mm512_set1_ps(weights[h * num_keys + j]);
            for (int c = 0; c < chunks; ++c) totals[h][c] = _mm512_fmadd_ps(weight, value[c], totals[h][c]);
        }
    }
    for (int h = 0; h < heads; ++h)
        for (int c = 0; c < chunks; ++c)
            _mm512_storeu_ps(item.out + (head + h) * dim + (chunk + c) * kLanes,
                             _mm512_mul_ps(totals[h][c], _mm512_set1_ps(inverse[head + h])));
}

template <int dim>
void mix(const AttentionItem& item, const float* inverse) {
    constexpr int chunks = dim / kLanes % 4 ? 1 : 4;
    for (int chunk = 0; chunk < dim / kLanes; chunk += chunks) {
        int head = 0;
        for (; head + 4 <= item.num_heads; head += 4) mix_part<4, chunks>(item, dim, head, chunk, inverse);
        for (; head + 3 <= item.num_heads; head += 3) mix_part<3, chunks>(item, dim, head, chunk, inverse);
        for (; head < item.num_heads; ++head) mix_part<1, chunks>(item, dim, head, chunk, inverse);
    }
}

// Scores become weights, not yet divided by their sum, whose inverse is returned.
inline float weigh(float* scores, int64_t num_keys) {
    Lanes largest = _mm512_set1_ps(scores[0]);
    __mmask16 odd = 0;
    for (int64_t j = 0; j < num_keys; j += kLanes) {
        const __mmask16 mask = static_cast<__mmask16>(num_keys - j < kLanes ? (1u << (num_keys - j)) - 1 : 0xffff);
        const Lanes x = _mm512_mask_loadu_ps(largest, mask, scores + j);
        odd |= _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(3.4e38f), _CMP_NLE_UQ);
        largest = _mm512_max_ps(largest, x);
    }
    if (odd) return std::bit_cast<float>(0x7fc00000u);
    const Lanes top = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    alignas(64) float lanes[kLanes];
    Lanes total = _mm512_setzero_ps();
    for (int64_t j = 0; j < num_keys; j += kLanes) {
        const __mmask16 mask = static_cast<__mmask16>(num_keys - j < kLanes ? (1u << (num_keys - j)) - 1 : 0xffff);
        const Lanes weight = exp_lanes(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, scores + j), top));
        _mm512_mask_storeu_ps(scores + j, mask, weight);
        total = _mm512_mask_add_ps(total, mask, total, weight);
    }
    _mm512_store_ps(lanes, total);
    return 1.0f / sum_lanes(lanes);
}

#else

template <int dim>
void score(const AttentionItem& item) {
    const int64_t num_keys = item.end - item.first;
    for (int64_t j = 0; j < num_keys; ++j) {
        const uint16_t* k = item.keys + item.slots[item.first + j] * item.slot_stride;
        float key[dim];
        for (int i = 0; i < dim; ++i) key[i] = from_bfloat16(k[i]);
        for (int head = 0; head < item.num_heads; ++head) {
            const float* q = item.query + head * dim;
            float lanes[kLanes] = {};
            for (int i = 0; i < dim; i += kLanes)
                for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = fma(q[i + lane], key[i + lane], lanes[lane]);
            item.scores[head * num_keys + j] = sum_lanes(lanes);
        }
    }
}

template <int dim>
void mix(const AttentionItem& item, const float* inverse) {
    const int64_t num_keys = item.end - item.first;
    for (int head = 0; head < item.num_heads; ++head) {
        float total[dim] = {};
        const float* weights = item.scores + head * num_keys;
        for (int64_t j = 0; j < num_keys; ++j) {
            const uint16_t* v = item.values + item.slots[item.first + j] * item.slot_stride;
            for (int i = 0; i < dim; ++i) total[i] = fma(weights[j], from_bfloat16(v[i]), total[i]);
        }
        for (int i = 0; i < dim; ++i) item.out[head * dim + i] = total[i] * inverse[head];
    }
}

// Scores become weights, not yet divided by their sum, whose inverse is returned.
inline float weigh(float* scores, int64_t num_keys) {
    float largest = scores[0];
    bool finite = true;
    for (int64_t j = 0; j < num_keys; ++j) {
        largest = scores[j] > largest ? scores[j] : largest;
        finite &= std::fabs(scores[j]) <= 3.4e38f;
    }
    if (!finite) return std::bit_cast<float>(0x7fc00000u);
    float lanes[kLanes] = {};
    for (int64_t j = 0; j < num_keys; ++j) {
        scores[j] = exp_negative(scores[j] - largest);
        lanes[j % kLanes] += scores[j];
    }
    return 1.0f / sum_lanes(lanes);
}

#endif

constexpr int kMaxHeads = 64;  // query heads that share a key-value head

// Softmax in two passes over the keys, in their order.
template <int dim>
void attend_dim(const AttentionItem& item) {
    float inverse[kMaxHeads];
    score<dim>(item);
    for (int head = 0; head < item.num_heads; ++head)
        inverse[head] = weigh(item.scores + head * (item.end - item.first), item.end - item.first);
    mix<dim>(item, inverse);
}

void attend(const AttentionItem& item) {
    switch (item.dim) {
        case 32:
            return attend_dim<32>(item);
        case 64:
            return attend_dim<64>(item);
        case 80:
            return attend_dim<80>(item);
        case 96:
            return attend_dim<96>(item);
        case 128:
            return attend_dim<128>(item);
        case 256:
            return attend_dim<256>(item);
    }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

// GELU in its tanh form, 0.5 x (1 + tanh(u)) = x sigmoid(2 u) (Hendrycks and Gimpel, 2016, section 2).
void gelu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; ++i) {
        const float x = gate[i];
        const float u = 0.7978845608028654f * fma(0.044715f * x * x, x, x);
        out[i] = x * sigmoid(2.0f * u) * up[i];
    }
}

void to_bfloat16(const float* x, int n, uint16_t* out) {
    for (int i = 0; i < n; ++i) out[i] = to_bfloat16_one(x[i]);
}

#define CUTAWAY_TEXT(x) #x
#define CUTAWAY_STRING(x) CUTAWAY_TEXT(x)
#define CUTAWAY_JOIN(a, b) a##b
#define CUTAWAY_NAME(a, b) CUTAWAY_JOIN(a, b)

}  // namespace

const Kernels* CUTAWAY_NAME(CUTAWAY_ISA, _kernels)() {
    static const Kernels kernels = {
        CUTAWAY_STRING(CUTAWAY_ISA), linear, quantize, rms_norm, rotate, attend, silu_mul, gelu_mul, to_bfloat16,
    };
    return &kernels;
}

}  // namespace cutaway
