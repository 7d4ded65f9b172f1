// AMX tiles by number. The compiler's own functions forget to say that they read memory.

#pragma once

template <typename Config>
inline void configure_tiles(const Config& config) {
    static_assert(sizeof(Config) == 64);
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
