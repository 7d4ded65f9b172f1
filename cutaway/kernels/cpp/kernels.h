// The arithmetic of a forward pass, one set of functions for each instruction set.
//
// Every set gives the same bits, but for AMX's attention: integer products are exact in any order, and what is summed in
// float is summed in one fixed order, with fused multiply-adds where they are written and nowhere else. A row's result
// depends on that row alone.

#pragma once

#include "layout.h"

namespace cutaway {

// Rows of one request, of consecutive positions, and the query heads that share one key-value head.
struct AttentionItem {
    const float* queries;  // [rows, heads, dim], times the scale of the dot products
    int64_t query_stride;  // numbers from one row to the next
    float* out;            // [rows, heads, dim]
    int64_t out_stride;
    const uint16_t *keys, *values;  // bfloat16, the whole cache of the layer, as ``store`` has filled it
    const int64_t* slots;           // of each position of the request
    int64_t first_position;         // of the first row
    int64_t window;                 // positions that a row sees, its own included; 0 for all
    int32_t num_rows, num_heads, dim, num_kv_heads, kv_head;
    float* scores;  // room for [heads, positions]

    AttentionItem row(int64_t index) const {
        AttentionItem one = *this;
        one.queries += index * query_stride;
        one.out += index * out_stride;
        one.first_position += index;
        one.num_rows = 1;
        return one;
    }
};

// Where one row of keys and values goes.
struct CacheRow {
    const float *keys, *values;  // [kv_heads, dim]
    uint16_t *key_cache, *value_cache;
    int64_t slot;
    int32_t num_kv_heads, dim;
};

struct Kernels {
    const char* name;
    // out[row, :] (+)= x[row, :] Wᵀ for the panels from ``begin`` to ``end``; out is [num_rows, stride].
    void (*linear)(const Matrix& w, const Activations& x, int num_rows, int begin, int end, float* out, int64_t stride,
                   bool add);
    // A row of numbers becomes the first row of ``to``.
    void (*quantize)(const float* x, const Activations& to);
    void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
    void (*rotate)(float* heads, int num_heads, int dim, const float* cos, const float* sin);
    // How many rows ``attend`` takes at once.
    int (*rows_together)(int num_heads, int dim);
    void (*attend)(const AttentionItem& item);
    void (*store)(const CacheRow& row);
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);
    void (*gelu_mul)(const float* gate, const float* up, int n, float* out);
};

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* amx_kernels();

}  // namespace cutaway
