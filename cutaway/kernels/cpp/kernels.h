// The arithmetic of a forward pass, one set of functions for each instruction set.
//
// Every set gives the same bits, but for AMX's attention and the products of ``fast_amx_kernels``: integer products are
// exact in any order, and what is summed in float is summed in one fixed order, with fused multiply-adds where they are
// written and nowhere else. A row's result depends on that row alone; with ``fast_amx_kernels`` also on whether there
// are many.

#pragma once

#include "layout.h"

namespace cutaway {

// Rows of one request, of consecutive positions, and the query heads that share one key-value head.
struct AttentionItem {
    const float* queries;  // [rows, heads, dim], times the scale of the dot products
    int64_t query_stride;  // numbers from one row to the next
    float* out;            // [rows, heads, dim]
    int64_t out_stride;
    const uint16_t* cache;  // bfloat16, of the layer and the key-value head, as ``store`` has filled it
    const int64_t* places;  // numbers from there to the first of each 16 positions of the request
    int64_t first_position;  // of the first row
    int64_t window;          // positions that a row sees, its own included; 0 for all
    int32_t num_rows, num_heads, dim;
    float* scores;              // room for [heads, positions]
    const AttentionItem* next;  // what the thread will do next, or null: its keys and values are asked for meanwhile

    // The first position that a row sees.
    int64_t begin(int64_t index) const {
        const int64_t end = first_position + index + 1;
        return window && end > window ? end - window : 0;
    }

    AttentionItem row(int64_t index) const {
        AttentionItem one = *this;
        one.queries += index * query_stride;
        one.out += index * out_stride;
        one.first_position += index;
        one.num_rows = 1;
        return one;
    }
};

// Where the keys and values of one row go: to one of the 16 positions of a piece of the cache.
//
// A piece is [kv_heads, 2, 16, dim], keys before values. An instruction set may order each 16 x dim numbers as it
// likes.
struct CacheRow {
    const float *keys, *values;  // [kv_heads, dim]
    uint16_t* piece;
    int32_t position, num_kv_heads, dim;
};

// A thread's share of a product: out[row, :] (+)= x[row, :] Wᵀ for the panels from ``begin`` to ``end``.
struct Share {
    const Matrix& w;
    Activations x;
    int num_rows, begin, end;
    float* out;  // [num_rows, stride], for the first output of ``w``
    int64_t stride;
    bool add;
    const uint8_t* next;  // what the thread reads after the share

    // What is read so many bytes after ``p``, which lies in the share.
    const uint8_t* ahead(const uint8_t* p, size_t distance) const {
        const size_t left = w.panel(end) - p;
        return distance < left ? p + distance : next + (distance - left);
    }
};

// How attention to one row can be divided: between how many positions, and into how many numbers for each head.
struct Chunking {
    int64_t num_positions, num_numbers;  // 0 if it cannot
};

// A row of scores, or a part of one: the first of its largest, how many are not -inf, how many are NaN or +inf, and, if
// there is something to choose from, the sum of e^(score - largest).
struct RowScan {
    int64_t best_id, num_tokens, num_bad;
    double exp_sum;
};

constexpr int kScanParts = 16;  // that a row is cut into, whoever scans it, so that the sum's bits depend on nobody

// Where the ``index``-th part of a row begins.
inline int64_t scan_part(int64_t num_scores, int index) { return num_scores * index / kScanParts; }

constexpr int64_t kNeverWide = INT64_MAX;

struct Kernels {
    const char* name;
    int64_t min_wide_rows;  // with so many rows and more, activations are bfloat16 and so are products
    void (*linear)(const Share& share);
    // A row of numbers becomes the first row of ``to``.
    void (*prepare)(const float* x, const Activations& to);
    void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
    void (*rotate)(float* heads, int num_heads, int dim, const float* cos, const float* sin);
    // How many rows ``attend`` takes at once.
    int (*rows_together)(int num_heads, int dim);
    void (*attend)(const AttentionItem& item);
    // The same for an item of one row in two parts: chunks, in any order, to [heads, num_numbers] each, and then the
    // result, from [chunks, heads, num_numbers]. Chunks that the item does not see are left out.
    Chunking (*chunking)(int dim);
    void (*attend_chunk)(const AttentionItem& item, int64_t chunk, float* to);
    void (*join_chunks)(const AttentionItem& item, const float* chunks);
    // Asks for what an item of one row reads first.
    void (*fetch)(const AttentionItem& item);
    void (*store)(const CacheRow& row);
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);
    void (*gelu_mul)(const float* gate, const float* up, int n, float* out);
    double (*exp_sum)(const float* scores, int64_t n, float top, double temperature);
    // Of the tokens from ``begin`` to ``end``, and of a row from its parts.
    RowScan (*scan)(const float* row, int64_t begin, int64_t end);
    RowScan (*join_scans)(const float* row, const RowScan* parts, int num_parts);
};

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* amx_kernels();
// The same with products in bfloat16 where there are many rows: other bits for one row than for many.
const Kernels* fast_amx_kernels();

}  // namespace cutaway
