// Attention a row at a time.

#pragma once

// One row of an item, and the positions that it sees.
struct OneRow {
    const float* query;  // [heads, dim]
    float* out;
    const uint16_t* cache;
    const int64_t* places;
    int64_t first, end;
    int32_t num_heads, dim;
    float* scores;

    explicit OneRow(const AttentionItem& item)
        : query(item.queries),
          out(item.out),
          cache(item.cache),
          places(item.places),
          first(item.begin(0)),
          end(item.first_position + 1),
          num_heads(item.num_heads),
          dim(item.dim),
          scores(item.scores) {}

    const uint16_t* key(int64_t position) const { return cache + places[position / kPiece] + position % kPiece * dim; }
    const uint16_t* value(int64_t position) const { return key(position) + kPiece * dim; }
};

// NaN if any score is not finite.
inline float largest_score(const float* scores, int64_t num_keys) {
    float largest = scores[0];
    bool finite = true;
    for (int64_t j = 0; j < num_keys; ++j) {
        largest = scores[j] > largest ? scores[j] : largest;
        finite &= std::fabs(scores[j]) <= 3.4e38f;
    }
    return finite ? largest : std::bit_cast<float>(0x7fc00000u);
}
