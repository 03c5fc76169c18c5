// The layers of a Transformer over flat rows: one row for each token that is computed.
//
// A query sees the first `visible` keys of its own list of keys. That is all that masks are needed for: the length of a
// source, and the past of a target.
#pragma once

#include <tuple>

#include "products.h"

namespace regard {

// Python fills in the following structs.

struct Norm {
    const float* weight;  // null: no norm
    const float* bias;    // or null
    float epsilon;
    int32_t root_mean_square;
};

struct Attention {
    Linear query_key_value;  // in cross-attention, only the query
    Linear key_value;        // only in cross-attention
    Linear out;
};

struct Layer {
    Attention self;
    Attention cross;
    Linear up;  // followed by the gate, if there is one
    Linear down;
    Norm self_norm;
    Norm cross_norm;
    Norm feed_forward_norm;
};

struct Stack {
    const Layer* layers;
    int32_t depth;
    int32_t has_cross;
    Norm final_norm;
};

struct Embedding {
    const float* tokens;     // [vocabulary, width]
    const float* positions;  // [length, width], or null
    float scale;
    Norm norm;
};

struct Shape {
    int32_t width;
    int32_t heads;
    int32_t groups;  // heads of keys and values
    int32_t key_width;
    int32_t value_width;
    int32_t feed_forward;
    Activation activation;
    int32_t gated;
    int32_t pre_norm;
    float attention_scale;
    Type type;
    const float* cosines;  // [length, key_width / 2] of rotary positions, or null
    const float* sines;
    int32_t adjacent_pairs;

    int query_size() const { return heads * key_width; }
    int key_size() const { return groups * key_width; }
    int value_size() const { return groups * value_width; }
    int attended_size() const { return heads * value_width; }
    int key_value_size() const { return key_size() + value_size(); }
};

inline void normalise(const Norm& norm, const float* x, float* out, int width) {
    float mean = 0.0f, squares = 0.0f;
    if (!norm.root_mean_square) {
#pragma omp simd reduction(+ : mean)
        for (int i = 0; i < width; ++i) mean += x[i];
        mean /= static_cast<float>(width);
    }
#pragma omp simd reduction(+ : squares)
    for (int i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + norm.epsilon);
#pragma omp simd
    for (int i = 0; i < width; ++i) out[i] = (x[i] - mean) * factor * norm.weight[i];
    if (norm.bias)
        for (int i = 0; i < width; ++i) out[i] += norm.bias[i];
}

inline float dot(const float* a, const float* b, int width) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < width; ++i) sum += a[i] * b[i];
    return sum;
}

// softmax(q · keys × scale) · values for one query and head. WIDTH is the width of keys and values if both have the usual
// one, 64, so that the compiler keeps them in registers; 0 for any other.
template <int WIDTH, class Key, class Value>
void attend(const float* query, int key_width, int value_width, int visible, float scale, const Key& key,
            const Value& value, float* scores, float* out) {
    if (WIDTH) key_width = value_width = WIDTH;
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (int s = 0; s < visible; ++s) {
        scores[s] = dot(query, key(s), key_width) * scale;
        largest = std::max(largest, scores[s]);
    }
#pragma omp simd reduction(+ : sum)
    for (int s = 0; s < visible; ++s) {
        scores[s] = exponential(scores[s] - largest);
        sum += scores[s];
    }
    if constexpr (WIDTH > 0) {
        FloatVector total[WIDTH / LANES] = {};
        for (int s = 0; s < visible; ++s)
            for (int v = 0; v < WIDTH / LANES; ++v) {
                FloatVector part;
                std::memcpy(&part, value(s) + v * LANES, VECTOR_BYTES);
                total[v] += part * scores[s];
            }
        for (int v = 0; v < WIDTH / LANES; ++v) total[v] /= sum;
        std::memcpy(out, total, sizeof total);
    } else {
        std::fill(out, out + value_width, 0.0f);
        for (int s = 0; s < visible; ++s) {
            const float *part = value(s), weight = scores[s] / sum;
            for (int i = 0; i < value_width; ++i) out[i] += part[i] * weight;
        }
    }
}

// Rotate each pair of dimensions of a head, (i, i + width / 2) or (2i, 2i + 1), by the angles of its position.
inline void rotate(float* head, int width, const float* cosines, const float* sines, bool adjacent) {
    for (int i = 0; i < width / 2; ++i) {
        float &a = head[adjacent ? 2 * i : i], &b = head[adjacent ? 2 * i + 1 : i + width / 2];
        float rotated = a * cosines[i] - b * sines[i];
        b = b * cosines[i] + a * sines[i];
        a = rotated;
    }
}

// Memory for the intermediate results of a number of rows.
struct Workspace {
    std::vector<float> normalised, projected, attended, expanded;
    Inputs inputs;

    // At least rows × width numbers.
    static float* of(std::vector<float>& memory, int64_t rows, int64_t width) {
        if (memory.size() < static_cast<size_t>(rows * width)) memory.resize(rows * width);
        return memory.data();
    }
};

struct Engine {
    const Shape& shape;
    Threads* threads;
    Workspace& work;

    // Call task(row) for every row.
    template <class Task>
    void each_row(int rows, double nanoseconds_per_row, const Task& task) {
        int tasks = task_count(*threads, nanoseconds_per_row * rows, rows);
        threads->run(tasks, [&](int number) {
            int last = static_cast<int>(static_cast<int64_t>(rows) * (number + 1) / tasks);
            for (int row = static_cast<int>(static_cast<int64_t>(rows) * number / tasks); row < last; ++row) task(row);
        });
    }

    // The rows as inputs of a product, normalised before if there is a norm.
    void convert(const float* x, int rows, int width, const Norm* norm = nullptr) {
        float* normalised = norm ? Workspace::of(work.normalised, rows, width) : nullptr;
        work.inputs.allocate(shape.type, norm ? normalised : x, rows, width);
        if (!norm && shape.type == Type::float32) return;
        each_row(rows, width * 0.3, [&](int row) {
            const float* source = x + static_cast<int64_t>(row) * width;
            if (norm) {
                normalise(*norm, source, normalised + static_cast<int64_t>(row) * width, width);
                source = normalised + static_cast<int64_t>(row) * width;
            }
            work.inputs.convert_row(shape.type, source, row, width);
        });
    }

    // The product of the converted rows with a linear layer.
    void multiply_into(const Linear& linear, int rows, float* out, Activation activation = Activation::none) {
        multiply(*threads, shape.type, linear, work.inputs, rows, [&](int row, int first, int count, float* values) {
            activate_all(values, PANEL, activation);
            std::memcpy(out + static_cast<int64_t>(row) * linear.outputs + first, values, count * sizeof(float));
        });
    }

    // x + the product, normalised in a post-norm model; in place.
    void add_residual(const Linear& linear, const Norm& norm, int rows, float* x) {
        multiply(*threads, shape.type, linear, work.inputs, rows, [&](int row, int first, int count, float* values) {
            float* target = x + static_cast<int64_t>(row) * shape.width + first;
            for (int i = 0; i < count; ++i) target[i] += values[i];
        });
        if (shape.pre_norm) return;
        each_row(rows, shape.width * 0.2, [&](int row) {
            float* part = x + static_cast<int64_t>(row) * shape.width;
            normalise(norm, part, part, shape.width);
        });
    }

    const Norm* norm_before(const Norm& norm) const { return shape.pre_norm ? &norm : nullptr; }

    // Attention of all heads and rows. `keys(row)` returns how many keys the row sees and two functions, from the number
    // of a key to the key and to the value of all heads.
    template <class Keys>
    void attend_all(int rows, double keys_per_row, const float* queries, int64_t query_stride, float* out,
                    const Keys& keys) {
        double nanoseconds = keys_per_row * shape.heads * shape.key_width * 0.15;
        each_row(rows, nanoseconds, [&](int row) {
            thread_local std::vector<float> scores;
            auto [visible, key, value] = keys(row);
            if (scores.size() < static_cast<size_t>(visible)) scores.resize(visible);
            for (int head = 0; head < shape.heads; ++head) {
                int group = head / (shape.heads / shape.groups);
                auto head_key = [&key = key, k = group * shape.key_width](int s) { return key(s) + k; };
                auto head_value = [&value = value, v = group * shape.value_width](int s) { return value(s) + v; };
                const float* query = queries + row * query_stride + head * shape.key_width;
                float* target = out + (static_cast<int64_t>(row) * shape.heads + head) * shape.value_width;
                auto* call = shape.key_width == 64 && shape.value_width == 64
                                 ? &attend<64, decltype(head_key), decltype(head_value)>
                                 : &attend<0, decltype(head_key), decltype(head_value)>;
                call(query, shape.key_width, shape.value_width, visible, shape.attention_scale, head_key, head_value,
                     scores.data(), target);
            }
        });
    }

    void feed_forward(const Layer& layer, int rows, float* x) {
        int width = shape.feed_forward;
        convert(x, rows, shape.width, norm_before(layer.feed_forward_norm));
        float* expanded = Workspace::of(work.expanded, rows, layer.up.outputs);
        multiply_into(layer.up, rows, expanded, shape.gated ? Activation::none : shape.activation);
        if (shape.gated) {  // activation(gate(x)) · up(x), moved to the front
            for (int row = 0; row < rows; ++row) {
                float *up = expanded + static_cast<int64_t>(row) * 2 * width, *gate = up + width;
                activate_all(gate, width, shape.activation);
                float* target = expanded + static_cast<int64_t>(row) * width;
                for (int i = 0; i < width; ++i) target[i] = up[i] * gate[i];
            }
        }
        convert(expanded, rows, width);
        add_residual(layer.down, layer.feed_forward_norm, rows, x);
    }

    void rotate_row(float* queries_keys, int position) const {
        if (!shape.cosines) return;
        const float *cosines = shape.cosines + static_cast<int64_t>(position) * (shape.key_width / 2),
                    *sines = shape.sines + static_cast<int64_t>(position) * (shape.key_width / 2);
        for (int head = 0; head < shape.heads + shape.groups; ++head)  // keys follow the queries
            rotate(queries_keys + head * shape.key_width, shape.key_width, cosines, sines, shape.adjacent_pairs);
    }

    void embed(const Embedding& embedding, int rows, const int32_t* ids, const int32_t* positions, float* x) {
        for (int row = 0; row < rows; ++row) {
            float* out = x + static_cast<int64_t>(row) * shape.width;
            const float* token = embedding.tokens + static_cast<int64_t>(ids[row]) * shape.width;
            for (int i = 0; i < shape.width; ++i) out[i] = token[i] * embedding.scale;
            if (embedding.positions) {
                const float* position = embedding.positions + static_cast<int64_t>(positions[row]) * shape.width;
                for (int i = 0; i < shape.width; ++i) out[i] += position[i];
            }
            if (embedding.norm.weight) normalise(embedding.norm, out, out, shape.width);
        }
    }
};

}  // namespace regard
