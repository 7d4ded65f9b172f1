// Rows of int8 times a panel of weights, in plain C++.

#pragma once

template <Format format>
struct Block {
    uint8_t steps[8][64];
    float d[kPanelRows], m[kPanelRows];

    explicit Block(const uint8_t* p) {
        if constexpr (format == kAffine4) {
            for (int i = 0; i < 4; ++i)
                for (int byte = 0; byte < 64; ++byte) {
                    steps[2 * i][byte] = p[64 * i + byte] & 15;
                    steps[2 * i + 1][byte] = p[64 * i + byte] >> 4;
                }
            halves(p + 256, d);
            halves(p + 288, m);
        } else {
            std::memcpy(steps, p, 512);
            if constexpr (format == kScaled8) {
                halves(p + 512, d);
            } else {
                std::memcpy(d, p + 512, sizeof d);
                std::memcpy(m, p + 576, sizeof m);
            }
        }
    }

    static void halves(const uint8_t* p, float* out) {
        uint16_t bits[kPanelRows];
        std::memcpy(bits, p, sizeof bits);
        for (int row = 0; row < kPanelRows; ++row) out[row] = from_half(bits[row]);
    }
};

template <Format format, int tile>
void linear_tile(const Share& share, int first, int panel) {
    const Matrix& w = share.w;
    const int num_groups = w.num_groups();
    const Activations here = share.x.from(first);
    const uint8_t* p = w.panel(panel);
    float totals[tile][kPanelRows] = {};
    for (int group = 0; group < num_groups; ++group, p += block_bytes(format)) {
        const Block<format> block(p);
        for (int row = 0; row < tile; ++row) {
            const int at = group * kTileRows + row;
            const int8_t* v = here.values + at * kGroup;
            int32_t dot[kPanelRows] = {};
            for (int step = 0; step < 8; ++step)
                for (int lane = 0; lane < kPanelRows; ++lane)
                    for (int byte = 0; byte < 4; ++byte)
                        dot[lane] += static_cast<int32_t>(block.steps[step][4 * lane + byte]) * v[4 * step + byte];
            for (int lane = 0; lane < kPanelRows; ++lane) {
                int32_t exact = format == kScaled8 ? dot[lane] + here.starts[at] : dot[lane];
                float total = fma(static_cast<float>(exact), block.d[lane] * here.scales[at], totals[row][lane]);
                totals[row][lane] = format == kScaled8 ? total : fma(block.m[lane], here.offsets[at], total);
            }
        }
    }
    const int num_lanes = w.num_lanes(panel);
    for (int row = 0; row < tile; ++row) {
        float* to = share.out + (first + row) * share.stride + panel * kPanelRows;
        for (int lane = 0; lane < num_lanes; ++lane)
            to[lane] = share.add ? totals[row][lane] + to[lane] : totals[row][lane];
    }
}
