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

// What rows need between products.
class Buffers {
   public:
    // ``is_wide``: rows that products read are bfloat16.
    void reserve(int64_t num_rows, bool is_wide, int64_t widest_input, int64_t intermediate_size, int64_t hidden_size);
    Activations rows(int64_t num_cols);

    std::vector<float> gate_up, mixed;  // [rows, 2 intermediate], [rows, hidden]

   private:
    struct alignas(64) Line {
        int8_t bytes[64];
    };
    static constexpr int64_t kRoomAhead = 16;  // lines that are read, and not used, beyond the last group

    bool is_wide_ = false;
    std::vector<Line> values_;
    std::vector<float> scales_, offsets_;
    std::vector<int32_t> starts_;
};

// Rows of one step that are computed by some threads together, through everything but attention.
class Work {
   public:
    // ``part`` of ``parts`` threads, which all have the same rows and buffers; there rows are counted from the first.
    // ``inputs`` may be a thread's own: then each makes what products read for itself, which for one row is faster than
    // to wait for another.
    Work(int64_t first_row, int64_t num_rows, Buffers& buffers, Buffers& inputs, int part, int parts, Pool& pool)
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

    // Lets rows be made that products read; all are there when this returns.
    template <typename Function>
    void make_inputs(Function make_row) const {
        const bool alone = has_own_inputs();
        for (int64_t row = alone ? 0 : part; row < num_rows; row += alone ? 1 : parts) make_row(row);
        if (!alone) meet();
    }

    bool has_own_inputs() const { return &inputs != &buffers; }

    // This thread's part of something that has ``size`` pieces in each row: rows, or pieces of rows if rows are not enough
    // for equal parts. Calls ``function(row, begin, end)``.
    template <typename Function>
    void divide(int64_t size, Function function) const {
        const int64_t slices = num_rows % parts ? parts : 1;
        for (int64_t unit = part; unit < num_rows * slices; unit += parts) {
            const int64_t slice = unit % slices;
            function(unit / slices, size * slice / slices, size * (slice + 1) / slices);
        }
    }

    const int64_t first_row, num_rows;
    Buffers &buffers, &inputs;
    const int part, parts;

   private:
    Pool& pool_;
};

}  // namespace cutaway
