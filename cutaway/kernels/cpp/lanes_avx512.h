// As lanes.h, 16 numbers at a time.

#pragma once

using Lanes = __m512;

inline Lanes load_half(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

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
    Lanes p = _mm512_set1_ps(kExpTerms[0]);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpTerms[1]));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpTerms[2]));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpTerms[3]));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpTerms[4]));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpTerms[5]));
    const Lanes y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~tiny), y, _mm512_castsi512_ps(exponent));
}

// Two vectors become one: lane i of each added to its lane i + width, the sums of the first below those of the second
// within runs of 2 * width lanes. Four times from 16 vectors, widths 8, 4, 2, 1: the 16 sums of ``sum_lanes``, in
// order.
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
