// As attention.h with AVX2, the same bits: the 16 lanes of a sum are two registers.

#pragma once

constexpr int kHalf = kLanes / 2;

inline __m256 widen(const uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// Sums of the lanes of eight registers, in the order of ``sum_lanes`` after its first step.
inline __m256 sum_eight(const __m256* totals) {
    const auto halves = [](__m256 a, __m256 b) {
        return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    };
    const auto quarters = [](__m256 a, __m256 b) {
        return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    };
    const __m256 first = quarters(halves(totals[0], totals[4]), halves(totals[1], totals[5]));
    const __m256 second = quarters(halves(totals[2], totals[6]), halves(totals[3], totals[7]));
    return _mm256_add_ps(_mm256_shuffle_ps(first, second, 0x88), _mm256_shuffle_ps(first, second, 0xdd));
}

template <int dim>
void score(const OneRow& item) {
    const int64_t num_keys = item.end - item.first;
    alignas(32) float keys[kHalf][dim];
    for (int64_t j = 0; j < num_keys; j += kHalf) {
        const int count = static_cast<int>(num_keys - j < kHalf ? num_keys - j : kHalf);
        for (int key = 0; key < kHalf; ++key) {
            const uint16_t* k = item.key(item.first + j + (key < count ? key : 0));
            for (int i = 0; i < dim; i += kHalf) _mm256_store_ps(keys[key] + i, widen(k + i));
        }
        for (int head = 0; head < item.num_heads; ++head) {
            const float* query = item.query + head * dim;
            __m256 totals[kHalf];
            for (int first = 0; first < kHalf; first += 4) {  // four keys fill the registers
                __m256 low[4] = {}, high[4] = {};
                for (int i = 0; i < dim; i += kLanes) {
                    const __m256 q = _mm256_loadu_ps(query + i), r = _mm256_loadu_ps(query + i + kHalf);
                    for (int key = 0; key < 4; ++key) {
                        low[key] = _mm256_fmadd_ps(q, _mm256_load_ps(keys[first + key] + i), low[key]);
                        high[key] = _mm256_fmadd_ps(r, _mm256_load_ps(keys[first + key] + i + kHalf), high[key]);
                    }
                }
                for (int key = 0; key < 4; ++key) totals[first + key] = _mm256_add_ps(low[key], high[key]);
            }
            alignas(32) float sums[kHalf];
            _mm256_store_ps(sums, sum_eight(totals));
            for (int key = 0; key < count; ++key) item.scores[head * num_keys + j + key] = sums[key];
        }
    }
}

// Values of 16 channels of some heads: sums over the keys, in their order.
template <int heads>
void mix_part(const OneRow& item, int head, int channel, const float* inverse) {
    const int64_t num_keys = item.end - item.first;
    __m256 totals[heads][2];
    for (auto& row : totals) row[0] = row[1] = _mm256_setzero_ps();
    const float* weights = item.scores + head * num_keys;
    for (int64_t j = 0; j < num_keys; ++j) {
        const uint16_t* v = item.value(item.first + j) + channel;
        const __m256 low = widen(v), high = widen(v + kHalf);
        for (int h = 0; h < heads; ++h) {
            const __m256 weight = _mm256_broadcast_ss(weights + h * num_keys + j);
            totals[h][0] = _mm256_fmadd_ps(weight, low, totals[h][0]);
            totals[h][1] = _mm256_fmadd_ps(weight, high, totals[h][1]);
        }
    }
    for (int h = 0; h < heads; ++h) {
        float* to = item.out + (head + h) * item.dim + channel;
        const __m256 scale = _mm256_broadcast_ss(inverse + head + h);
        _mm256_storeu_ps(to, _mm256_mul_ps(totals[h][0], scale));
        _mm256_storeu_ps(to + kHalf, _mm256_mul_ps(totals[h][1], scale));
    }
}

template <int dim>
void mix(const OneRow& item, const float* inverse) {
    for (int channel = 0; channel < dim; channel += kLanes) {
        int head = 0;
        for (; head + 4 <= item.num_heads; head += 4) mix_part<4>(item, head, channel, inverse);
        for (; head + 3 <= item.num_heads; head += 3) mix_part<3>(item, head, channel, inverse);
        for (; head < item.num_heads; ++head) mix_part<1>(item, head, channel, inverse);
    }
}

// ``exp_negative`` in eight lanes.
inline __m256 exp_half(__m256 x) {
    const __m256 low = _mm256_set1_ps(-87.0f);
    const __m256 clamped = _mm256_max_ps(x, low);  // x is a number
    const __m256 log2_e = _mm256_set1_ps(1.44269504088896341f);
    const __m256 n = _mm256_floor_ps(_mm256_fmadd_ps(clamped, log2_e, _mm256_set1_ps(0.5f)));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), clamped);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(kExpTerms[0]);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpTerms[1]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpTerms[2]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpTerms[3]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpTerms[4]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpTerms[5]));
    const __m256 y = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 result = _mm256_mul_ps(y, _mm256_castsi256_ps(power));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), result);
}

// Scores become weights, not yet divided by their sum, whose inverse is returned.
inline float weigh(float* scores, int64_t num_keys) {
    const float largest = largest_score(scores, num_keys);
    if (std::isnan(largest)) return largest;
    alignas(32) float lanes[kLanes] = {};
    int64_t j = 0;
    for (; j + kHalf <= num_keys; j += kHalf) {
        const __m256 weight = exp_half(_mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(largest)));
        _mm256_storeu_ps(scores + j, weight);
        float* to = lanes + j % kLanes;
        _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), weight));
    }
    for (; j < num_keys; ++j) {
        scores[j] = exp_negative(scores[j] - largest);
        lanes[j % kLanes] += scores[j];
    }
    return 1.0f / sum_lanes(lanes);
}
