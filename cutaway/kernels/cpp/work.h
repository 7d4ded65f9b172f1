// Rows of a step that some threads compute together, and the room that they need.

#pragma once

#include <cstdint>
#include <vector>

#include "layout.h"
#include "pool.h"

namespace cutaway {

inline int64_t round_up(int64_t number, int64_t step) { return (number + step - 1) / step * step; }

// Room only grows.
template <typename Number>
void grow(std::vector<Number>& room, int64_t size) {
    if (static_cast<int64_t>(room.size()) < size) room.resize(size);
}

enum class InputType { kInt8, kBfloat16 };

// Rows that products read.
class Inputs {
   public:
    void reserve(int64_t num_rows, int64_t widest, InputType type);
    // Rows of ``num_cols`` numbers.
    Activations activations(int64_t num_cols);

   private:
    struct alignas(64) Line {
        int8_t bytes[64];
    };
    static constexpr int64_t kRoomAhead = 16;  // lines that are read, and not used, beyond the last group

    InputType type_ = InputType::kInt8;
    std::vector<Line> values_;
    std::vector<float> scales_, offsets_;
    std::vector<int32_t> starts_;
};

// What rows need between products.
struct Buffers {
    Inputs inputs, gated;      // ``gated`` is made while ``inputs`` are read
    std::vector<float> mixed;  // [rows, hidden]
};

// Rows of one step that are computed by some threads together, through everything but attention.
class Work {
   public:
    // ``part`` of ``parts`` threads, which all have the same rows and buffers; there rows are counted from the first.
    // ``inputs`` may be a thread's own: then each makes what products read for itself, which for one row is faster than
    // to wait for another.
    Work(int64_t first_row, int64_t num_rows, Buffers& buffers, Inputs& inputs, int part, int parts, Pool& pool)
        : first_row(first_row),
          num_rows(num_rows),
          buffers(buffers),
          inputs(inputs),
          part(part),
          parts(parts),
          pool_(pool) {}

    // Waits for the other threads.
    void meet() const {
        if (parts > 1) pool_.barrier();
    }

    // The rows that this thread writes, always the same.
    template <typename Function>
    void each_row(Function function) const {
        for (int64_t row = part; row < num_rows; row += parts) function(row);
    }

    // Makes rows that products read, from rows that the same thread has written, or all threads together before they
    // met.
    template <typename Function>
    void make_inputs(Function make_row) const {
        if (has_own_inputs()) {
            for (int64_t row = 0; row < num_rows; ++row) make_row(row);
        } else {
            each_row(make_row);
            meet();
        }
    }

    // After rows were written that inputs will be made from: with inputs of its own every thread reads what one has
    // written.
    void publish_rows() const {
        if (has_own_inputs()) meet();
    }

    // This thread's part of something that has ``size`` pieces in each row: rows, or pieces of rows if rows are not
    // enough for equal parts. Calls ``function(row, begin, end)``.
    template <typename Function>
    void divide(int64_t size, Function function) const {
        const int64_t slices = num_rows % parts ? parts : 1;
        for (int64_t unit = part; unit < num_rows * slices; unit += parts) {
            const int64_t slice = unit % slices;
            function(unit / slices, size * slice / slices, size * (slice + 1) / slices);
        }
    }

    const int64_t first_row, num_rows;
    Buffers& buffers;
    Inputs& inputs;
    const int part, parts;

   private:
    bool has_own_inputs() const { return &inputs != &buffers.inputs; }

    Pool& pool_;
};

}  // namespace cutaway
