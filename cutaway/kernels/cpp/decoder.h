// A decoder over a flat batch and a paged cache, in one call.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace cutaway {

enum Activation : int32_t { kSilu = 0, kGelu = 1 };

struct DecoderConfig {
    int32_t hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim;
    int32_t activation;
    float norm_eps, attention_scale, embedding_scale;
};

// Vectors are float; those that an architecture does not have are null.
struct LayerWeights {
    Product qkv, output, gate_up, down;
    const float *attention_norm, *attention_post_norm, *mlp_norm, *mlp_post_norm;
    const float *qkv_bias, *query_norm, *key_norm;
    int32_t rope, group;  // which angles, and which group of the cache
    int64_t window;       // positions that a row sees, its own included; 0 for all
};

// The rows of one request: consecutive positions from ``start`` on.
struct Span {
    int64_t first_row, num_rows, start;
};

struct LayerCache {
    uint16_t *keys, *values;  // bfloat16 [slots, kv_heads, head_dim]
};

struct Batch {
    int64_t num_rows, num_spans;
    const int64_t* token_ids;           // [rows]
    const Span* spans;                  // together all rows, in order
    const int64_t* const* slots;        // [groups * spans]: of the positions of a span in a group, [start + num_rows]
    const LayerCache* caches;           // of each layer
};

// Room for the rows that the next product multiplies.
class QuantizedRows {
   public:
    void reserve(int64_t num_rows, int64_t num_cols);
    Activations view(int64_t num_cols);

   private:
    struct alignas(64) Line {
        int8_t bytes[64];
    };
    std::vector<Line> values_;
    std::vector<float> scales_, offsets_;
    std::vector<int32_t> starts_;
};

class Decoder {
   public:
    // ``frequencies``: angle per position of each pair of channels, for each rope [head_dim / 2].
    Decoder(const DecoderConfig& config, std::vector<LayerWeights> layers, const Matrix& embedding,
            const Product& head, const float* norm, std::vector<const float*> frequencies, const Kernels* kernels,
            int num_threads);

    // Hidden states after the last norm, [rows, hidden].
    void forward(const Batch& batch, float* hidden);
    // Scores of every token for rows of hidden states, [rows, vocab].
    void logits(const float* hidden, int64_t num_rows, float* out);

   private:
    struct Row {  // which row of the batch is whose
        int64_t span, position;
    };
    void reserve(const Batch& batch);
    void embed(const Batch& batch, int thread);
    void run_layer(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread);
    void norm_and_quantize(const float* weight, int thread);
    void quantize_rows(const float* x, int64_t width, int64_t num_rows, int thread);
    void multiply(const Product& w, int64_t num_rows, float* out, int thread, bool add);
    void finish_heads(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread);
    void attend(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread);
    void mix_back(const Product& w, const float* post_norm, int thread);
    void activate(int thread);

    const DecoderConfig config_;
    const std::vector<LayerWeights> layers_;
    const Matrix embedding_;
    const Product head_;
    const float* norm_;
    const std::vector<const float*> frequencies_;
    const Kernels* kernels_;
    Pool pool_;

    int64_t num_rows_ = 0;
    std::atomic<int64_t> next_item_{0};
    std::vector<Row> rows_;
    std::vector<float> x_, heads_, wide_, narrow_;
    std::vector<float> angles_;  // [ropes, rows, 2, head_dim / 2], cosines before sines
    QuantizedRows quantized_;
    std::vector<std::vector<float>> scratch_;  // of each thread
};

}  // namespace cutaway
