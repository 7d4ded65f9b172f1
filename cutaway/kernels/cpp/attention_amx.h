// Attention of up to 16 query vectors at once with AMX, in the chunks of attention_chunks.h. Queries and weights are
// rounded to bfloat16. A query's result depends on that query alone.
//
// Pieces of the cache are kept as tiles are loaded:
//   keys    [dim / 2, 16 positions, 2]
//   values  [16 / 2 positions, dim, 2]

#pragma once

constexpr int kMaxQueries = 16;
constexpr int kMaxEdges = 4;
constexpr float kUnseen = -1e36f;

// Query vectors of one key-value head, and what each sees. They are of consecutive positions, so that all of them
// together see one range.
template <int dim>
class QueryTile {
   public:
    QueryTile(const AttentionItem& item, int first_head, int num_heads)
        : item_(item),
          first_head_(first_head),
          num_heads_(num_heads),
          num_queries_(item.num_rows * num_heads),
          range_(item) {
        for (int query = 0; query < num_queries_; ++query) {
            end_[query] = item.first_position + query / num_heads + 1;
            begin_[query] = item.begin(query / num_heads);
            const float* from = vector(query);
            const Lanes scale = _mm512_set1_ps(1.44269504088896341f);  // powers of 2 are cheaper than those of e
            for (int i = 0; i < dim; i += 2 * kLanes)
                store_bfloat16(queries_[query] + i, _mm512_mul_ps(_mm512_loadu_ps(from + i), scale),
                               _mm512_mul_ps(_mm512_loadu_ps(from + i + kLanes), scale));
        }
    }

    // Attends to everything, and writes the result. False if a value is not finite that some of the queries see and
    // some do not: then each must be computed alone.
    bool run() {
        Partial<dim> totals[kMaxQueries];
        for (int query = 0; query < num_queries_; ++query) totals[query].clear();
        chunk_ = Chunk<dim>(item_, range_, range_.first_chunk());
        for (int64_t index = range_.first_chunk(); index < range_.num_chunks(); ++index) {
            look_ahead(index + 1);
            if (!compute()) {
                release_tiles();
                return false;
            }
            for (int query = 0; query < num_queries_; ++query) totals[query].join(fresh_[query]);
            chunk_ = ahead_;
        }
        release_tiles();
        for (int query = 0; query < num_queries_; ++query) totals[query].write(result(query));
        return true;
    }

    // Attends to one chunk of one row; what comes of it, for each head.
    void run_chunk(int64_t index, Partial<dim>* to) {
        chunk_ = Chunk<dim>(item_, range_, index);
        chunk_.fetch_all();
        compute();
        release_tiles();
        for (int query = 0; query < num_queries_; ++query) to[query] = fresh_[query];
    }

   private:
    // With more rows keys and values are there since the rows before.
    bool is_cold() const { return item_.num_rows == 1; }

    // What will be needed next: another chunk, or the first one of the next item.
    void look_ahead(int64_t index) {
        if (index < range_.num_chunks()) {
            ahead_ = Chunk<dim>(item_, range_, index);
        } else if (item_.next && item_.next->num_rows == 1) {
            const Range range(*item_.next);
            ahead_ = Chunk<dim>(*item_.next, range, range.first_chunk());
        } else {
            ahead_.num_pieces = 0;
        }
    }

    // ``fresh_`` of the chunk.
    bool compute() {
        if (!find_values()) return false;
        multiply_keys();
        for (int query = 0; query < num_queries_; ++query) weigh(query);
        mix_values();
        for (int piece = chunk_.num_pieces; is_cold() && piece < ahead_.num_pieces; ++piece)
            ahead_.fetch_keys(piece), ahead_.fetch_values(piece);
        return true;
    }

    float* result(int query) const {
        return item_.out + query / num_heads_ * item_.out_stride + (first_head_ + query % num_heads_) * dim;
    }

    const float* vector(int query) const {
        return item_.queries + query / num_heads_ * item_.query_stride + (first_head_ + query % num_heads_) * dim;
    }

    static void store_bfloat16(uint16_t* to, Lanes low, Lanes high) {
        _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }

    // Which of the 16 positions from ``position`` on lie in [begin, end).
    static __mmask16 within(int64_t position, int64_t begin, int64_t end) {
        const int64_t low = begin > position ? begin - position : 0;
        const int64_t high = end - position < kPiece ? end - position : kPiece;
        return low >= high ? 0 : static_cast<__mmask16>((0xffffu << low) & (0xffffu >> (kPiece - high)));
    }

    // Where the values of the chunk are. Of a piece that is not seen as a whole they are copied, without those that
    // nobody sees, since nothing is known about them.
    bool find_values() {
        const auto [begin, end] = range_;
        const int64_t all_begin = begin_[num_queries_ - 1], all_end = end_[0];
        int num_edges = 0;
        for (int piece = 0; piece < chunk_.num_pieces; ++piece) {
            const int64_t position = chunk_.first + piece * kPiece;
            values_[piece] = chunk_.pieces[piece] + kPiece * dim;
            if (position >= all_begin && position + kPiece <= all_end) continue;
            const __mmask16 mask = within(position, begin, end);
            uint16_t* copy = edges_[num_edges++];
            const bool finite = copy_seen(values_[piece], mask, copy);
            if (!finite && (begin != all_begin || end != all_end)) return false;
            values_[piece] = copy;
        }
        return true;
    }

    static bool copy_seen(const uint16_t* from, __mmask16 mask, uint16_t* to) {
        const __m512i exponents = _mm512_set1_epi16(0x7f80);
        __mmask32 odd = 0;
        for (int pair = 0; pair < kPiece / 2; ++pair) {
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

    // scores_ [queries, positions of the chunk]
    void multiply_keys() {
        configure_tiles(TileConfig(num_queries_, 64, 16));
        if constexpr (dim <= 64) load_queries<0>(), load_queries<dim - 32>();
        for (int piece = 0; piece < chunk_.num_pieces; piece += 4) {
            for (int next = piece; is_cold() && next < piece + 4; ++next) ahead_.fetch_keys(next);
            asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
            multiply_channels<0>(piece);
            store_scores<0>(piece);
            store_scores<1>(piece);
            store_scores<2>(piece);
            store_scores<3>(piece);
        }
    }

    template <int channel>
    void load_queries() const {
        load_tile<4 + channel / 32 % 2>(queries_[0] + channel, 2 * dim);
    }

    // 32 channels of four pieces, and then the next.
    template <int channel>
    void multiply_channels(int piece) {
        if constexpr (channel < dim) {
            if constexpr (dim > 64) load_queries<channel>();
            multiply_piece<0, channel>(piece);
            multiply_piece<1, channel>(piece);
            multiply_piece<2, channel>(piece);
            multiply_piece<3, channel>(piece);
            multiply_channels<channel + 32>(piece);
        }
    }

    template <int tile, int channel>
    void multiply_piece(int piece) {
        if (piece + tile >= chunk_.num_pieces) return;
        constexpr int left = 4 + channel / 32 % 2, right = 6 + tile % 2;
        load_tile<right>(chunk_.pieces[piece + tile] + channel * kPiece, 64);
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(tile), "i"(left), "i"(right));
    }

    template <int tile>
    void store_scores(int piece) {
        if (piece + tile < chunk_.num_pieces)
            store_tile<tile>(scores_[0] + (piece + tile) * kPiece, kChunk * sizeof(float));
    }

    // Scores of a query become weights. ``flaw`` becomes NaN if any score is not finite.
    void weigh(int query) {
        float* scores = scores_[query];
        const int num_pieces = chunk_.num_pieces;
        hide_unseen(query);
        Lanes largest = _mm512_set1_ps(kNothing), flaw = _mm512_setzero_ps();
        for (int piece = 0; piece < num_pieces; ++piece) {
            const Lanes x = _mm512_load_ps(scores + piece * kPiece);
            largest = _mm512_max_ps(largest, x);
            flaw = _mm512_fmadd_ps(x, _mm512_setzero_ps(), flaw);
        }
        const float top = _mm512_reduce_max_ps(largest);
        Lanes total = flaw;
        for (int piece = 0; piece < num_pieces; piece += 2) {
            const Lanes low = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + piece * kPiece), _mm512_set1_ps(top)));
            Lanes high = _mm512_setzero_ps();
            if (piece + 1 < num_pieces)
                high = exp2_lanes(_mm512_sub_ps(_mm512_load_ps(scores + (piece + 1) * kPiece), _mm512_set1_ps(top)));
            total = _mm512_add_ps(_mm512_add_ps(total, low), high);
            store_bfloat16(weights_[query] + piece * kPiece, low, high);
        }
        fresh_[query].top = top;
        fresh_[query].sum = _mm512_reduce_add_ps(total);
    }

    // Scores of positions that a query does not see become so small that their weights are 0.
    void hide_unseen(int query) {
        const auto seen = [&](int piece) { return within(chunk_.first + piece * kPiece, begin_[query], end_[query]); };
        const auto hide = [&](int piece) {
            float* scores = scores_[query] + piece * kPiece;
            _mm512_store_ps(scores, _mm512_mask_mov_ps(_mm512_set1_ps(kUnseen), seen(piece), _mm512_load_ps(scores)));
        };
        int piece = 0;
        for (; piece < chunk_.num_pieces && seen(piece) != 0xffff; ++piece) hide(piece);
        for (int last = chunk_.num_pieces - 1; last > piece && seen(last) != 0xffff; --last) hide(last);
    }

    // 64 channels at a time: weights [queries, 16 positions] times values [16 positions, 16 channels].
    void mix_values() {
        configure_tiles(TileConfig(num_queries_, 32, 8));
        mix_channels<0>();
    }

    template <int channel>
    void mix_channels() {
        if constexpr (channel < dim) {
            constexpr int num_tiles = dim - channel < 64 ? (dim - channel) / 16 : 4;
            asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
            for (int piece = 0; piece < chunk_.num_pieces; piece += 2) {
                if (channel == 0 && is_cold()) ahead_.fetch_values(piece), ahead_.fetch_values(piece + 1);
                mix_piece<0, channel, num_tiles>(piece);
                if (piece + 1 < chunk_.num_pieces) mix_piece<1, channel, num_tiles>(piece + 1);
            }
            store_mixed<0, channel, num_tiles>();
            store_mixed<1, channel, num_tiles>();
            store_mixed<2, channel, num_tiles>();
            store_mixed<3, channel, num_tiles>();
            mix_channels<channel + 64>();
        }
    }

    template <int tile, int channel, int num_tiles>
    void store_mixed() {
        if constexpr (tile < num_tiles) store_tile<tile>(fresh_[0].mixed + channel + 16 * tile, sizeof fresh_[0]);
    }

    template <int parity, int channel, int num_tiles>
    void mix_piece(int piece) {
        load_tile<4 + parity>(weights_[0] + piece * kPiece, 2 * kChunk);
        const uint16_t* values = values_[piece] + 2 * channel;
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
    const Range range_;
    int64_t begin_[kMaxQueries], end_[kMaxQueries];  // what each query sees
    Chunk<dim> chunk_, ahead_;
    const uint16_t* values_[kMaxPieces];
    alignas(64) Partial<dim> fresh_[kMaxQueries];
    alignas(64) uint16_t queries_[kMaxQueries][dim];
    alignas(64) float scores_[kMaxQueries][kChunk];
    alignas(64) uint16_t weights_[kMaxQueries][kChunk];
    alignas(64) uint16_t edges_[kMaxEdges][kPiece * dim];
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

template <int dim>
void fetch_tiles(const AttentionItem& item) {
    const Range range(item);
    Chunk<dim>(item, range, range.first_chunk()).fetch_all();
}

// One chunk of an item of one row, [heads] of ``Partial``; see ``Kernels::attend_chunk``.
template <int dim>
void attend_chunk_tiles(const AttentionItem& item, int64_t chunk, float* to) {
    const Range range(item);
    if (chunk < range.first_chunk() || chunk >= range.num_chunks()) return;
    const int heads = item.num_heads < kMaxQueries ? item.num_heads : kMaxQueries;
    for (int head = 0; head < item.num_heads; head += heads) {
        const int count = item.num_heads - head < heads ? item.num_heads - head : heads;
        QueryTile<dim>(item, head, count).run_chunk(chunk, reinterpret_cast<Partial<dim>*>(to) + head);
    }
}

// Joins the chunks of an item, [chunks, heads] of ``Partial``.
template <int dim>
void join_tiles(const AttentionItem& item, const float* chunks) {
    const Range range(item);
    const auto* parts = reinterpret_cast<const Partial<dim>*>(chunks);
    for (int head = 0; head < item.num_heads; ++head) {
        Partial<dim> total;
        total.clear();
        for (int64_t chunk = range.first_chunk(); chunk < range.num_chunks(); ++chunk)
            total.join(parts[chunk * item.num_heads + head]);
        total.write(item.out + head * dim);
    }
}

// One row of keys and of values goes into the cache.
inline void store_tiles(const CacheRow& row) {
    const int64_t size = int64_t{kPiece} * row.dim;
    const int place = row.position;
    for (int head = 0; head < row.num_kv_heads; ++head) {
        uint16_t* keys = row.piece + 2 * head * size + 2 * place;
        uint16_t* values = row.piece + (2 * head + 1) * size + place / 2 * 2 * row.dim + place % 2;
        for (int i = 0; i < row.dim; ++i) {
            keys[i / 2 * 2 * kPiece + i % 2] = to_bfloat16_one(row.keys[head * row.dim + i]);
            values[2 * i] = to_bfloat16_one(row.values[head * row.dim + i]);
        }
    }
}
