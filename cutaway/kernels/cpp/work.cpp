#include "work.h"

namespace cutaway {

void Buffers::reserve(int64_t num_rows, bool is_wide, int64_t widest_input, int64_t intermediate_size,
                      int64_t hidden_size) {
    const int64_t whole = round_up(num_rows, kTileRows) * widest_input;
    is_wide_ = is_wide;
    grow(values_, whole * (is_wide ? 2 : 1) / 64 + kRoomAhead);
    grow(scales_, whole / kGroup);
    grow(offsets_, whole / kGroup);
    grow(starts_, whole / kGroup);
    grow(gate_up, num_rows * 2 * intermediate_size);
    grow(mixed, num_rows * hidden_size);
}

Activations Buffers::rows(int64_t num_cols) {
    const auto num_groups = static_cast<int32_t>(num_cols / kGroup);
    if (is_wide_) return {nullptr, nullptr, nullptr, nullptr, num_groups, reinterpret_cast<uint16_t*>(values_.data()->bytes)};
    return {values_.data()->bytes, scales_.data(), offsets_.data(), starts_.data(), num_groups, nullptr};
}

}  // namespace cutaway
