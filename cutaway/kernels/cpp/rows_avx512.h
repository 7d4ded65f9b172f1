// As rows.h with AVX-512, the same bits.

#pragma once

inline __mmask16 first_lanes(int count) { return static_cast<__mmask16>(count < kLanes ? (1u << count) - 1 : 0xffffu); }

void quantize(const float* x, const Activations& to) {
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    const Lanes magic = _mm512_set1_ps(12582912.0f);
    for (int group = 0; group < to.num_groups; ++group, x += kGroup) {
        const Lanes low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + kLanes);
        const uint32_t largest = _mm512_reduce_max_epu32(
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_bits),
                             _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits)));
        const bool finite = largest < 0x7f800000;
        const float magnitude = std::bit_cast<float>(largest);
        const Lanes inverse = _mm512_set1_ps(finite && magnitude > 0 ? 127.0f / magnitude : 0.0f);
        const __mmask16 keep = finite ? 0xffff : 0;
        const auto rounded = [&](Lanes numbers) {
            const Lanes shifted = _mm512_add_ps(_mm512_maskz_mul_ps(keep, numbers, inverse), magic);
            return _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(magic));
        };
        const __m512i a = rounded(low), b = rounded(high);
        int8_t* values = to.values + group * kTileRows * kGroup;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(values), _mm512_cvtepi32_epi8(a));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(values + kLanes), _mm512_cvtepi32_epi8(b));
        const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
        const float scale = finite ? magnitude / 127.0f : std::bit_cast<float>(0x7fc00000u);
        to.scales[group * kTileRows] = scale;
        to.offsets[group * kTileRows] = scale * static_cast<float>(sum);
        to.starts[group * kTileRows] = -128 * sum;
    }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
    Lanes total = _mm512_setzero_ps();
    for (int i = 0; i < n; i += kLanes) {
        const Lanes numbers = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
        total = _mm512_fmadd_ps(numbers, numbers, total);
    }
    alignas(64) float lanes[kLanes];
    _mm512_store_ps(lanes, total);
    const Lanes scale = _mm512_set1_ps(1.0f / std::sqrt(sum_lanes(lanes) / static_cast<float>(n) + eps));
    for (int i = 0; i < n; i += kLanes) {
        const __mmask16 mask = first_lanes(n - i);
        const Lanes scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weight + i)));
    }
}

inline Lanes sigmoid_lanes(Lanes x) {
    const Lanes one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    const Lanes e = exp_lanes(_mm512_sub_ps(zero, _mm512_abs_ps(x)));
    const Lanes above = _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, zero, _CMP_GE_OQ), one);
    return _mm512_div_ps(above, _mm512_add_ps(one, e));
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; i += kLanes) {
        const __mmask16 mask = first_lanes(n - i);
        const Lanes x = _mm512_maskz_loadu_ps(mask, gate + i);
        const Lanes activated = _mm512_mul_ps(x, sigmoid_lanes(x));
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(activated, _mm512_maskz_loadu_ps(mask, up + i)));
    }
}

void gelu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; i += kLanes) {
        const __mmask16 mask = first_lanes(n - i);
        const Lanes x = _mm512_maskz_loadu_ps(mask, gate + i);
        const Lanes cubic = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.044715f), x), x);
        const Lanes u = _mm512_mul_ps(_mm512_set1_ps(0.7978845608028654f), _mm512_fmadd_ps(cubic, x, x));
        const Lanes activated = _mm512_mul_ps(x, sigmoid_lanes(_mm512_mul_ps(_mm512_set1_ps(2.0f), u)));
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(activated, _mm512_maskz_loadu_ps(mask, up + i)));
    }
}

void rotate(float* heads, int num_heads, int dim, const float* cos, const float* sin) {
    const int half = dim / 2;
    for (int head = 0; head < num_heads; ++head, heads += dim) {
        for (int i = 0; i < half; i += kLanes) {
            const __mmask16 mask = first_lanes(half - i);
            const Lanes a = _mm512_maskz_loadu_ps(mask, heads + i), b = _mm512_maskz_loadu_ps(mask, heads + half + i);
            const Lanes c = _mm512_maskz_loadu_ps(mask, cos + i), s = _mm512_maskz_loadu_ps(mask, sin + i);
            _mm512_mask_storeu_ps(heads + i, mask, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
            _mm512_mask_storeu_ps(heads + half + i, mask, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
        }
    }
}
