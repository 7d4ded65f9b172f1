// AMX tiles by number. The compiler's own functions forget to say that they read memory.

#pragma once

// What ldtilecfg reads: bytes of a row and rows of each tile. Tiles 0 to 3 are results, 4 and 5 what is multiplied from
// the left, 6 and 7 from the right. Two of each, because a tile cannot be loaded before the product that reads it has
// begun.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 0, 0, 64, 64};
    uint8_t rows[16] = {};

    TileConfig(int num_rows, int left_bytes, int right_rows) {
        for (int tile = 0; tile < 6; ++tile) rows[tile] = num_rows;
        row_bytes[4] = row_bytes[5] = left_bytes;
        rows[6] = rows[7] = right_rows;
    }
};
static_assert(sizeof(TileConfig) == 64);

inline void configure_tiles(const TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

inline void release_tiles() { asm volatile("tilerelease" ::: "memory"); }

template <int tile>
inline void load_tile(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(tile), "r"(from), "r"(stride) : "memory");
}

template <int tile>
inline void store_tile(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(tile), "r"(to), "r"(stride) : "memory");
}
