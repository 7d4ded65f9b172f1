// From the blocks of a GGUF file to panels.

#pragma once

#include "layout.h"

namespace cutaway {

// ggml's numbers of its types.
enum StoredType : int32_t {
    kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14,
};

// The format that a stored type is packed to, or -1. All but Q6_K are exact; fp16 scales of Q4_K and Q5_K become float.
int32_t packed_format(int32_t stored_type);

// Bytes of a row of ``cols`` numbers in the file.
size_t stored_row_bytes(int32_t stored_type, int64_t cols);

// Packs stored rows as the rows from ``first`` on of a matrix whose panels begin at ``panels``.
void pack(int32_t stored_type, const uint8_t* stored, int64_t num_rows, int64_t cols, int64_t first, uint8_t* panels);

// The numbers of one row of a matrix.
void unpack_row(const Matrix& w, int64_t row, float* out);

}  // namespace cutaway
