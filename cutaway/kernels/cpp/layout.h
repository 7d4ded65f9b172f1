// How matrices and activations lie in memory. Shared by everything native.
//
// A matrix is cut into panels of 16 output rows; a panel is a run of blocks, one for each group of 32 inputs, so that
// one pass over a panel reads memory in order. Within a block, byte 64 * step + 4 * row + byte holds input
// 4 * step + byte of a row: what an instruction that multiplies four bytes in each of 16 lanes wants.

#pragma once

#include <cstddef>
#include <cstdint>

namespace cutaway {

constexpr int kPanelRows = 16;
constexpr int kGroup = 32;
constexpr int kPiece = 16;  // positions of a request whose keys and values lie in one piece
constexpr int kTileRows = 16;  // rows of activations that are multiplied at once where there are many

enum Format : int32_t {
    kAffine4 = 0,  // x = d q + m, 4 bits; two steps share 64 bytes, the later one in the high nibbles; fp16 d, m
    kScaled8 = 1,  // x = d (q - 128), 8 bits; fp16 d
    kAffine8 = 2,  // x = d q + m, 8 bits; float d, m
};

constexpr size_t block_bytes(Format format) {
    switch (format) {
        case kAffine4:
            return 256 + 4 * kPanelRows;
        case kScaled8:
            return 512 + 2 * kPanelRows;
        case kAffine8:
            return 512 + 8 * kPanelRows;
    }
    return 0;
}

struct Matrix {
    int32_t format;
    int32_t rows;  // outputs
    int32_t cols;  // inputs, a multiple of 32
    int32_t unused;
    const uint8_t* data;

    // Outputs of a panel; the last one may have fewer than others.
    int num_lanes(int panel) const {
        const int left = rows - panel * kPanelRows;
        return left < kPanelRows ? left : kPanelRows;
    }
    int num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
    int num_groups() const { return cols / kGroup; }
    size_t panel_bytes() const { return num_groups() * block_bytes(static_cast<Format>(format)); }
    const uint8_t* panel(int64_t index) const { return data + index * panel_bytes(); }
    // Some whole panels.
    Matrix panels(int first, int count) const { return {format, count * kPanelRows, cols, 0, panel(first)}; }
};

// Matrices of the same inputs, whose outputs follow each other.
struct Product {
    int32_t num_parts;
    int32_t unused;
    Matrix parts[3];

    int64_t num_panels() const {
        int64_t total = 0;
        for (int part = 0; part < num_parts; ++part) total += parts[part].num_panels();
        return total;
    }

    int64_t num_outputs() const {
        int64_t total = 0;
        for (int part = 0; part < num_parts; ++part) total += parts[part].rows;
        return total;
    }

    // Where the ``index``-th of ``count`` equal shares of all panels begins.
    const uint8_t* share(int64_t index, int64_t count) const {
        int64_t panel = num_panels() * index / count;
        int part = 0;
        for (; part + 1 < num_parts && panel >= parts[part].num_panels(); ++part) panel -= parts[part].num_panels();
        return parts[part].panel(panel);
    }
};

// Rows of int8 with numbers for each group of 32, or rows of bfloat16, in tiles of 16 rows. There is room for whole
// tiles.
struct Activations {
    int8_t* values;     // [tiles, groups, 16, 32]
    float* scales;      // [tiles, groups, 16]
    float* offsets;     // as scales: the sum of a group, times its scale; what a minimum is multiplied with
    int32_t* starts;    // as scales: the sum of a group times -128; what a product with q - 128 starts from
    int32_t num_groups;
    uint16_t* numbers;  // bfloat16, in the order of ``values``; null if they are int8

    // The same from a row on, for rows of its tile alone.
    Activations from(int64_t row) const {
        return skip(row / kTileRows * num_groups * kTileRows + row % kTileRows, num_groups);
    }

    // Some groups of the same rows.
    Activations groups(int64_t first, int32_t count) const {
        return skip(first * kTileRows, count);
    }

    Activations skip(int64_t at, int32_t count) const {
        if (numbers) return {nullptr, nullptr, nullptr, nullptr, count, numbers + at * kGroup};
        return {values + at * kGroup, scales + at, offsets + at, starts + at, count, nullptr};
    }
};

}  // namespace cutaway
