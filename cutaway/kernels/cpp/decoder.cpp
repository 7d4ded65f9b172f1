#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pack.h"

namespace cutaway {
namespace {

template <typename Number>
void grow(std::vector<Number>& room, int64_t size) {
    if (static_cast<int64_t>(room.size()) < size) room.resize(size);
}

}  // namespace

void QuantizedRows::reserve(int64_t num_rows, int64_t num_cols) {
    const int64_t whole = (num_rows + kTileRows - 1) / kTileRows * kTileRows * num_cols;
    grow(values_, whole / 64);
    grow(scales_, whole / kGroup);
    grow(offsets_, whole / kGroup);
    grow(starts_, whole / kGroup);
}

Activations QuantizedRows::view(int64_t num_cols) {
    return {values_.data()->bytes, scales_.data(), offsets_.data(), starts_.data(),
            static_cast<int32_t>(num_cols / kGroup)};
}

Decoder::Decoder(const DecoderConfig& config, std::vector<LayerWeights> layers, const Matrix& embedding,
                 const Product& head, const float* norm, std::vector<const float*> frequencies,
                 const Kernels* kernels, int num_threads)
    : config_(config),
      layers_(std::move(layers)),
      embedding_(embedding),
      head_(head),
      norm_(norm),
      frequencies_(std::move(frequencies)),
      kernels_(kernels),
      pool_(num_threads),
      scratch_(num_threads) {}

void Decoder::forward(const Batch& batch, float* hidden) {
    reserve(batch);
    const int64_t width = config_.hidden_size;
    pool_.run([&](int thread) {
        embed(batch, thread);
        for (size_t index = 0; index < layers_.size(); ++index)
            run_layer(batch, layers_[index], batch.caches[index], thread);
        for (int64_t row = thread; row < num_rows_; row += pool_.size())
            kernels_->rms_norm(x_.data() + row * width, norm_, config_.norm_eps, width, hidden + row * width);
    });
}

void Decoder::logits(const float* hidden, int64_t num_rows, float* out) {
    num_rows_ = num_rows;
    const int64_t width = config_.hidden_size;
    quantized_.reserve(num_rows, width);
    pool_.run([&](int thread) {
        quantize_rows(hidden, width, num_rows, thread);
        pool_.barrier();
        multiply(head_, num_rows, out, thread, false);
    });
}

void Decoder::embed(const Batch& batch, int thread) {
    const int64_t width = config_.hidden_size, half = config_.head_dim / 2;
    for (int64_t row = thread; row < num_rows_; row += pool_.size()) {
        float* x = x_.data() + row * width;
        unpack_row(embedding_, batch.token_ids[row], x);
        for (int64_t i = 0; i < width; ++i) x[i] *= config_.embedding_scale;
        for (size_t rope = 0; rope < frequencies_.size(); ++rope) {
            float* angles = angles_.data() + (rope * num_rows_ + row) * 2 * half;
            for (int64_t i = 0; i < half; ++i) {
                const float angle = static_cast<float>(rows_[row].position) * frequencies_[rope][i];
                angles[i] = std::cos(angle);
                angles[half + i] = std::sin(angle);
            }
        }
    }
}

// Room for everything that a step needs; grows to the largest step seen.
void Decoder::reserve(const Batch& batch) {
    num_rows_ = batch.num_rows;
    const int64_t q_size = config_.num_heads * config_.head_dim, kv_size = config_.num_kv_heads * config_.head_dim;
    const int64_t widest = std::max<int64_t>({config_.hidden_size, q_size, config_.intermediate_size});
    grow(x_, num_rows_ * config_.hidden_size);
    grow(heads_, num_rows_ * (q_size + 2 * kv_size));
    grow(wide_, num_rows_ * 2 * config_.intermediate_size);
    grow(narrow_, num_rows_ * widest);
    grow(angles_, frequencies_.size() * num_rows_ * config_.head_dim);
    quantized_.reserve(num_rows_, widest);
    rows_.resize(num_rows_);
    int64_t longest = 0;
    for (int64_t index = 0; index < batch.num_spans; ++index) {
        const Span& span = batch.spans[index];
        for (int64_t row = 0; row < span.num_rows; ++row) rows_[span.first_row + row] = {index, span.start + row};
        longest = std::max(longest, span.start + span.num_rows);
    }
    for (auto& scratch : scratch_) grow(scratch, longest * (config_.num_heads / config_.num_kv_heads));
}

void Decoder::run_layer(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread) {
    norm_and_quantize(layer.attention_norm, thread);
    pool_.barrier();
    multiply(layer.qkv, num_rows_, heads_.data(), thread, false);
    pool_.barrier();
    finish_heads(batch, layer, cache, thread);
    if (thread == 0) next_item_.store(0, std::memory_order_relaxed);
    pool_.barrier();
    attend(batch, layer, cache, thread);
    pool_.barrier();
    quantize_rows(narrow_.data(), config_.num_heads * config_.head_dim, num_rows_, thread);
    pool_.barrier();
    mix_back(layer.output, layer.attention_post_norm, thread);
    norm_and_quantize(layer.mlp_norm, thread);
    pool_.barrier();
    multiply(layer.gate_up, num_rows_, wide_.data(), thread, false);
    pool_.barrier();
    activate(thread);
    pool_.barrier();
    mix_back(layer.down, layer.mlp_post_norm, thread);
}

void Decoder::norm_and_quantize(const float* weight, int thread) {
    const int64_t width = config_.hidden_size;
    const Activations to = quantized_.view(width);
    for (int64_t row = thread; row < num_rows_; row += pool_.size()) {
        float* normed = narrow_.data() + row * width;
        kernels_->rms_norm(x_.data() + row * width, weight, config_.norm_eps, width, normed);
        kernels_->quantize(normed, to.from(row));
    }
}

void Decoder::quantize_rows(const float* x, int64_t width, int64_t num_rows, int thread) {
    const Activations to = quantized_.view(width);
    for (int64_t row = thread; row < num_rows; row += pool_.size()) kernels_->quantize(x + row * width, to.from(row));
}

// Each thread takes an equal share of all panels.
void Decoder::multiply(const Product& w, int64_t num_rows, float* out, int thread, bool add) {
    int64_t num_panels = 0, num_outputs = 0;
    for (int part = 0; part < w.num_parts; ++part) {
        num_panels += w.parts[part].num_panels();
        num_outputs += w.parts[part].rows;
    }
    int64_t begin = num_panels * thread / pool_.size(), end = num_panels * (thread + 1) / pool_.size();
    for (int part = 0; part < w.num_parts; ++part) {
        const Matrix& matrix = w.parts[part];
        const int64_t here = matrix.num_panels();
        kernels_->linear(matrix, quantized_.view(matrix.cols), num_rows, std::clamp<int64_t>(begin, 0, here), std::clamp<int64_t>(end, 0, here),
                         out, num_outputs, add);
        begin -= here;
        end -= here;
        out += matrix.rows;
    }
}

// Bias, norms of heads, rotation; queries stay, keys and values go into the cache.
void Decoder::finish_heads(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread) {
    const int64_t dim = config_.head_dim, half = dim / 2;
    const int64_t q_size = config_.num_heads * dim, kv_size = config_.num_kv_heads * dim, size = q_size + 2 * kv_size;
    for (int64_t row = thread; row < num_rows_; row += pool_.size()) {
        float* heads = heads_.data() + row * size;
        if (layer.qkv_bias)
            for (int64_t i = 0; i < size; ++i) heads[i] += layer.qkv_bias[i];
        for (int head = 0; layer.query_norm && head < config_.num_heads; ++head)
            kernels_->rms_norm(heads + head * dim, layer.query_norm, config_.norm_eps, dim, heads + head * dim);
        for (int head = 0; layer.key_norm && head < config_.num_kv_heads; ++head) {
            float* key = heads + q_size + head * dim;
            kernels_->rms_norm(key, layer.key_norm, config_.norm_eps, dim, key);
        }
        const float* angles = angles_.data() + (layer.rope * num_rows_ + row) * dim;
        kernels_->rotate(heads, config_.num_heads + config_.num_kv_heads, dim, angles, angles + half);
        for (int64_t i = 0; i < q_size; ++i) heads[i] *= config_.attention_scale;
        const Row& of = rows_[row];
        const int64_t slot = batch.slots[layer.group * batch.num_spans + of.span][of.position];
        kernels_->to_bfloat16(heads + q_size, kv_size, cache.keys + slot * kv_size);
        kernels_->to_bfloat16(heads + q_size + kv_size, kv_size, cache.values + slot * kv_size);
    }
}

// Each row and key-value head is an item; threads take the next one when they are done with one, since some see more.
void Decoder::attend(const Batch& batch, const LayerWeights& layer, const LayerCache& cache, int thread) {
    const int64_t dim = config_.head_dim, sharing = config_.num_heads / config_.num_kv_heads;
    const int64_t q_size = config_.num_heads * dim, kv_size = config_.num_kv_heads * dim, size = q_size + 2 * kv_size;
    const int64_t num_items = num_rows_ * config_.num_kv_heads;
    int64_t item;
    while ((item = next_item_.fetch_add(1, std::memory_order_relaxed)) < num_items) {
        // The last rows first: they see the most, and what is left for the end is small.
        const int64_t row = num_rows_ - 1 - item / config_.num_kv_heads, head = item % config_.num_kv_heads;
        const Row& of = rows_[row];
        const int64_t end = of.position + 1;
        AttentionItem work{};
        work.query = heads_.data() + row * size + head * sharing * dim;
        work.keys = cache.keys + head * dim;
        work.values = cache.values + head * dim;
        work.slots = batch.slots[layer.group * batch.num_spans + of.span];
        work.slot_stride = kv_size;
        work.first = layer.window ? std::max<int64_t>(0, end - layer.window) : 0;
        work.end = end;
        work.num_heads = sharing;
        work.dim = dim;
        work.scores = scratch_[thread].data();
        work.out = narrow_.data() + row * q_size + head * sharing * dim;
        kernels_->attend(work);
    }
}

// Multiplies the quantized rows and adds the result to the residual stream, normed first where the architecture says so.
void Decoder::mix_back(const Product& w, const float* post_norm, int thread) {
    const int64_t width = config_.hidden_size;
    if (!post_norm) {
        multiply(w, num_rows_, x_.data(), thread, true);
        pool_.barrier();
        return;
    }
    multiply(w, num_rows_, narrow_.data(), thread, false);
    pool_.barrier();
    for (int64_t row = thread; row < num_rows_; row += pool_.size()) {
        float *mixed = narrow_.data() + row * width, *x = x_.data() + row * width;
        kernels_->rms_norm(mixed, post_norm, config_.norm_eps, width, mixed);
        for (int64_t i = 0; i < width; ++i) x[i] += mixed[i];
    }
}

void Decoder::activate(int thread) {
    const int64_t width = config_.intermediate_size;
    const Activations to = quantized_.view(width);
    const auto activate_and_multiply = config_.activation == kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
    for (int64_t row = thread; row < num_rows_; row += pool_.size()) {
        float* gate = wide_.data() + row * 2 * width;
        activate_and_multiply(gate, gate + width, width, gate);
        kernels_->quantize(gate, to.from(row));
    }
}

}  // namespace cutaway
