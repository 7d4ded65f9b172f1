#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pack.h"

namespace cutaway {
namespace {

constexpr int64_t kOwnRows = 32;        // with so many rows for each thread, each computes its own with all weights,
constexpr int64_t kUnitRows = 64;       // so many at a time, which stay in the cache of its core,
constexpr int64_t kWideUnitRows = 128;  // or so many in bfloat16, where weights take longer to unpack
constexpr int64_t kGateNumbers = 1 << 14;  // that are gated at once: with what gates them half of a core's cache
constexpr int64_t kManyItems = 8;       // of attention for each thread: with fewer, long ones are divided

}  // namespace

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
      rooms_(num_threads) {}

void Decoder::forward(const Batch& batch, float* hidden) {
    find_rows(batch);
    find_places(batch);
    reserve();
    next_item_.store(pool_.size(), std::memory_order_relaxed);
    pool_.run([&](int thread) {
        int64_t phase = 0;  // between two barriers
        for_each_work(thread, phase++, [&](const Work& work) {
            embed(batch, work);
            project(layers_[0], batch.caches[0], work, thread);
        });
        for (size_t index = 0; index < layers_.size(); ++index) {
            const LayerWeights& layer = layers_[index];
            pool_.barrier();
            if (num_chunks_)
                attend_chunks(layer, batch.caches[index], thread);
            else
                attend(layer, batch.caches[index], thread);
            pool_.barrier();
            if (thread == 0) next_item_.store(pool_.size(), std::memory_order_relaxed);
            for_each_work(thread, phase++, [&](const Work& work) {
                transform(layer, work, thread);
                if (index + 1 < layers_.size())
                    project(layers_[index + 1], batch.caches[index + 1], work, thread);
                else
                    write_hidden(work, hidden);
            });
        }
    });
}

// The last norm.
void Decoder::write_hidden(const Work& work, float* hidden) {
    const int64_t width = config_.hidden_size;
    work.each_row([&](int64_t row) {
        const int64_t at = (work.first_row + row) * width;
        kernels_->rms_norm(x_.data() + at, norm_, config_.norm_eps, width, hidden + at);
    });
}

void Decoder::logits(const float* hidden, int64_t num_rows, float* out) {
    shared_.inputs.reserve(num_rows, config_.hidden_size, input_type(num_rows));
    pool_.run([&](int thread) {
        const Work work(0, num_rows, shared_, shared_.inputs, thread, pool_.size(), pool_);
        prepare_rows(hidden, config_.hidden_size, work);
        multiply(head_, layers_[0].qkv, work, work.inputs, out, false);
    });
}

void Decoder::scan(const float* scores, int64_t num_rows, RowScan* out) {
    const int64_t width = embedding_.rows;
    scans_.resize(num_rows * kScanParts);
    pool_.run([&](int thread) {
        // The parts that this thread has computed, and may still have in the cache of its core.
        const int begin = kScanParts * thread / pool_.size(), end = kScanParts * (thread + 1) / pool_.size();
        for (int64_t row = 0; row < num_rows; ++row)
            for (int part = begin; part < end; ++part)
                scans_[row * kScanParts + part] =
                    kernels_->scan(scores + row * width, scan_part(width, part), scan_part(width, part + 1));
    });
    for (int64_t row = 0; row < num_rows; ++row)
        out[row] = kernels_->join_scans(scores + row * width, scans_.data() + row * kScanParts, kScanParts);
}

// Which request each row belongs to, and which rows attention takes together.
void Decoder::find_rows(const Batch& batch) {
    num_rows_ = batch.num_rows;
    num_spans_ = batch.num_spans;
    rows_.resize(num_rows_);
    row_blocks_.clear();
    longest_ = 0;
    const int64_t together = kernels_->rows_together(config_.num_heads / config_.num_kv_heads, config_.head_dim);
    for (int64_t index = 0; index < batch.num_spans; ++index) {
        const Span& span = batch.spans[index];
        for (int64_t row = 0; row < span.num_rows; ++row) rows_[span.first_row + row] = {index, span.start + row};
        for (int64_t row = 0; row < span.num_rows; row += together)
            row_blocks_.push_back(
                {span.first_row + row, std::min(together, span.num_rows - row), index, span.start + row});
        longest_ = std::max(longest_, span.start + span.num_rows);
    }
    const Chunking chunking = kernels_->chunking(config_.head_dim);
    num_chunks_ = 0;
    if (chunking.num_positions && num_rows_ == num_spans_ && num_items() < kManyItems * pool_.size() &&
        longest_ > chunking.num_positions)
        num_chunks_ = (longest_ - 1) / chunking.num_positions + 1;
}

// Where keys and values lie, from slots, which count rows of keys from the first of a layer: those of a block are
// followed by as many rows of values, and both together are cut into pieces of 16 positions.
void Decoder::find_places(const Batch& batch) {
    const int64_t row_size = config_.num_kv_heads * config_.head_dim;
    places_.clear();
    first_places_.clear();
    for (int64_t index = 0; index < batch.num_groups * batch.num_spans; ++index) {
        const Span& span = batch.spans[index % batch.num_spans];
        const int64_t end = span.start + span.num_rows;
        first_places_.push_back(places_.size());
        for (int64_t position = 0; position < end; position += kPiece) {
            // Of 16 positions the last has not been given back if any has not.
            const int64_t slot = batch.slots[index][std::min(position + kPiece, end) - 1];
            const int64_t in_block = slot % batch.block_size;
            places_.push_back((slot - in_block + in_block / kPiece * 2 * kPiece) * row_size);
        }
    }
}

const int64_t* Decoder::places(const LayerWeights& layer, int64_t span) const {
    return places_.data() + first_places_[layer.group * num_spans_ + span];
}

// Room for everything that a step needs; grows to the largest step seen.
void Decoder::reserve() {
    const int64_t q_size = config_.num_heads * config_.head_dim, kv_size = config_.num_kv_heads * config_.head_dim;
    const int64_t widest = std::max<int64_t>(config_.hidden_size, q_size);
    grow(x_, num_rows_ * config_.hidden_size);
    grow(heads_, num_rows_ * (q_size + 2 * kv_size));
    grow(attended_, num_rows_ * q_size);
    grow(angles_, frequencies_.size() * num_rows_ * config_.head_dim);
    const int64_t num_numbers = kernels_->chunking(config_.head_dim).num_numbers;
    grow(chunks_, num_rows_ * num_chunks_ * config_.num_heads * num_numbers);
    const InputType type = input_type(num_rows_);
    divide_rows(type);
    const auto reserve_rows = [&](Buffers& buffers, int64_t num_rows) {
        buffers.inputs.reserve(num_rows, widest, type);
        buffers.gated.reserve(num_rows, config_.intermediate_size, type);
        grow(buffers.mixed, num_rows * config_.hidden_size);
    };
    if (!unit_rows_) reserve_rows(shared_, num_rows_);
    for (Room& room : rooms_) {
        if (unit_rows_) reserve_rows(room.buffers, unit_rows_);
        if (num_rows_ == 1) room.buffers.inputs.reserve(1, widest, type);
        grow(room.normed, config_.hidden_size);
        grow(room.gated, 2 * std::max(kGateNumbers, (unit_rows_ ? unit_rows_ : num_rows_) * kGroup));
        grow(room.scores, longest_ * (config_.num_heads / config_.num_kv_heads));
    }
}

InputType Decoder::input_type(int64_t num_rows) const {
    return num_rows < kernels_->min_wide_rows ? InputType::kInt8 : InputType::kBfloat16;
}

// Few rows: all threads have all of them, each with a part of the weights. Many: units of rows, each for one thread.
void Decoder::divide_rows(InputType type) {
    unit_rows_ = 0;
    if (num_rows_ < kOwnRows * pool_.size()) return;
    const int64_t equal = round_up((num_rows_ + pool_.size() - 1) / pool_.size(), kTileRows);
    unit_rows_ = std::min(equal, type == InputType::kInt8 ? kUnitRows : kWideUnitRows);
    num_taken_ = std::vector<std::atomic<int64_t>>((num_rows_ + unit_rows_ - 1) / unit_rows_);
}

// A thread takes the units that it had before, whose rows are in the cache of its core, and then what others have not
// begun.
template <typename Function>
void Decoder::for_each_work(int thread, int64_t phase, Function function) {
    Buffers& own = rooms_[thread].buffers;
    if (!unit_rows_) {
        Inputs& inputs = num_rows_ == 1 ? own.inputs : shared_.inputs;
        return function(Work(0, num_rows_, shared_, inputs, thread, pool_.size(), pool_));
    }
    const int64_t num_units = num_taken_.size(), first_unit = num_units * thread / pool_.size();
    for (int64_t index = 0; index < num_units; ++index) {
        const int64_t unit = (first_unit + index) % num_units, first = unit * unit_rows_;
        int64_t before = phase;
        if (!num_taken_[unit].compare_exchange_strong(before, phase + 1, std::memory_order_relaxed)) continue;
        function(Work(first, std::min(unit_rows_, num_rows_ - first), own, own.inputs, 0, 1, pool_));
    }
}

void Decoder::embed(const Batch& batch, const Work& work) {
    const int64_t width = config_.hidden_size, half = config_.head_dim / 2;
    work.each_row([&](int64_t index) {
        const int64_t row = work.first_row + index;
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
    });
    work.publish_rows();
}

// From the residual stream to queries, and to keys and values in the cache.
void Decoder::project(const LayerWeights& layer, uint16_t* cache, const Work& work, int thread) {
    const int64_t size = (config_.num_heads + 2 * config_.num_kv_heads) * config_.head_dim;
    norm_and_prepare(layer.attention_norm, work, thread);
    multiply(layer.qkv, layer.output, work, work.inputs, heads_.data() + work.first_row * size, false);
    if (work.parts > 1 && num_rows_ == num_spans_ && thread < num_items() && !num_chunks_)
        kernels_->fetch(attention_item(layer, cache, thread, thread));
    work.meet();
    work.divide(config_.num_kv_heads, [&](int64_t row, int64_t begin, int64_t end) {
        finish_heads(layer, cache, work.first_row + row, begin, end);
    });
}

// Bias, norms of heads, rotation; queries stay, keys and values go into the cache. For the key-value heads from
// ``begin`` to ``end`` and their queries.
void Decoder::finish_heads(const LayerWeights& layer, uint16_t* cache, int64_t row, int64_t begin, int64_t end) {
    const int64_t dim = config_.head_dim, sharing = config_.num_heads / config_.num_kv_heads, count = end - begin;
    const int64_t q_size = config_.num_heads * dim, kv_size = config_.num_kv_heads * dim;
    float* all = heads_.data() + row * (q_size + 2 * kv_size);
    float* queries = all + begin * sharing * dim;
    float* keys = all + q_size + begin * dim;
    float* values = keys + kv_size;
    const float* angles = angles_.data() + (layer.rope * num_rows_ + row) * dim;
    const auto finish = [&](float* heads, int64_t num_heads, const float* norm) {
        for (int64_t head = 0; norm && head < num_heads; ++head)
            kernels_->rms_norm(heads + head * dim, norm, config_.norm_eps, dim, heads + head * dim);
        kernels_->rotate(heads, num_heads, dim, angles, angles + dim / 2);
    };
    if (layer.qkv_bias) {
        const auto add = [&](float* heads, int64_t size) {
            for (int64_t i = 0; i < size; ++i) heads[i] += layer.qkv_bias[heads - all + i];
        };
        add(queries, count * sharing * dim);
        add(keys, count * dim);
        add(values, count * dim);
    }
    finish(queries, count * sharing, layer.query_norm);
    finish(keys, count, layer.key_norm);
    for (int64_t i = 0; i < count * sharing * dim; ++i) queries[i] *= config_.attention_scale;
    const Row& of = rows_[row];
    uint16_t* piece = cache + places(layer, of.span)[of.position / kPiece] + begin * 2 * kPiece * dim;
    kernels_->store({keys, values, piece, static_cast<int32_t>(of.position % kPiece), static_cast<int32_t>(count),
                     config_.head_dim});
}

// Some rows of a request and a key-value head are an item.
AttentionItem Decoder::attention_item(const LayerWeights& layer, const uint16_t* cache, int64_t index, int thread) {
    const int64_t dim = config_.head_dim, sharing = config_.num_heads / config_.num_kv_heads;
    const int64_t q_size = config_.num_heads * dim, size = q_size + 2 * config_.num_kv_heads * dim;
    // The last rows first: they see the most, and what is left for the end is small.
    const RowBlock& rows = row_blocks_[row_blocks_.size() - 1 - index / config_.num_kv_heads];
    const int64_t head = index % config_.num_kv_heads;
    AttentionItem item{};
    item.queries = heads_.data() + rows.first_row * size + head * sharing * dim;
    item.query_stride = size;
    item.out = attended_.data() + rows.first_row * q_size + head * sharing * dim;
    item.out_stride = q_size;
    item.cache = cache + head * 2 * kPiece * dim;
    item.places = places(layer, rows.span);
    item.first_position = rows.position;
    item.window = layer.window;
    item.num_rows = rows.num_rows;
    item.num_heads = sharing;
    item.dim = dim;
    item.scores = rooms_[thread].scores.data();
    return item;
}

// Threads take the next item when they begin with one, since some items see more.
void Decoder::attend(const LayerWeights& layer, const uint16_t* cache, int thread) {
    AttentionItem items[2];  // this one and the next, by turns
    int64_t index = thread;
    if (index < num_items()) items[0] = attention_item(layer, cache, index, thread);
    for (int turn = 0; index < num_items(); turn = 1 - turn) {
        index = next_item_.fetch_add(1, std::memory_order_relaxed);
        AttentionItem &item = items[turn], &next = items[1 - turn];
        if (index < num_items()) {
            next = attention_item(layer, cache, index, thread);
            item.next = &next;
        }
        kernels_->attend(item);
    }
}

// Few items that see much: threads divide what they see.
void Decoder::attend_chunks(const LayerWeights& layer, const uint16_t* cache, int thread) {
    const int64_t sharing = config_.num_heads / config_.num_kv_heads;
    const int64_t part_size = sharing * kernels_->chunking(config_.head_dim).num_numbers;
    int64_t index = thread;
    for (; index < num_items() * num_chunks_; index = next_item_.fetch_add(1, std::memory_order_relaxed)) {
        const AttentionItem item = attention_item(layer, cache, index / num_chunks_, thread);
        kernels_->attend_chunk(item, index % num_chunks_, chunks_.data() + index * part_size);
    }
    pool_.barrier();
    for (index = thread; index < num_items(); index += pool_.size()) {
        const float* chunks = chunks_.data() + index * num_chunks_ * part_size;
        kernels_->join_chunks(attention_item(layer, cache, index, thread), chunks);
    }
}

// From what was attended to, through the feed-forward network, back to the residual stream.
void Decoder::transform(const LayerWeights& layer, const Work& work, int thread) {
    const int64_t q_size = config_.num_heads * config_.head_dim;
    prepare_rows(attended_.data() + work.first_row * q_size, q_size, work);
    mix_back(layer.output, layer.gate, layer.attention_post_norm, work, work.inputs);
    norm_and_prepare(layer.mlp_norm, work, thread);
    gate(layer, work, thread);
    work.meet();
    const bool is_last = &layer == &layers_.back();
    mix_back(layer.down, is_last ? head_ : (&layer + 1)->qkv, layer.mlp_post_norm, work, work.buffers.gated);
}

void Decoder::norm_and_prepare(const float* weight, const Work& work, int thread) {
    const int64_t width = config_.hidden_size;
    const Activations to = work.inputs.activations(width);
    float* normed = rooms_[thread].normed.data();
    work.make_inputs([&](int64_t row) {
        kernels_->rms_norm(x_.data() + (work.first_row + row) * width, weight, config_.norm_eps, width, normed);
        kernels_->prepare(normed, to.from(row));
    });
}

void Decoder::prepare_rows(const float* x, int64_t width, const Work& work) {
    const Activations to = work.inputs.activations(width);
    work.make_inputs([&](int64_t row) { kernels_->prepare(x + row * width, to.from(row)); });
}

// The inputs of the product back to the residual stream. Each thread makes some groups of them, a few at a time, so that
// what gates and what is gated are still in its nearest caches when they meet.
void Decoder::gate(const LayerWeights& layer, const Work& work, int thread) {
    const Matrix &gates = layer.gate.parts[0], &ups = layer.up.parts[0];
    const Activations x = work.inputs.activations(gates.cols), to = work.buffers.gated.activations(gates.rows);
    const auto activate_and_multiply = config_.activation == kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
    const int num_rows = work.num_rows, end = to.num_groups * (work.part + 1) / work.parts;
    const int step = std::max<int64_t>(kGateNumbers / (num_rows * kGroup), 1);
    float* gate = rooms_[thread].gated.data();
    for (int begin = to.num_groups * work.part / work.parts; begin < end; begin += step) {
        const int count = std::min(step, end - begin), width = count * kGroup, num_panels = width / kPanelRows;
        const int first = begin * kGroup / kPanelRows;
        const uint8_t* then = layer.down.share(work.part, work.parts);
        if (begin + count < end) then = gates.panel(first + num_panels);
        float* up = gate + num_rows * width;
        const auto multiply = [&](const Matrix& w, float* out, const uint8_t* next) {
            kernels_->linear({w.panels(first, num_panels), x, num_rows, 0, num_panels, out, width, false, next});
        };
        multiply(gates, gate, ups.panel(first));
        multiply(ups, up, then);
        for (int row = 0; row < num_rows; ++row) {
            float* numbers = gate + row * width;
            activate_and_multiply(numbers, up + row * width, width, numbers);
            kernels_->prepare(numbers, to.from(row).groups(begin, count));
        }
    }
}

// Each thread of the work takes an equal share of all panels. ``next`` is the product that it will read then.
void Decoder::multiply(const Product& w, const Product& next, const Work& work, Inputs& inputs, float* out, bool add) {
    const int64_t num_panels = w.num_panels();
    int64_t begin = num_panels * work.part / work.parts, end = num_panels * (work.part + 1) / work.parts;
    for (int part = 0; part < w.num_parts; ++part) {
        const Matrix& matrix = w.parts[part];
        const int64_t here = matrix.num_panels();
        const Activations x = inputs.activations(matrix.cols);
        const uint8_t* then = end > here ? w.parts[part + 1].data : next.share(work.part, work.parts);
        if (begin < here && end > 0)
            kernels_->linear({matrix, x, static_cast<int>(work.num_rows), static_cast<int>(std::max<int64_t>(begin, 0)),
                              static_cast<int>(std::min(end, here)), out, w.num_outputs(), add, then});
        begin -= here;
        end -= here;
        out += matrix.rows;
    }
}

// Multiplies rows of inputs and adds the result to the residual stream, normed first where the architecture says so.
void Decoder::mix_back(const Product& w, const Product& next, const float* post_norm, const Work& work,
                       Inputs& inputs) {
    const int64_t width = config_.hidden_size;
    float* x = x_.data() + work.first_row * width;
    if (!post_norm) {
        multiply(w, next, work, inputs, x, true);
        work.meet();
        return;
    }
    multiply(w, next, work, inputs, work.buffers.mixed.data(), false);
    work.meet();
    work.each_row([&](int64_t row) {
        float* mixed = work.buffers.mixed.data() + row * width;
        kernels_->rms_norm(mixed, post_norm, config_.norm_eps, width, mixed);
        for (int64_t i = 0; i < width; ++i) x[row * width + i] += mixed[i];
    });
    work.publish_rows();
}

}  // namespace cutaway
