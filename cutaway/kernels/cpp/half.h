// Numbers of half precision (IEEE 754 binary16), as GGUF files store scales.

#pragma once

#include <bit>
#include <cstdint>

namespace cutaway {

// The same number as a float, exactly. Static, because a shared inline function could be compiled for a processor that
// has more than this one.
static inline float from_half(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
        float value = static_cast<float>(mantissa) * 0x1p-24f;
        return sign ? -value : value;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace cutaway
