// Attention in chunks of 256 positions that are computed by themselves and joined in their order (the online softmax of
// FlashAttention: Dao et al., 2022, section 3.1; that chunks are apart, as in Flash-Decoding: Dao et al., 2023). Chunks
// begin at multiples of 256, whoever computes what.

#pragma once

constexpr int kChunk = 256;
constexpr int kMaxPieces = kChunk / kPiece;
constexpr float kNothing = -1e30f;  // top of a query that has seen no key yet

// 2^x for x <= 0, with a relative error below 5e-5, far less than the rounding to bfloat16 that follows.
inline Lanes exp2_lanes(Lanes x) {
    const Lanes n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Lanes f = _mm512_sub_ps(x, n);
    Lanes p = _mm512_set1_ps(9.61812911e-3f);  // the Taylor series of e^(f ln 2)
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55041087e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226507e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147181e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

inline float exp2_one(float x) { return _mm512_cvtss_f32(exp2_lanes(_mm512_set1_ps(x))); }

// Which positions an item sees, all its rows together.
struct Range {
    int64_t begin, end;

    explicit Range(const AttentionItem& item)
        : begin(item.begin(0)), end(item.first_position + item.num_rows) {}

    int64_t first_chunk() const { return begin / kChunk; }
    int64_t num_chunks() const { return (end - 1) / kChunk + 1; }
};

// The pieces of a chunk that an item sees.
template <int dim>
struct Chunk {
    int64_t first = 0;  // position
    int num_pieces = 0;
    const uint16_t* pieces[kMaxPieces];

    Chunk() = default;

    Chunk(const AttentionItem& item, const Range& range, int64_t index) {
        const int64_t begin = range.begin / kPiece * kPiece, end = (index + 1) * kChunk;
        first = index * kChunk > begin ? index * kChunk : begin;
        num_pieces = static_cast<int>(((end < range.end ? end : range.end) - first + kPiece - 1) / kPiece);
        for (int piece = 0; piece < num_pieces; ++piece)
            pieces[piece] = item.cache + item.places[first / kPiece + piece];
    }

    // Asks for keys, or for values, that are in no cache yet.
    void fetch_keys(int piece) const { fetch(piece, 0); }
    void fetch_values(int piece) const { fetch(piece, kPiece * dim); }

    void fetch_all() const {
        for (int piece = 0; piece < num_pieces; ++piece) fetch_keys(piece), fetch_values(piece);
    }

   private:
    void fetch(int piece, int begin) const {
        if (piece >= num_pieces) return;
        for (int at = begin; at < begin + kPiece * dim; at += 32) _mm_prefetch(pieces[piece] + at, _MM_HINT_T1);
    }
};

// What is known about a query after some chunks: weights are relative to that of the score ``top``.
template <int dim>
struct Partial {
    float mixed[dim];
    float top, sum;
    float unused[kLanes - 2];  // so that those of the next query begin a cache line as well

    // Nothing seen yet.
    void clear() {
        top = kNothing;
        sum = 0;
        std::memset(mixed, 0, sizeof mixed);
    }

    // Takes in the next chunk.
    void join(const Partial& next) {
        const float larger = next.top > top ? next.top : top;
        const float here = exp2_one(top - larger), there = exp2_one(next.top - larger);
        top = larger;
        sum = fma(next.sum, there, sum * here);
        for (int i = 0; i < dim; i += kLanes) {
            const Lanes scaled = _mm512_mul_ps(_mm512_loadu_ps(mixed + i), _mm512_set1_ps(here));
            const Lanes both = _mm512_fmadd_ps(_mm512_loadu_ps(next.mixed + i), _mm512_set1_ps(there), scaled);
            _mm512_storeu_ps(mixed + i, both);
        }
    }

    void write(float* out) const {
        const Lanes inverse = _mm512_set1_ps(1.0f / sum);
        for (int i = 0; i < dim; i += kLanes)
            _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_loadu_ps(mixed + i), inverse));
    }
};
