// Arithmetic that every instruction set shares, number by number. For kernels.cpp alone, which includes it into a
// namespace without a name: an inline function of a shared name could be compiled for a processor that has more than
// this one.

#pragma once

constexpr int kLanes = 16;

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

constexpr float kExpTerms[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                               4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

// e^x for x <= 0 within two units in the last place; 0 below -87. Source: the range reduction and the degree-5
// polynomial of Cephes' expf (Moshier, 1984-2000).
inline float exp_negative(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float n = std::floor(fma(clamped, 1.44269504088896341f, 0.5f));
    float r = fma(n, -0.693359375f, clamped);
    r = fma(n, 2.12194440e-4f, r);
    float p = kExpTerms[0];
    p = fma(p, r, kExpTerms[1]);
    p = fma(p, r, kExpTerms[2]);
    p = fma(p, r, kExpTerms[3]);
    p = fma(p, r, kExpTerms[4]);
    p = fma(p, r, kExpTerms[5]);
    float y = fma(p, r * r, r) + 1.0f;
    float scale = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
    return x < -87.0f ? 0.0f : y * scale;
}

inline float sigmoid(float x) {  // of the magnitude, so that nothing overflows
    float e = exp_negative(-std::fabs(x));
    return (x >= 0 ? 1.0f : e) / (1.0f + e);
}
