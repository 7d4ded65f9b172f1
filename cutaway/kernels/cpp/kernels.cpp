// Compiled once for each instruction set; CUTAWAY_ISA names the set.

#include "kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "half.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace cutaway {
namespace {

#include "lanes.h"
#include "rows.h"
#if defined(__AVX512VNNI__)
#include "lanes_avx512.h"
#include "linear_avx512.h"
#include "attention_avx512.h"
#if defined(__AMX_INT8__)
#include "linear_amx.h"
#endif
#else
#include "linear.h"
#include "attention.h"
#endif

constexpr int kMaxTile = 8;  // rows that share one reading of the weights

template <Format format>
void linear_panel(const Matrix& w, const Activations& x, int num_rows, int panel, float* out, int64_t stride, bool add) {
    int row = 0;
#if defined(__AMX_INT8__)
    const int rest = num_rows % kTileRows;
    row = rest < kMinTileRows ? num_rows - rest : num_rows;
    if (row) linear_panel_tiles<format>(w, x, row, panel, out, stride, add);
#endif
    for (; row + kMaxTile <= num_rows; row += kMaxTile)
        linear_tile<format, kMaxTile>(w, x, row, panel, out, stride, add);
    for (; row + 4 <= num_rows; row += 4) linear_tile<format, 4>(w, x, row, panel, out, stride, add);
    for (; row < num_rows; ++row) linear_tile<format, 1>(w, x, row, panel, out, stride, add);
}

void linear(const Matrix& w, const Activations& x, int num_rows, int begin, int end, float* out, int64_t stride,
            bool add) {
#if defined(__AMX_INT8__)
    const Tiles tiles;
#endif
    for (int panel = begin; panel < end; ++panel) {
        switch (static_cast<Format>(w.format)) {
            case kAffine4:
                linear_panel<kAffine4>(w, x, num_rows, panel, out, stride, add);
                break;
            case kScaled8:
                linear_panel<kScaled8>(w, x, num_rows, panel, out, stride, add);
                break;
            case kAffine8:
                linear_panel<kAffine8>(w, x, num_rows, panel, out, stride, add);
                break;
        }
    }
}

constexpr int kMaxHeads = 64;  // query heads that share a key-value head

// Softmax in two passes over the keys, in their order.
template <int dim>
void attend_dim(const AttentionItem& item) {
    float inverse[kMaxHeads];
    score<dim>(item);
    for (int head = 0; head < item.num_heads; ++head)
        inverse[head] = weigh(item.scores + head * (item.end - item.first), item.end - item.first);
    mix<dim>(item, inverse);
}

void attend(const AttentionItem& item) {
    switch (item.dim) {
        case 32:
            return attend_dim<32>(item);
        case 64:
            return attend_dim<64>(item);
        case 80:
            return attend_dim<80>(item);
        case 96:
            return attend_dim<96>(item);
        case 128:
            return attend_dim<128>(item);
        case 256:
            return attend_dim<256>(item);
    }
}

#define CUTAWAY_TEXT(x) #x
#define CUTAWAY_STRING(x) CUTAWAY_TEXT(x)
#define CUTAWAY_JOIN(a, b) a##b
#define CUTAWAY_NAME(a, b) CUTAWAY_JOIN(a, b)

}  // namespace

const Kernels* CUTAWAY_NAME(CUTAWAY_ISA, _kernels)() {
    static const Kernels kernels = {
        CUTAWAY_STRING(CUTAWAY_ISA), linear, quantize, rms_norm, rotate, attend, silu_mul, gelu_mul, to_bfloat16,
    };
    return &kernels;
}

}  // namespace cutaway
