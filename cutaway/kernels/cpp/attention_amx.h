// Attention of up to 16 query vectors at once with AMX, in chunks of 256 positions whose results are joined in their order
// (the online softmax of FlashAttention: Dao et al., 2022, section 3.1). Queries and weights are rounded to bfloat16. A
// query's result depends on that query alone: chunks begin at multiples of 256, whoever computes what.
//
// The cache is kept as tiles are loaded, in blocks of 16 slots, for each key-value head
//   keys    [dim / 2, 16 slots, 2]
//   values  [16 / 2 slots, dim, 2]

#pragma once

constexpr int kBlock = 16;
constexpr int kChunk = 256;
constexpr int kMaxQueries = 16;
constexpr int kMaxEdges = 4;
constexpr float kNothing = -1e30f;  // top of a query that has seen no key yet
constexpr float kUnseen = -1e36f;

// Tiles 0 to 3 are results [queries, 16]; 4 and 5 what is multiplied from the left, 6 and 7 from the right. Two of each,
// because a tile cannot be loaded before the product that reads it has begun.
struct alignas(64) AttentionTileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 0, 0, 64, 64};
    uint8_t rows[16] = {};
    AttentionTileConfig(int num_queries, int left_bytes, int right_rows) {
        for (int tile = 0; tile < 6; ++tile) rows[tile] = num_queries;
        row_bytes[4] = row_bytes[5] = left_bytes;
        rows[6] = rows[7] = right_rows;
    }
};

// 2^x for x <= 0, with a relative error below 5e-5, far less than the rounding to bfloat16 that follows.
inline Lanes exp2_lanes(Lanes x) {
    const Lanes n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Lanes f = _mm512_sub_ps(x, n);
    Lanes p = _mm512_set1_ps(9.61812911e-3f);  // the Taylor series of e^(f ln 2)
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55041087e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226507e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147181e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

inline float exp2_one(float x) { return _mm512_cvtss_f32(exp2_lanes(_mm512_set1_ps(x))); }

// Query vectors of one key-value head, and what each sees. They are of consecutive positions, so that all of them together
// see one range.
template <int dim>
class QueryTile {
   public:
    QueryTile(const AttentionItem& item, int first_head, int num_heads)
        : item_(item), first_head_(first_head), num_heads_(num_heads), num_queries_(item.num_rows * num_heads) {
        for (int query = 0; query < num_queries_; ++query) {
            end_[query] = item.first_position + query / num_heads + 1;
            begin_[query] = item.window && end_[query] > item.window ? end_[query] - item.window : 0;
            const float* from = vector(query);
            const Lanes scale = _mm512_set1_ps(1.44269504088896341f);  // powers of 2 are cheaper than those of e
            for (int i = 0; i < dim; i += 2 * kLanes)
                store_bfloat16(queries_[query] + i, _mm512_mul_ps(_mm512_loadu_ps(from + i), scale),
                               _mm512_mul_ps(_mm512_loadu_ps(from + i + kLanes), scale));
            top_[query] = kNothing;
            sum_[query] = 0;
        }
        std::memset(mixed_, 0, sizeof mixed_);
    }

    // False if a value is not finite that some of the queries see and some do not: then each must be computed alone.
    bool run() {
        const int64_t begin = begin_[0], end = end_[num_queries_ - 1];
        bool fine = true;
        for (int64_t chunk = begin / kChunk * kChunk; fine && chunk < end; chunk += kChunk) {
            first_ = chunk > begin / kBlock * kBlock ? chunk : begin / kBlock * kBlock;
            num_blocks_ = static_cast<int>(((chunk + kChunk < end ? chunk + kChunk : end) - first_ + kBlock - 1) / kBlock);
            fine = find_blocks();
            if (!fine) break;
            if (item_.num_rows == 1) fetch();  // with more rows it is there since the rows before
            multiply_keys();
            for (int query = 0; query < num_queries_; ++query) weigh(query);
            mix_values();
        }
        release_tiles();
        for (int query = 0; fine && query < num_queries_; ++query) {
            const Lanes inverse = _mm512_set1_ps(1.0f / sum_[query]);
            float* to = item_.out + query / num_heads_ * item_.out_stride + (first_head_ + query % num_heads_) * dim;
            for (int i = 0; i < dim; i += kLanes)
                _mm512_storeu_ps(to + i, _mm512_mul_ps(_mm512_load_ps(mixed_[query] + i), inverse));
        }
        return fine;
    }

   private:
    const float* vector(int query) const {
        return item_.queries + query / num_heads_ * item_.query_stride + (first_head_ + query % num_heads_) * dim;
    }

    static void store_bfloat16(uint16_t* to, Lanes low, Lanes high) {
        _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }

    // Which of the 16 positions from ``position`` on lie in [begin, end).
    static __mmask16 within(int64_t position, int64_t begin, int64_t end) {
        const int64_t low = begin > position ? begin - position : 0, high = end - position < kBlock ? end - position : kBlock;
        return low >= high ? 0 : static_cast<__mmask16>((0xffffu << low) & (0xffffu >> (kBlock - high)));
    }

    // Where the blocks of the chunk lie. Of one that is not seen as a whole the values are copied, without those that nobody
    // sees, since nothing is known about them.
    bool find_blocks() {
        const int64_t begin = begin_[0], end = end_[num_queries_ - 1];
        const int64_t all_begin = begin_[num_queries_ - 1], all_end = end_[0];
        int num_edges = 0;
        for (int block = 0; block < num_blocks_; ++block) {
            const int64_t position = first_ + block * kBlock, seen = position > begin ? position : begin;
            const int64_t at = item_.slots[seen] / kBlock * item_.num_kv_heads + item_.kv_head;
            keys_[block] = item_.keys + at * kBlock * dim;
            values_[block] = item_.values + at * kBlock * dim;
            if (position >= all_begin && position + kBlock <= all_end) continue;
            const __mmask16 mask = within(position, begin, end);
            uint16_t* copy = edges_[num_edges++];
            const bool finite = copy_seen(values_[block], mask, copy);
            if (!finite && (begin != all_begin || end != all_end)) return false;
            values_[block] = copy;
        }
        return true;
    }

    static bool copy_seen(const uint16_t* from, __mmask16 mask, uint16_t* to) {
        const __m512i exponents = _mm512_set1_epi16(0x7f80);
        __mmask32 odd = 0;
        for (int pair = 0; pair < kBlock / 2; ++pair) {
            const uint32_t both = mask >> (2 * pair) & 3;  // of two slots that lie side by side
            const auto keep = static_cast<__mmask32>((both & 1 ? 0x55555555u : 0) | (both & 2 ? 0xaaaaaaaau : 0));
            for (int i = 0; i < 2 * dim; i += 32) {
                const __m512i x = _mm512_maskz_loadu_epi16(keep, from + pair * 2 * dim + i);
                odd |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponents), exponents);
                _mm512_store_si512(to + pair * 2 * dim + i, x);
            }
        }
        return odd == 0;
    }

    // Asks for keys and values, which are in no cache yet where each row has its own.
    void fetch() const {
        for (int block = 0; block < num_blocks_; ++block)
            for (int at = 0; at < kBlock * dim; at += 32) _mm_prefetch(keys_[block] + at, _MM_HINT_T1);
        for (int block = 0; block < num_blocks_; ++block)
            for (int at = 0; at < kBlock * dim; at += 32) _mm_prefetch(values_[block] + at, _MM_HINT_T1);
    }

    // scores_ [queries, positions of the chunk]
    void multiply_keys() {
        configure_tiles(AttentionTileConfig(num_queries_, 64, 16));
        if constexpr (dim <= 64) load_queries<0>(), load_queries<dim - 32>();
        for (int block = 0; block < num_blocks_; block += 4) {
            asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
            multiply_channels<0>(block);
            store_scores<0>(block);
            store_scores<1>(block);
            store_scores<2>(block);
            store_scores<3>(block);
        }
    }

    template <int channel>
    void load_queries() const {
        load_tile<4 + channel / 32 % 2>(queries_[0] + channel, 2 * dim);
    }

    // 32 channels of four blocks, and then the next.
    template <int channel>
    void multiply_channels(int block) {
        if constexpr (channel < dim) {
            if constexpr (dim > 64) load_queries<channel>();
            multiply_block<0, channel>(block);
            multiply_block<1, channel>(block);
            multiply_block<2, channel>(block);
            multiply_block<3, channel>(block);
            multiply_channels<channel + 32>(block);
        }
    }

    template <int tile, int channel>
    void multiply_block(int block) {
        if (block + tile >= num_blocks_) return;
        constexpr int left = 4 + channel / 32 % 2, right = 6 + tile % 2;
        load_tile<right>(keys_[block + tile] + channel * kBlock, 64);
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(tile), "i"(left), "i"(right));
    }

    template <int tile>
    void store_scores(int block) {
        if (block + tile < num_blocks_) store_tile<tile>(scores_[0] + (block + tile) * kBlock, kChunk * sizeof(float));
    }

    // Scores of a query become weights, and what was mixed before is scaled down if these are larger. ``flaw`` becomes NaN
    // if any score is not finite.
    void weigh(int query) {
        float* scores = scores_[query];
        hide_unseen(query);
        Lanes largest = _mm512_set1_ps(top_[query]), flaw = _mm512_setzero_ps();
        for (int block = 0; block < num_blocks_; ++block) {
            const Lanes x = _mm512_load_ps(scores + block * kBlock);
            largest = _mm512_max_ps(largest, x);
            flaw = _mm512_fmadd_ps(x, _mm512_setzero_ps(), flaw);
        }
        const float before = top_[query], top = _mm512_reduce_max_ps(largest);
        Lanes total = flaw;
        for (int block = 0; block < num_blocks_; block += 2) {
            const Lanes low = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + block * kBlock), _mm512_set1_ps(top)));
            Lanes high = _mm512_setzero_ps();
            if (block + 1 < num_blocks_)
                high = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + (block + 1) * kBlock), _mm512_set1_ps(top)));
            total = _mm512_add_ps(_mm512_add_ps(total, low), high);
            store_bfloat16(weights_[query] + block * kBlock, low, high);
        }
        rescale_[query] = exp2_one(before - top);
        top_[query] = top;
        sum_[query] = fma(sum_[query], rescale_[query], _mm512_reduce_add_ps(total));
    }

    // Scores of positions that a query does not see become so small that their weights are 0.
    void hide_unseen(int query) {
        const auto seen = [&](int block) { return within(first_ + block * kBlock, begin_[query], end_[query]); };
        const auto hide = [&](int block) {
            float* scores = scores_[query] + block * kBlock;
            _mm512_store_ps(scores, _mm512_mask_mov_ps(_mm512_set1_ps(kUnseen), seen(block), _mm512_load_ps(scores)));
        };
        int block = 0;
        for (; block < num_blocks_ && seen(block) != 0xffff; ++block) hide(block);
        for (int last = num_blocks_ - 1; last > block && seen(last) != 0xffff; --last) hide(last);
    }

    // 64 channels at a time: weights [queries, 16 positions] times values [16 positions, 16 channels].
    void mix_values() {
        configure_tiles(AttentionTileConfig(num_queries_, 32, 8));
        mix_channels<0>();
    }

    template <int channel>
    void mix_channels() {
        if constexpr (channel < dim) {
            constexpr int num_tiles = dim - channel < 64 ? (dim - channel) / 16 : 4;
            asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
            for (int block = 0; block < num_blocks_; block += 2) {
                mix_block<0, channel, num_tiles>(block);
                if (block + 1 < num_blocks_) mix_block<1, channel, num_tiles>(block + 1);
            }
            alignas(64) float results[kMaxQueries][64];
            store_tile<0>(results[0], sizeof results[0]);
            store_tile<1>(results[0] + 16, sizeof results[0]);
            store_tile<2>(results[0] + 32, sizeof results[0]);
            store_tile<3>(results[0] + 48, sizeof results[0]);
            for (int query = 0; query < num_queries_; ++query) {
                const Lanes rescale = _mm512_set1_ps(rescale_[query]);
                for (int tile = 0; tile < num_tiles; ++tile) {
                    float* to = mixed_[query] + channel + 16 * tile;
                    const Lanes here = _mm512_load_ps(results[query] + 16 * tile);
                    _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_load_ps(to), rescale, here));
                }
            }
            mix_channels<channel + 64>();
        }
    }

    template <int parity, int channel, int num_tiles>
    void mix_block(int block) {
        load_tile<4 + parity>(weights_[0] + block * kBlock, 2 * kChunk);
        const uint16_t* values = values_[block] + 2 * channel;
        mix_tile<parity, 0, num_tiles>(values);
        mix_tile<parity, 1, num_tiles>(values);
        mix_tile<parity, 2, num_tiles>(values);
        mix_tile<parity, 3, num_tiles>(values);
    }

    template <int parity, int tile, int num_tiles>
    void mix_tile(const uint16_t* values) {
        if constexpr (tile < num_tiles) {
            constexpr int left = 4 + parity, right = 6 + tile % 2;
            load_tile<right>(values + 32 * tile, 4 * dim);
            asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(tile), "i"(left), "i"(right));
        }
    }

    const AttentionItem& item_;
    const int first_head_, num_heads_, num_queries_;
    int64_t begin_[kMaxQueries], end_[kMaxQueries];  // what each query sees
    int64_t first_;                                  // position that the chunk's first block begins with
    int num_blocks_;
    const uint16_t *keys_[kChunk / kBlock], *values_[kChunk / kBlock];
    float top_[kMaxQueries], sum_[kMaxQueries], rescale_[kMaxQueries];
    alignas(64) uint16_t queries_[kMaxQueries][dim];
    alignas(64) float scores_[kMaxQueries][kChunk];
    alignas(64) uint16_t weights_[kMaxQueries][kChunk];
    alignas(64) float mixed_[kMaxQueries][dim];
    alignas(64) uint16_t edges_[kMaxEdges][kBlock * dim];
};

template <int dim>
void attend_tiles(const AttentionItem& item) {
    const int heads = item.num_heads < kMaxQueries ? item.num_heads : kMaxQueries;
    for (int head = 0; head < item.num_heads; head += heads) {
        const int count = item.num_heads - head < heads ? item.num_heads - head : heads;
        if (QueryTile<dim>(item, head, count).run()) continue;
        for (int64_t row = 0; row < item.num_rows; ++row) QueryTile<dim>(item.row(row), head, count).run();
    }
}

// One row of keys and of values goes into the cache.
inline void store_tiles(const CacheRow& row) {
    const int64_t size = int64_t{kBlock} * row.dim, at = row.slot / kBlock * row.num_kv_heads * size;
    const int place = static_cast<int>(row.slot % kBlock);
    for (int head = 0; head < row.num_kv_heads; ++head) {
        uint16_t* keys = row.key_cache + at + head * size + 2 * place;
        uint16_t* values = row.value_cache + at + head * size + place / 2 * 2 * row.dim + place % 2;
        for (int i = 0; i < row.dim; ++i) {
            keys[i / 2 * 2 * kBlock + i % 2] = to_bfloat16_one(row.keys[head * row.dim + i]);
            values[2 * i] = to_bfloat16_one(row.values[head * row.dim + i]);
        }
    }
}
