// Fixed pieces of work for each kernel, of which callgrind counts the instructions: work SET PIECE.

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels.h"

using namespace cutaway;

namespace {

constexpr int kWidth = 576, kOutputs = 256, kMaxRows = 32, kVocab = 49152;
constexpr int kDim = 64, kHeads = 3, kContext = 256;

std::vector<float> numbers(size_t count) {
    std::vector<float> made(count);
    uint32_t state = 1;
    for (float& number : made) {
        state = state * 1664525u + 1013904223u;
        number = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
    }
    return made;
}

// A matrix whose blocks are all zeros: instructions do not depend on what it holds.
struct Weights {
    std::vector<uint8_t> bytes;
    Matrix matrix;

    explicit Weights(Format format)
        : bytes(kOutputs / kPanelRows * (kWidth / kGroup) * block_bytes(format) + 64),
          matrix{format, kOutputs, kWidth, 0, bytes.data()} {}
};

struct Rows {
    std::vector<int8_t> values = std::vector<int8_t>(kMaxRows * kWidth + 1024);
    std::vector<float> scales = std::vector<float>(kMaxRows * kWidth / kGroup), offsets = scales;
    std::vector<int32_t> starts = std::vector<int32_t>(kMaxRows * kWidth / kGroup);

    Activations activations() {
        return {values.data(), scales.data(), offsets.data(), starts.data(), kWidth / kGroup, nullptr};
    }
};

struct Cache {
    std::vector<uint16_t> numbers = std::vector<uint16_t>(kContext * 2 * kDim);
    std::vector<int64_t> places;

    Cache() {
        for (int64_t piece = 0; piece < kContext / kPiece; ++piece) places.push_back(piece * 2 * kPiece * kDim);
    }
};

}  // namespace

// What callgrind counts. Not inlined, so that it has a name.
extern "C" __attribute__((noinline)) void measured(const std::function<void()>& work) {
    work();
    asm volatile("" ::: "memory");
}

int main(int count, char** words) {
    std::map<std::string, const Kernels*> sets = {{"portable", portable_kernels()}};
#if defined(__x86_64__)
    sets["avx2"] = avx2_kernels();
#endif
    if (count != 3 || !sets.count(words[1])) return 2;
    const Kernels& kernels = *sets.at(words[1]);
    Weights affine4(kAffine4), scaled8(kScaled8), affine8(kAffine8);
    Rows rows;
    Cache cache;
    const std::vector<float> x = numbers(kVocab);
    std::vector<float> out(kMaxRows * kOutputs + kVocab), scores(kHeads * kContext);
    RowScan found{};
    const auto linear = [&](Weights& weights, int num_rows) {
        const uint8_t* next = weights.bytes.data();
        kernels.linear({weights.matrix, rows.activations(), num_rows, 0, weights.matrix.num_panels(), out.data(), kOutputs,
                        false, next});
    };
    AttentionItem item{};
    item.queries = x.data();
    item.query_stride = item.out_stride = kHeads * kDim;
    item.out = out.data();
    item.cache = cache.numbers.data();
    item.places = cache.places.data();
    item.first_position = kContext - 1;
    item.num_rows = 1;
    item.num_heads = kHeads;
    item.dim = kDim;
    item.scores = scores.data();
    const std::map<std::string, std::function<void()>> pieces = {
        {"linear, 4 bits, 1 row", [&] { linear(affine4, 1); }},
        {"linear, 4 bits, 8 rows", [&] { linear(affine4, 8); }},
        {"linear, 8 bits, 1 row", [&] { linear(scaled8, 1); }},
        {"linear, 8 bits with minima, 8 rows", [&] { linear(affine8, 8); }},
        {"prepare", [&] { kernels.prepare(x.data(), rows.activations()); }},
        {"rms_norm", [&] { kernels.rms_norm(x.data(), x.data(), 1e-5f, kWidth, out.data()); }},
        {"rotate", [&] { kernels.rotate(out.data(), kHeads, kDim, x.data(), x.data()); }},
        {"silu_mul", [&] { kernels.silu_mul(x.data(), x.data() + kWidth, kWidth, out.data()); }},
        {"gelu_mul", [&] { kernels.gelu_mul(x.data(), x.data() + kWidth, kWidth, out.data()); }},
        {"attend, 1 row", [&] { kernels.attend(item); }},
        {"scan", [&] { found = kernels.scan(x.data(), 0, kVocab); }},
    };
    if (std::strcmp(words[2], "list") == 0) {
        for (const auto& [name, work] : pieces) std::puts(name.c_str());
        return 0;
    }
    if (!pieces.count(words[2])) return 2;
    measured(pieces.at(words[2]));
    return 0;
}
