// As attention.h with AVX-512, the same bits.

#pragma once

template <int dim>
void score(const OneRow& item) {
    constexpr int chunks = dim / kLanes;
    const int64_t num_keys = item.end - item.first;
    alignas(64) float keys[kLanes][dim];
    for (int64_t j = 0; j < num_keys; j += kLanes) {
        const int count = static_cast<int>(num_keys - j < kLanes ? num_keys - j : kLanes);
        for (int key = 0; key < kLanes; ++key) {
            const int64_t at = item.first + j + (key < count ? key : 0);
            const uint16_t* k = item.key(at);
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
void mix_part(const OneRow& item, int dim, int head, int chunk, const float* inverse) {
    const int64_t num_keys = item.end - item.first;
    Lanes totals[heads][chunks];
    for (auto& row : totals)
        for (auto& total : row) total = _mm512_setzero_ps();
    const float* weights = item.scores + head * num_keys;
    for (int64_t j = 0; j < num_keys; ++j) {
        const uint16_t* v = item.value(item.first + j) + chunk * kLanes;
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
void mix(const OneRow& item, const float* inverse) {
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
