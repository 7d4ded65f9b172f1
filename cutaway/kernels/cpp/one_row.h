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
