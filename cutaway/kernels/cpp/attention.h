// Attention of one row over the keys that it sees, in the order of the keys.

#pragma once

template <int dim>
void score(const OneRow& item) {
    const int64_t num_keys = item.end - item.first;
    for (int64_t j = 0; j < num_keys; ++j) {
        const uint16_t* k = item.key(item.first + j);
        float key[dim];
        for (int i = 0; i < dim; ++i) key[i] = from_bfloat16(k[i]);
        for (int head = 0; head < item.num_heads; ++head) {
            const float* q = item.query + head * dim;
            float lanes[kLanes] = {};
            for (int i = 0; i < dim; i += kLanes)
                for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = fma(q[i + lane], key[i + lane], lanes[lane]);
            item.scores[head * num_keys + j] = sum_lanes(lanes);
        }
    }
}

template <int dim>
void mix(const OneRow& item, const float* inverse) {
    const int64_t num_keys = item.end - item.first;
    for (int head = 0; head < item.num_heads; ++head) {
        float total[dim] = {};
        const float* weights = item.scores + head * num_keys;
        for (int64_t j = 0; j < num_keys; ++j) {
            const uint16_t* v = item.value(item.first + j);
            for (int i = 0; i < dim; ++i) total[i] = fma(weights[j], from_bfloat16(v[i]), total[i]);
        }
        for (int i = 0; i < dim; ++i) item.out[head * dim + i] = total[i] * inverse[head];
    }
}

// Scores become weights, not yet divided by their sum, whose inverse is returned.
inline float weigh(float* scores, int64_t num_keys) {
    const float largest = largest_score(scores, num_keys);
    if (std::isnan(largest)) return largest;
    float lanes[kLanes] = {};
    for (int64_t j = 0; j < num_keys; ++j) {
        scores[j] = exp_negative(scores[j] - largest);
        lanes[j % kLanes] += scores[j];
    }
    return 1.0f / sum_lanes(lanes);
}
