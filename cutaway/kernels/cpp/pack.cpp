#include "pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "half.h"

namespace cutaway {
namespace {

// One group of 32 numbers, x = d q + m with 0 <= q < 256; for Q5_0, Q6_K and Q8_0 m is -128 d.
struct Group {
    uint8_t q[kGroup];
    float d, m;
    uint16_t half_d, half_m;
};

uint16_t read16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, 2);
    return value;
}

int block_values(int32_t type) { return type >= kQ4_K ? 256 : 32; }

size_t stored_block_bytes(int32_t type) {
    switch (type) {
        case kQ4_0: return 18;
        case kQ4_1: return 20;
        case kQ5_0: return 22;
        case kQ5_1: return 24;
        case kQ8_0: return 34;
        case kQ4_K: return 144;
        case kQ5_K: return 176;
        case kQ6_K: return 210;
    }
    return 0;
}

void nibbles(const uint8_t* p, uint8_t* q) {
    for (int i = 0; i < 16; ++i) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

void fifth_bits(const uint8_t* p, uint8_t* q) {
    for (int i = 0; i < 32; ++i) q[i] |= ((p[i / 8] >> (i % 8)) & 1) << 4;
}

// Scale and minimum of run ``run`` of a Q4_K or Q5_K block.
void scale_and_minimum(const uint8_t* packed, int run, uint8_t& scale, uint8_t& minimum) {
    if (run < 4) {
        scale = packed[run] & 63;
        minimum = packed[run + 4] & 63;
    } else {
        scale = (packed[run + 4] & 15) | ((packed[run - 4] >> 6) << 4);
        minimum = (packed[run + 4] >> 4) | ((packed[run] >> 6) << 4);
    }
}

// A group of Q6_K has two scales. It is rounded to one, finer by the range of 8 bits against 6.
void read_q6_k(const uint8_t* block, int run, Group& group) {
    const float d = from_half(read16(block + 208));
    const int half = run / 4, part = run % 4;
    const uint8_t* low = block + 64 * half + 32 * (part % 2);
    const uint8_t* high = block + 128 + 32 * half;
    float x[kGroup], largest = 0;
    for (int i = 0; i < kGroup; ++i) {
        const int nibble = part < 2 ? low[i] & 15 : low[i] >> 4;
        const int q = (nibble | ((high[i] >> (2 * part)) & 3) << 4) - 32;
        const int8_t scale = static_cast<int8_t>(block[192 + 8 * half + 2 * part + i / 16]);
        x[i] = d * static_cast<float>(scale) * static_cast<float>(q);
        largest = std::max(largest, std::fabs(x[i]));
    }
    group.d = largest / 127.0f;
    group.m = -128.0f * group.d;
    for (int i = 0; i < kGroup; ++i) {
        const float q = largest > 0 ? std::nearbyint(x[i] / group.d) : 0.0f;
        group.q[i] = static_cast<uint8_t>(static_cast<int>(q) + 128);
    }
}

void read_group(int32_t type, const uint8_t* row, int64_t index, Group& group) {
    const int runs = block_values(type) / kGroup;
    const uint8_t* p = row + index / runs * stored_block_bytes(type);
    const int run = static_cast<int>(index % runs);
    switch (type) {
        case kQ4_0:
            group.half_d = read16(p);
            nibbles(p + 2, group.q);
            for (auto& q : group.q) q += 120;
            break;
        case kQ4_1:
            group.half_d = read16(p);
            group.half_m = read16(p + 2);
            nibbles(p + 4, group.q);
            break;
        case kQ5_0:
            group.half_d = read16(p);
            nibbles(p + 6, group.q);
            fifth_bits(p + 2, group.q);
            for (auto& q : group.q) q += 112;
            break;
        case kQ5_1:
            group.d = from_half(read16(p));
            group.m = from_half(read16(p + 2));
            nibbles(p + 8, group.q);
            fifth_bits(p + 4, group.q);
            break;
        case kQ8_0:
            group.half_d = read16(p);
            for (int i = 0; i < kGroup; ++i) group.q[i] = static_cast<uint8_t>(p[2 + i] + 128);
            break;
        case kQ4_K:
        case kQ5_K: {
            uint8_t scale, minimum;
            scale_and_minimum(p + 4, run, scale, minimum);
            group.d = from_half(read16(p)) * static_cast<float>(scale);
            group.m = -(from_half(read16(p + 2)) * static_cast<float>(minimum));
            const uint8_t* q = p + (type == kQ4_K ? 16 : 48) + 32 * (run / 2);
            for (int i = 0; i < kGroup; ++i) group.q[i] = run % 2 ? q[i] >> 4 : q[i] & 15;
            if (type == kQ5_K)
                for (int i = 0; i < kGroup; ++i) group.q[i] |= ((p[16 + i] >> run) & 1) << 4;
            break;
        }
        case kQ6_K:
            read_q6_k(p, run, group);
            break;
    }
}

}  // namespace

int32_t packed_format(int32_t type) {
    switch (type) {
        case kQ4_1: return kAffine4;
        case kQ4_0: case kQ5_0: case kQ8_0: return kScaled8;
        case kQ5_1: case kQ4_K: case kQ5_K: case kQ6_K: return kAffine8;
    }
    return -1;
}

size_t stored_row_bytes(int32_t type, int64_t cols) { return cols / block_values(type) * stored_block_bytes(type); }

void pack(int32_t type, const uint8_t* stored, int64_t num_rows, int64_t cols, int64_t first, uint8_t* panels) {
    const Format format = static_cast<Format>(packed_format(type));
    const size_t row_bytes = stored_row_bytes(type, cols), size = block_bytes(format);
    const int64_t num_groups = cols / kGroup;
    Group group;
    for (int64_t row = 0; row < num_rows; ++row) {
        const int64_t at = first + row, lane = at % kPanelRows;
        for (int64_t index = 0; index < num_groups; ++index) {
            read_group(type, stored + row * row_bytes, index, group);
            uint8_t* block = panels + (at / kPanelRows * num_groups + index) * size;
            for (int i = 0; i < kGroup; ++i) {
                const int step = i / 4;
                if (format == kAffine4) {
                    uint8_t& byte = block[64 * (step / 2) + 4 * lane + i % 4];
                    byte = step % 2 ? (byte & 15) | (group.q[i] << 4) : (byte & 240) | group.q[i];
                } else {
                    block[64 * step + 4 * lane + i % 4] = group.q[i];
                }
            }
            if (format == kAffine4) {
                std::memcpy(block + 256 + 2 * lane, &group.half_d, 2);
                std::memcpy(block + 288 + 2 * lane, &group.half_m, 2);
            } else if (format == kScaled8) {
                std::memcpy(block + 512 + 2 * lane, &group.half_d, 2);
            } else {
                std::memcpy(block + 512 + 4 * lane, &group.d, 4);
                std::memcpy(block + 576 + 4 * lane, &group.m, 4);
            }
        }
    }
}

void unpack_row(const Matrix& w, int64_t row, float* out) {
    const Format format = static_cast<Format>(w.format);
    const int64_t lane = row % kPanelRows;
    const uint8_t* block = w.panel(row / kPanelRows);
    for (int group = 0; group < w.num_groups(); ++group, block += block_bytes(format), out += kGroup) {
        float d, m;
        if (format == kAffine8) {
            std::memcpy(&d, block + 512 + 4 * lane, 4);
            std::memcpy(&m, block + 576 + 4 * lane, 4);
        } else {
            d = from_half(read16(block + (format == kAffine4 ? 256 : 512) + 2 * lane));
            m = format == kAffine4 ? from_half(read16(block + 288 + 2 * lane)) : 0.0f;
        }
        for (int i = 0; i < kGroup; ++i) {
            const int step = i / 4;
            if (format == kAffine4) {
                const uint8_t byte = block[64 * (step / 2) + 4 * lane + i % 4];
                out[i] = d * static_cast<float>(step % 2 ? byte >> 4 : byte & 15) + m;
            } else {
                const int q = block[64 * step + 4 * lane + i % 4];
                out[i] = format == kScaled8 ? d * static_cast<float>(q - 128) : d * static_cast<float>(q) + m;
            }
        }
    }
}

}  // namespace cutaway
