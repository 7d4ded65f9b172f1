#include "work.h"

namespace cutaway {

void Inputs::reserve(int64_t num_rows, int64_t widest, InputType type) {
    const int64_t whole = round_up(num_rows, kTileRows) * widest;
    type_ = type;
    grow(values_, whole * (type == InputType::kInt8 ? 1 : 2) / 64 + kRoomAhead);
    grow(scales_, whole / kGroup);
    grow(offsets_, whole / kGroup);
    grow(starts_, whole / kGroup);
}

Activations Inputs::activations(int64_t num_cols) {
    const auto num_groups = static_cast<int32_t>(num_cols / kGroup);
    int8_t* values = values_.data()->bytes;
    if (type_ == InputType::kInt8)
        return {values, scales_.data(), offsets_.data(), starts_.data(), num_groups, nullptr};
    return {nullptr, nullptr, nullptr, nullptr, num_groups, reinterpret_cast<uint16_t*>(values)};
}

}  // namespace cutaway
