// What choosing a token needs to know about a whole row of scores.

#pragma once

constexpr int kDoubles = 8;
constexpr double kLowestExponent = -707.0;

constexpr double kRoundingShift = 6755399441055744.0;  // 1.5 * 2^52: a sum with it is whole, in its lowest bits
constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.693147180369123816490, kLn2Low = 1.90821492927058770002e-10;
constexpr double kTaylor[] = {2.505210838544171878e-8, 2.755731922398589065e-7, 2.755731922398589065e-6,
                              2.480158730158730159e-5, 1.984126984126984127e-4, 1.388888888888888889e-3,
                              8.333333333333333333e-3, 4.166666666666666667e-2, 1.666666666666666667e-1,
                              0.5, 1.0, 1.0};

// e^x for x <= 0 with a relative error below 1e-14; 1e-307 below -707. Source: the exponent is taken apart as by Tang,
// 1989 (ACM TOMS 15), without his table; the polynomial is the Taylor series.
inline double exp_negative_double(double x) {
    const double clamped = x > kLowestExponent ? x : kLowestExponent;
    const double shifted = __builtin_fma(clamped, kLog2E, kRoundingShift), n = shifted - kRoundingShift;
    const double r = __builtin_fma(n, -kLn2Low, __builtin_fma(n, -kLn2High, clamped));
    double p = kTaylor[0];  // term by term: a loop here keeps the compiler from computing lanes side by side
    p = __builtin_fma(p, r, kTaylor[1]);
    p = __builtin_fma(p, r, kTaylor[2]);
    p = __builtin_fma(p, r, kTaylor[3]);
    p = __builtin_fma(p, r, kTaylor[4]);
    p = __builtin_fma(p, r, kTaylor[5]);
    p = __builtin_fma(p, r, kTaylor[6]);
    p = __builtin_fma(p, r, kTaylor[7]);
    p = __builtin_fma(p, r, kTaylor[8]);
    p = __builtin_fma(p, r, kTaylor[9]);
    p = __builtin_fma(p, r, kTaylor[10]);
    p = __builtin_fma(p, r, kTaylor[11]);
    return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) << 52) + 0x3ff0000000000000u);
}

// The sum of e^((score - top) / temperature): 8 sums of every eighth score, and then theirs.
double exp_sum(const float* scores, int64_t n, float top, double temperature) {
    const double inverse = 1 / temperature < 1e300 ? 1 / temperature : 1e300;
    double sums[kDoubles] = {};
    int64_t i = 0;
#if defined(__AVX512VNNI__)
    // By hand: of the loop below the compiler makes half of the width, three times as slow.
    const auto all = [](double number) { return _mm512_set1_pd(number); };
    __m512d totals = _mm512_setzero_pd();
    for (; i + kDoubles <= n; i += kDoubles) {
        const __m512d below = _mm512_sub_pd(_mm512_cvtps_pd(_mm256_loadu_ps(scores + i)), all(top));
        const __m512d x = _mm512_mul_pd(below, all(inverse));
        const __m512d clamped = _mm512_max_pd(x, all(kLowestExponent));
        const __m512d shifted = _mm512_fmadd_pd(clamped, all(kLog2E), all(kRoundingShift));
        const __m512d whole = _mm512_sub_pd(shifted, all(kRoundingShift));
        const __m512d r = _mm512_fnmadd_pd(whole, all(kLn2Low), _mm512_fnmadd_pd(whole, all(kLn2High), clamped));
        __m512d p = all(kTaylor[0]);
        for (size_t term = 1; term < std::size(kTaylor); ++term) p = _mm512_fmadd_pd(p, r, all(kTaylor[term]));
        const __m512i power = _mm512_slli_epi64(_mm512_castpd_si512(shifted), 52);
        const __m512i bits = _mm512_add_epi64(power, _mm512_set1_epi64(0x3ff0000000000000));
        totals = _mm512_add_pd(totals, _mm512_mul_pd(p, _mm512_castsi512_pd(bits)));
    }
    _mm512_storeu_pd(sums, totals);
#else
    for (; i + kDoubles <= n; i += kDoubles)
        for (int lane = 0; lane < kDoubles; ++lane)
            sums[lane] += exp_negative_double((static_cast<double>(scores[i + lane]) - top) * inverse);
#endif
    for (; i < n; ++i) sums[i % kDoubles] += exp_negative_double((static_cast<double>(scores[i]) - top) * inverse);
    for (int width = kDoubles / 2; width; width /= 2)
        for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    return sums[0];
}

// Of some tokens of a row, from ``begin`` to ``end``; ``exp_sum`` is relative to the largest of them.
RowScan scan(const float* row, int64_t begin, int64_t end) {
    const float* scores = row + begin;
    const int64_t n = end - begin;
    float top = -INFINITY;
    RowScan result{};
    int64_t i = 0;
#if defined(__AVX512VNNI__)
    const Lanes infinity = _mm512_set1_ps(INFINITY), nothing = _mm512_set1_ps(-INFINITY);
    Lanes largest = nothing;
    for (; i + kLanes <= n; i += kLanes) {
        const Lanes x = _mm512_loadu_ps(scores + i);
        largest = _mm512_max_ps(x, largest);
        result.num_tokens += __builtin_popcount(_mm512_cmp_ps_mask(x, nothing, _CMP_GT_OQ));
        result.num_bad += __builtin_popcount(_mm512_cmp_ps_mask(x, infinity, _CMP_NLT_UQ));
    }
    top = _mm512_reduce_max_ps(largest);
#else
    float largest[kLanes];
    int32_t num_tokens[kLanes] = {}, num_bad[kLanes] = {};
    for (float& lane : largest) lane = -INFINITY;
    for (; i + kLanes <= n; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const float x = scores[i + lane];
            largest[lane] = x > largest[lane] ? x : largest[lane];
            num_tokens[lane] += x > -INFINITY;
            num_bad[lane] += !(x < INFINITY);
        }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
        top = largest[lane] > top ? largest[lane] : top;
        result.num_tokens += num_tokens[lane];
        result.num_bad += num_bad[lane];
    }
#endif
    for (; i < n; ++i) {
        top = scores[i] > top ? scores[i] : top;
        result.num_tokens += scores[i] > -INFINITY;
        result.num_bad += !(scores[i] < INFINITY);
    }
    if (result.num_bad || !result.num_tokens) return result;
#if defined(__AVX512VNNI__)
    while (result.best_id + kLanes <= n &&
           !_mm512_cmp_ps_mask(_mm512_loadu_ps(scores + result.best_id), _mm512_set1_ps(top), _CMP_EQ_OQ))
        result.best_id += kLanes;
#endif
    while (scores[result.best_id] != top) ++result.best_id;
    result.exp_sum = exp_sum(scores, n, top, 1);
    result.best_id += begin;
    return result;
}

// Of a row, from those of its parts, in their order.
RowScan join_scans(const float* row, const RowScan* parts, int num_parts) {
    RowScan result{};
    for (int part = 0; part < num_parts; ++part) {
        const bool is_first = !result.num_tokens;
        result.num_bad += parts[part].num_bad;
        result.num_tokens += parts[part].num_tokens;
        if (parts[part].num_tokens && (is_first || row[parts[part].best_id] > row[result.best_id]))
            result.best_id = parts[part].best_id;
    }
    if (result.num_bad) return {0, result.num_tokens, result.num_bad, 0};
    for (int part = 0; part < num_parts; ++part)
        if (parts[part].num_tokens)
            result.exp_sum +=
                parts[part].exp_sum * exp_negative_double(double{row[parts[part].best_id]} - row[result.best_id]);
    return result;
}
