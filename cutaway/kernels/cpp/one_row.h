// Attention a row at a time.

#pragma once

// One row of an item, and the positions that it sees.
struct OneRow {
    const float* query;  // [heads, dim]
    float* out;
    const uint16_t *keys, *values;  // of the head in slot 0
    const int64_t* slots;
    int64_t slot_stride;  // numbers from one slot to the next
    int64_t first, end;
    int32_t num_heads;
    float* scores;

    explicit OneRow(const AttentionItem& item)
        : query(item.queries),
          out(item.out),
          keys(item.keys + item.kv_head * item.dim),
          values(item.values + item.kv_head * item.dim),
          slots(item.slots),
          slot_stride(int64_t{item.num_kv_heads} * item.dim),
          first(item.window && item.first_position >= item.window ? item.first_position + 1 - item.window : 0),
          end(item.first_position + 1),
          num_heads(item.num_heads),
          scores(item.scores) {}
};
