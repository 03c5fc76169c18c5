// Matrix products in float32, bfloat16 or int8, with float32 results.
//
// Weights are packed once, in panels of 64 outputs: for each group of inputs (1 float32, 2 bfloat16 or 4 int8 numbers,
// 32 bits), the 64 outputs' weights follow each other. A product reads them in the order of memory, and multiplies them
// with one group of inputs that is repeated in all lanes of a vector.
//
// In int8, each output has a scale, and so has each row of inputs. Where an instruction multiplies unsigned by signed bytes
// (VNNI), weights are stored plus 128, and 128 times the sum of the row is subtracted again. All versions of the int8
// product are exact, so that processors of different kinds give the same sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "threads.h"

namespace regard {

// Bytes of a vector, and the number of vectors for sums: the processor's other registers hold weights and inputs.
#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64, MAX_SUMS = 24;  // of 32 registers
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32, MAX_SUMS = 12;  // of 16
#elif defined(__aarch64__)
constexpr int VECTOR_BYTES = 16, MAX_SUMS = 24;  // of 32
#else
constexpr int VECTOR_BYTES = 16, MAX_SUMS = 8;  // of 16
#endif
constexpr int PANEL = 64;  // outputs whose weights are stored together
constexpr int LANES = VECTOR_BYTES / 4;  // numbers of 32 bits in a vector
constexpr int VECTORS = PANEL / LANES;
constexpr int MAX_TILE_ROWS = 6;

enum class Type : int32_t { float32 = 0, bfloat16 = 1, int8 = 2 };
enum class Activation : int32_t { none = 0, relu = 1, gelu = 2, gelu_tanh = 3, silu = 4 };

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

typedef float FloatVector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t IntVector __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t BitVector __attribute__((vector_size(VECTOR_BYTES)));

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

inline uint16_t to_bfloat16(float value) {  // to the nearest, halves to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_bfloat16(uint16_t half) {
    uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Each type says how many inputs a group has and how a group is multiplied and added to the sums of a vector of outputs.

struct Float32 {
    using Weight = float;
    using Sums = FloatVector;
    static constexpr int GROUP = 1;
    static Sums add(Sums sums, const void* weights, const void* inputs) {
        float input;
        std::memcpy(&input, inputs, 4);
        FloatVector w;
        std::memcpy(&w, weights, VECTOR_BYTES);
        return sums + w * input;
    }
    static Sums start(int32_t) { return Sums{}; }
    static Weight convert(float weight, float) { return weight; }
};

struct Bfloat16 {
    using Weight = uint16_t;
    using Sums = FloatVector;
    static constexpr int GROUP = 2;
    static Sums add(Sums sums, const void* weights, const void* inputs) {
#if defined(__AVX512BF16__)
        int32_t pair;
        std::memcpy(&pair, inputs, 4);
        return (Sums)_mm512_dpbf16_ps((__m512)sums, (__m512bh)_mm512_loadu_si512(weights),
                                      (__m512bh)_mm512_set1_epi32(pair));
#else
        uint16_t x[2];
        std::memcpy(x, inputs, 4);
        BitVector pairs;
        std::memcpy(&pairs, weights, VECTOR_BYTES);
        FloatVector first = (FloatVector)(pairs << 16), second = (FloatVector)(pairs & 0xffff0000u);
        return sums + first * from_bfloat16(x[0]) + second * from_bfloat16(x[1]);
#endif
    }
    static Sums start(int32_t) { return Sums{}; }
    static Weight convert(float weight, float) { return to_bfloat16(weight); }
};

struct Int8 {
    using Weight = uint8_t;
    using Sums = IntVector;
    static constexpr int GROUP = 4;
#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
    static constexpr int WEIGHT_OFFSET = 128;
#else
    static constexpr int WEIGHT_OFFSET = 0;
#endif
    static Sums add(Sums sums, const void* weights, const void* inputs) {
        int32_t four;
        std::memcpy(&four, inputs, 4);
#if defined(__AVX512VNNI__)
        return (Sums)_mm512_dpbusd_epi32((__m512i)sums, _mm512_loadu_si512(weights), _mm512_set1_epi32(four));
#elif defined(__AVX512BW__)
        // Sums of two products of bytes fit in 16 bits, because neither factor is ever -128.
        __m512i w = _mm512_loadu_si512(weights), x = _mm512_set1_epi32(four);
        __m512i signed_w = _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(x), _mm512_setzero_si512(), w);
        __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(x), signed_w);
        return sums + (Sums)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVXVNNI__)
        return (Sums)_mm256_dpbusd_avx_epi32((__m256i)sums, _mm256_loadu_si256(static_cast<const __m256i*>(weights)),
                                             _mm256_set1_epi32(four));
#elif defined(__AVX2__) && !defined(__AVX512F__)
        __m256i w = _mm256_loadu_si256(static_cast<const __m256i*>(weights)), x = _mm256_set1_epi32(four);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));  // as above
        return sums + (Sums)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
        return (Sums)vdotq_s32((int32x4_t)sums, vld1q_s8(static_cast<const int8_t*>(weights)),
                               vreinterpretq_s8_s32(vdupq_n_s32(four)));
#else
        BitVector w;
        std::memcpy(&w, weights, VECTOR_BYTES);
        for (int shift = 24; shift >= 0; shift -= 8)  // the bytes of each number, from the lowest
            sums += ((IntVector)(w << shift) >> 24) * static_cast<int8_t>(four >> (24 - shift));
        return sums;
#endif
    }
    static Sums start(int32_t offset) { return Sums{} + offset; }
    static Weight convert(float weight, float scale) {
        return static_cast<uint8_t>(std::lrint(std::clamp(weight / scale, -127.0f, 127.0f)) + WEIGHT_OFFSET);
    }
};

// A linear layer; Python fills in this struct.
struct Linear {
    const void* weights;  // packed
    const float* scales;  // of the outputs, in int8
    const float* bias;    // or null
    int32_t inputs;
    int32_t outputs;
};

inline int group_size(Type type) { return type == Type::int8 ? 4 : type == Type::bfloat16 ? 2 : 1; }
inline int groups_of(Type type, int inputs) { return (inputs + group_size(type) - 1) / group_size(type); }

// Bytes of packed weights.
inline int64_t packed_size(Type type, int outputs, int inputs) {
    return static_cast<int64_t>(round_up(outputs, PANEL)) * groups_of(type, inputs) * 4;
}

template <class P>
void pack(const float* matrix, int outputs, int inputs, typename P::Weight* packed, float* scales) {
    int groups = (inputs + P::GROUP - 1) / P::GROUP;
    for (int n = 0; n < round_up(outputs, PANEL); ++n) {
        const float* row = matrix + static_cast<int64_t>(n) * inputs;
        float largest = 1e-12f, not_finite = 0.0f;
        for (int k = 0; n < outputs && k < inputs; ++k) {
            largest = std::max(largest, std::fabs(row[k]));
            not_finite += row[k] * 0.0f;  // NaN if the weight is infinite or NaN
        }
        if (scales) scales[n] = largest / 127 + not_finite;
        for (int k = 0; k < groups * P::GROUP; ++k) {
            float weight = n < outputs && k < inputs ? row[k] : 0.0f;
            int64_t panel = static_cast<int64_t>(n / PANEL) * groups + k / P::GROUP;
            packed[(panel * PANEL + n % PANEL) * P::GROUP + k % P::GROUP] = P::convert(weight, largest / 127);
        }
    }
}

// exp(x) to 2e-7 of its value, in a form that compilers vectorise.
inline float exponential(float x) {
    x = std::max(x, -87.0f);
    x = std::min(x, 88.0f);
    float n = std::rint(x * 1.44269504f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

inline float error_function(float x) {  // Abramowitz and Stegun 7.1.26; the error is at most 1.5e-7
    float t = 1.0f / (1.0f + 0.3275911f * std::fabs(x));
    float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    return std::copysign(1.0f - p * exponential(-x * x), x);
}

inline float activate(float x, Activation activation) {
    switch (activation) {
        case Activation::relu: return std::max(x, 0.0f);
        case Activation::gelu: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case Activation::gelu_tanh: {
            float u = 0.79788456f * (x + 0.044715f * x * x * x);
            return x * (1.0f - 1.0f / (1.0f + exponential(2 * u)));
        }
        case Activation::silu: return x / (1.0f + exponential(-x));
        default: return x;
    }
}

template <Activation A>
void activate_row(float* row, int count) {
#pragma omp simd
    for (int i = 0; i < count; ++i) row[i] = activate(row[i], A);
}

inline void activate_all(float* row, int count, Activation activation) {
    switch (activation) {
        case Activation::relu: return activate_row<Activation::relu>(row, count);
        case Activation::gelu: return activate_row<Activation::gelu>(row, count);
        case Activation::gelu_tanh: return activate_row<Activation::gelu_tanh>(row, count);
        case Activation::silu: return activate_row<Activation::silu>(row, count);
        default: return;
    }
}

// Rows of inputs in the type of the weights.
struct Inputs {
    std::vector<uint8_t> bytes;
    std::vector<float> scales;
    std::vector<int32_t> offsets;  // what the offset of the weights adds to the products of a row, negated, in int8
    const uint8_t* data = nullptr;
    int64_t row_bytes = 0;

    void allocate(Type type, const float* x, int rows, int width) {
        row_bytes = static_cast<int64_t>(groups_of(type, width)) * 4;
        data = reinterpret_cast<const uint8_t*>(x);
        if (type == Type::float32) return;
        if (bytes.size() < static_cast<size_t>(rows * row_bytes)) bytes.resize(rows * row_bytes);
        if (scales.size() < static_cast<size_t>(rows)) {
            scales.resize(rows);
            offsets.resize(rows);
        }
        data = bytes.data();
    }

    void convert_row(Type type, const float* x, int row, int width) {
        if (type == Type::bfloat16) {
            uint16_t* out = reinterpret_cast<uint16_t*>(bytes.data() + row * row_bytes);
            for (int i = 0; i < width; ++i) out[i] = to_bfloat16(x[i]);
            for (int i = width; i < row_bytes / 2; ++i) out[i] = 0;
        } else if (type == Type::int8) {
            int8_t* out = reinterpret_cast<int8_t*>(bytes.data() + row * row_bytes);
            float largest = 0.0f, not_finite = 0.0f;
#pragma omp simd reduction(max : largest) reduction(+ : not_finite)
            for (int i = 0; i < width; ++i) {
                largest = std::max(largest, std::fabs(x[i]));
                not_finite += x[i] * 0.0f;  // NaN if x is infinite or NaN
            }
            float inverse = largest > 0 ? 127.0f / largest : 0.0f;
            int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < width; ++i) {
                int32_t rounded = static_cast<int32_t>(std::rint(x[i] * inverse));
                out[i] = static_cast<int8_t>(rounded);
                sum += rounded;
            }
            for (int i = width; i < row_bytes; ++i) out[i] = 0;
            // A row with a number that is not finite has none in its results either.
            scales[row] = largest / 127.0f + not_finite;
            offsets[row] = -Int8::WEIGHT_OFFSET * sum;
        }
    }
};

// Number of vectors of outputs that are computed at a time, such that the sums of all rows stay in registers.
constexpr int vectors_together(int rows) {
    int count = VECTORS;
    while (count > 1 && count * rows > MAX_SUMS) count /= 2;
    return count;
}

// 64 outputs of a few rows, before scales and bias.
template <class P, int ROWS>
void multiply_tile(const uint8_t* weights, const Inputs& x, int row, int groups, float* out) {
    constexpr int TOGETHER = vectors_together(ROWS);
    const uint8_t* inputs = x.data + row * x.row_bytes;
    const int64_t row_bytes = x.row_bytes;
    for (int first = 0; first < VECTORS; first += TOGETHER) {
        typename P::Sums sums[ROWS][TOGETHER];
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < TOGETHER; ++v) sums[r][v] = P::start(P::GROUP == 4 ? x.offsets[row + r] : 0);
        for (int g = 0; g < groups; ++g) {
            const uint8_t* w = weights + static_cast<int64_t>(g) * PANEL * 4 + first * VECTOR_BYTES;
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
                for (int v = 0; v < TOGETHER; ++v)
                    sums[r][v] = P::add(sums[r][v], w + v * VECTOR_BYTES, inputs + r * row_bytes + g * 4);
        }
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < TOGETHER; ++v) {
                FloatVector result = __builtin_convertvector(sums[r][v], FloatVector);
                std::memcpy(out + r * PANEL + (first + v) * LANES, &result, VECTOR_BYTES);
            }
    }
}

template <class P>
void multiply_rows(int rows, const uint8_t* weights, const Inputs& x, int row, int groups, float* out) {
    switch (rows) {
        case 1: return multiply_tile<P, 1>(weights, x, row, groups, out);
        case 2: return multiply_tile<P, 2>(weights, x, row, groups, out);
        case 3: return multiply_tile<P, 3>(weights, x, row, groups, out);
        case 4: return multiply_tile<P, 4>(weights, x, row, groups, out);
        case 5: return multiply_tile<P, 5>(weights, x, row, groups, out);
        default: return multiply_tile<P, 6>(weights, x, row, groups, out);
    }
}

// One panel of outputs for all rows, with scales and bias; `finish(row, first output, count, values)` takes each part.
template <class P, class Finish>
void multiply_panel(const Linear& linear, const Inputs& inputs, int rows, int panel, const Finish& finish) {
    int groups = (linear.inputs + P::GROUP - 1) / P::GROUP;
    const int64_t panel_bytes = static_cast<int64_t>(groups) * PANEL * 4;
    const uint8_t* weights = static_cast<const uint8_t*>(linear.weights) + panel * panel_bytes;
    int first = panel * PANEL, count = std::min(PANEL, linear.outputs - first);
    int tiles = (rows + MAX_TILE_ROWS - 1) / MAX_TILE_ROWS;
    alignas(64) float values[MAX_TILE_ROWS * PANEL];
    for (int tile = 0; tile < tiles; ++tile) {  // of nearly equal heights
        int row = static_cast<int>(static_cast<int64_t>(rows) * tile / tiles);
        int height = static_cast<int>(static_cast<int64_t>(rows) * (tile + 1) / tiles) - row;
        multiply_rows<P>(height, weights, inputs, row, groups, values);
        for (int r = 0; r < height; ++r) {
            float* part = values + r * PANEL;
            if constexpr (P::GROUP == 4) {
                const float scale = inputs.scales[row + r], *scales = linear.scales + first;
#pragma omp simd
                for (int i = 0; i < PANEL; ++i) part[i] *= scale * scales[i];
            }
            if (linear.bias)
                for (int i = 0; i < count; ++i) part[i] += linear.bias[first + i];
            finish(row + r, first, count, part);
        }
    }
}

// Number of tasks for work of about this many nanoseconds: few enough that each is worth handing to a thread.
inline int task_count(const Threads& threads, double nanoseconds, int parts) {
    if (threads.count() == 1) return 1;
    int worthwhile = static_cast<int>(nanoseconds / 1500);
    return std::max(1, std::min({parts, worthwhile, 4 * threads.count()}));
}

// rows × outputs, panel by panel, shared among the threads.
template <class Finish>
void multiply(Threads& threads, Type type, const Linear& linear, const Inputs& inputs, int rows, const Finish& finish) {
    int panels = (linear.outputs + PANEL - 1) / PANEL;
    double products = static_cast<double>(linear.outputs) * linear.inputs * group_size(Type::int8) / group_size(type);
    int tasks = task_count(threads, std::max(products / 30, products * rows / 200), panels);
    threads.run(tasks, [&](int task) {
        int first = static_cast<int>(static_cast<int64_t>(panels) * task / tasks);
        int last = static_cast<int>(static_cast<int64_t>(panels) * (task + 1) / tasks);
        for (int panel = first; panel < last; ++panel) {
            if (type == Type::int8) multiply_panel<Int8>(linear, inputs, rows, panel, finish);
            else if (type == Type::bfloat16) multiply_panel<Bfloat16>(linear, inputs, rows, panel, finish);
            else multiply_panel<Float32>(linear, inputs, rows, panel, finish);
        }
    });
}

}  // namespace regard
