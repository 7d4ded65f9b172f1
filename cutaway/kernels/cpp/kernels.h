// The arithmetic of a forward pass, one set of functions for each instruction set.
//
// Every set gives the same bits: integer products are exact in any order, and what is summed in float is summed in one
// fixed order, with fused multiply-adds where they are written and nowhere else. A row's result depends on that row
// alone.

#pragma once

#include "layout.h"

namespace cutaway {

// One row of queries of the heads that share a key-value head, and what it sees.
struct AttentionItem {
    const float* query;     // [heads, dim], times the scale of the dot products
    const uint16_t* keys;   // bfloat16, of this head in slot 0
    const uint16_t* values;
    const int64_t* slots;   // of each position
    int64_t slot_stride;    // numbers from one slot to the next
    int64_t first, end;     // positions that it sees
    int32_t num_heads, dim;
    float* scores;          // room for [heads, end - first]
    float* out;             // [heads, dim]
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
    void (*attend)(const AttentionItem& item);
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);
    void (*gelu_mul)(const float* gate, const float* up, int n, float* out);
    void (*to_bfloat16)(const float* x, int n, uint16_t* out);
};

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* amx_kernels();

}  // namespace cutaway
