// A decoder over a flat batch and a paged cache, in one call.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "work.h"

namespace cutaway {

enum Activation : int32_t { kSilu = 0, kGelu = 1 };

struct DecoderConfig {
    int32_t hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim;
    int32_t activation;
    float norm_eps, attention_scale, embedding_scale;
};

// Vectors are float; those that an architecture does not have are null.
struct LayerWeights {
    Product qkv, output, gate, up, down;
    const float *attention_norm, *attention_post_norm, *mlp_norm, *mlp_post_norm;
    const float *qkv_bias, *query_norm, *key_norm;
    int32_t rope, group;  // which angles, and which group of the cache
    int64_t window;       // positions that a row sees, its own included; 0 for all
};

// The rows of one request: consecutive positions from ``start`` on.
struct Span {
    int64_t first_row, num_rows, start;
};

struct Batch {
    int64_t num_rows, num_spans;
    const int64_t* token_ids;     // [rows]
    const Span* spans;            // together all rows, in order
    const int64_t* const* slots;  // [groups * spans]: of the positions of a span in a group, [start + num_rows]
    int64_t num_groups;
    int64_t block_size;       // positions in a block of the cache, a multiple of 16
    uint16_t* const* caches;  // bfloat16, of each layer: the keys of slot 0
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
    // What is to be known about rows of scores, [rows, vocab], before a token is chosen.
    void scan(const float* scores, int64_t num_rows, RowScan* out);

   private:
    struct Row {  // which row of the batch is whose
        int64_t span, position;
    };
    struct RowBlock {  // rows of one request that attention takes together
        int64_t first_row, num_rows, span, position;
    };
    struct Room {  // of one thread
        Buffers buffers;
        std::vector<float> normed, scores, gated;
    };

    void find_rows(const Batch& batch);
    void find_places(const Batch& batch);
    const int64_t* places(const LayerWeights& layer, int64_t span) const;
    void reserve();
    void divide_rows(InputType type);
    InputType input_type(int64_t num_rows) const;
    int64_t num_items() const { return row_blocks_.size() * config_.num_kv_heads; }
    template <typename Function>
    void for_each_work(int thread, int64_t phase, Function function);

    void embed(const Batch& batch, const Work& work);
    void project(const LayerWeights& layer, uint16_t* cache, const Work& work, int thread);
    void finish_heads(const LayerWeights& layer, uint16_t* cache, int64_t row, int64_t begin, int64_t end);
    AttentionItem attention_item(const LayerWeights& layer, const uint16_t* cache, int64_t index, int thread);
    void attend(const LayerWeights& layer, const uint16_t* cache, int thread);
    void attend_chunks(const LayerWeights& layer, const uint16_t* cache, int thread);
    void transform(const LayerWeights& layer, const Work& work, int thread);

    void write_hidden(const Work& work, float* hidden);
    void norm_and_prepare(const float* weight, const Work& work, int thread);
    void prepare_rows(const float* x, int64_t width, const Work& work);
    void gate(const LayerWeights& layer, const Work& work, int thread);
    void multiply(const Product& w, const Product& next, const Work& work, Inputs& inputs, float* out, bool add);
    void mix_back(const Product& w, const Product& next, const float* post_norm, const Work& work, Inputs& inputs);

    const DecoderConfig config_;
    const std::vector<LayerWeights> layers_;
    const Matrix embedding_;
    const Product head_;
    const float* norm_;
    const std::vector<const float*> frequencies_;
    const Kernels* kernels_;
    Pool pool_;

    int64_t num_rows_ = 0, num_spans_ = 0, longest_ = 0;
    int64_t num_chunks_ = 0;  // that attention to each row is divided into; 0 if it is not
    int64_t unit_rows_ = 0;                        // that one thread takes together; 0 if all threads share all rows
    std::vector<std::atomic<int64_t>> num_taken_;  // of each unit of rows: phases that a thread has taken it for
    std::atomic<int64_t> next_item_{0};
    std::vector<Row> rows_;
    std::vector<RowBlock> row_blocks_;
    std::vector<int64_t> places_;        // numbers from a layer's first to those of each 16 positions of each span
    std::vector<int64_t> first_places_;  // of each group and span, in places_
    std::vector<float> x_, heads_, attended_;
    std::vector<float> chunks_;  // what attention makes of each chunk
    std::vector<float> angles_;  // [ropes, rows, 2, head_dim / 2], cosines before sines
    Buffers shared_;
    std::vector<RowScan> scans_;
    std::vector<Room> rooms_;
};

}  // namespace cutaway
