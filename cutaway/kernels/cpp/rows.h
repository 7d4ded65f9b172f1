// What happens to each row between the products.

#pragma once

// A group's largest magnitude becomes 127. A group with a number that is not finite gets a scale that is none either.
void quantize(const float* x, const Activations& to) {
    for (int group = 0; group < to.num_groups; ++group) {
        const float* g = x + group * kGroup;
        uint32_t largest = 0;
        for (int i = 0; i < kGroup; ++i) {
            uint32_t bits = std::bit_cast<uint32_t>(g[i]) & 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
        const bool finite = largest < 0x7f800000;
        const float magnitude = std::bit_cast<float>(largest);
        const float inverse = finite && magnitude > 0 ? 127.0f / magnitude : 0.0f;
        int32_t sum = 0;
        for (int i = 0; i < kGroup; ++i) {
            // The magic number rounds to the nearest integer, ties to even.
            float shifted = (finite ? g[i] * inverse : 0.0f) + 12582912.0f;
            int32_t q = std::bit_cast<int32_t>(shifted) - 0x4b400000;
            to.values[group * kTileRows * kGroup + i] = static_cast<int8_t>(q);
            sum += q;
        }
        const float scale = finite ? magnitude / 127.0f : std::bit_cast<float>(0x7fc00000u);
        to.scales[group * kTileRows] = scale;
        to.offsets[group * kTileRows] = scale * static_cast<float>(sum);
        to.starts[group * kTileRows] = -128 * sum;
    }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
    float lanes[kLanes] = {};
    int i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = fma(x[i + lane], x[i + lane], lanes[lane]);
    for (int lane = 0; i + lane < n; ++lane) lanes[lane] = fma(x[i + lane], x[i + lane], lanes[lane]);
    const float scale = 1.0f / std::sqrt(sum_lanes(lanes) / static_cast<float>(n) + eps);
    for (int j = 0; j < n; ++j) out[j] = x[j] * scale * weight[j];
}

void rotate(float* heads, int num_heads, int dim, const float* cos, const float* sin) {
    const int half = dim / 2;
    for (int head = 0; head < num_heads; ++head, heads += dim) {
        for (int i = 0; i < half; ++i) {
            const float a = heads[i], b = heads[i + half];
            heads[i] = fma(a, cos[i], -(b * sin[i]));
            heads[i + half] = fma(b, cos[i], a * sin[i]);
        }
    }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

// GELU in its tanh form, 0.5 x (1 + tanh(u)) = x sigmoid(2 u) (Hendrycks and Gimpel, 2016, section 2).
void gelu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; ++i) {
        const float x = gate[i];
        const float u = 0.7978845608028654f * fma(0.044715f * x * x, x, x);
        out[i] = x * sigmoid(2.0f * u) * up[i];
    }
}

