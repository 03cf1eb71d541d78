// Vectors of the unit that this library is compiled for, and functions of them.
//
// Vectors are those of the compiler (GCC and clang): + - * / < ?: and shifts become instructions of the unit that the
// flags name. What has no operator in C++ is written here once for each unit: the fused multiplication and
// addition, and products of 8-bit integers and of bfloat16.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
#elif defined(__ARM_NEON)
constexpr int LANES = 4;
constexpr int REGISTERS = 32;
#else
#error "setup.py names the flags of each vector unit."
#endif

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));
typedef uint32_t Unsigned __attribute__((vector_size(4 * LANES)));
typedef uint16_t Shorts __attribute__((vector_size(2 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

inline Vector load(const float* source) {
    Vector vector;
    std::memcpy(&vector, source, sizeof vector);
    return vector;
}

inline Integers load_integers(const void* source) {
    Integers vector;
    std::memcpy(&vector, source, sizeof vector);
    return vector;
}

inline void store(float* target, Vector vector) { std::memcpy(target, &vector, sizeof vector); }

// The first `count` numbers, zeros after them. `count` may exceed the lanes.
inline Vector load_first(const float* source, int64_t count) {
    if (count >= LANES) return load(source);
    Vector vector = {};
    std::memcpy(&vector, source, count * sizeof(float));
    return vector;
}

inline void store_first(float* target, Vector vector, int64_t count) {
    if (count >= LANES) store(target, vector);
    else std::memcpy(target, &vector, count * sizeof(float));
}

inline Vector broadcast(float value) { return value - Vector{}; }
inline Integers broadcast(int32_t value) { return value - Integers{}; }

inline Vector as_floats(Integers bits) { return (Vector)bits; }
inline Integers as_integers(Vector vector) { return (Integers)vector; }

// If one of the two is NaN, the second. GCC compiles `?:` in `clip` to several instructions: with AMX a small layer in int8
// takes a fifth longer.
inline Vector smaller(Vector a, Vector b) {
#if defined(__AVX512F__)
    return (Vector)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Vector)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return a < b ? a : b;
#endif
}
inline Vector larger(Vector a, Vector b) {
#if defined(__AVX512F__)
    return (Vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return a > b ? a : b;
#endif
}

// 1.5 * 2^23: a sum with a number below 2^22 is rounded to an integer, which is in its lowest bits.
constexpr float ROUNDING = 12582912.0f;

// Keeps a vector in a register. GCC would read it from memory again for each operation, which takes longer than the
// operations on processors that load as many vectors in a cycle as they multiply.
template <typename AnyVector>
inline __attribute__((always_inline)) AnyVector in_register(AnyVector vector) {
#if defined(__x86_64__)
    asm("" : "+v"(vector));
#elif defined(__ARM_NEON)
    asm("" : "+w"(vector));
#endif
    return vector;
}

// `a * b + c`, rounded once.
inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
    return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
    return (Vector)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}

#if defined(__AVX512BF16__)
#define ELMO_BFLOAT16_PRODUCTS
// Adds `a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1]` to each sum, of pairs of bfloat16.
inline Vector add_products_of_pairs(Vector sums, Integers a, Integers b) {
    return (Vector)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
}
#endif

// What is added to the integers of rows before they are multiplied, on units that multiply unsigned by signed ones.
#if defined(__ARM_NEON)
constexpr int32_t ROW_OFFSET = 0;
#else
constexpr int32_t ROW_OFFSET = 128;
#endif

// Adds to each sum the products of four 8-bit `rows`, with ROW_OFFSET, and four signed `weights`. Two neighboring
// products fit into 16 bits: see `largest_of_pairs` in panels.py.
inline Integers add_products_of_fours(Integers sums, Integers rows, Integers weights) {
#if defined(__AVX512VNNI__)
    return (Integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)rows, (__m512i)weights);
#elif defined(__AVX512F__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)rows, (__m512i)weights);
    return sums + (Integers)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)rows, (__m256i)weights);
    return sums + (Integers)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Integers)vdotq_s32((int32x4_t)sums, (int8x16_t)rows, (int8x16_t)weights);
#elif defined(__ARM_NEON)
    const int8x16_t a = (int8x16_t)rows, b = (int8x16_t)weights;
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(a, b));
    return sums + (Integers)vpaddq_s32(low, high);
#endif
}

// ------------------------------------------------------------------------------------------------ functions

// NaN stays NaN.
inline Vector clip(Vector x, float limit) { return larger(broadcast(-limit), smaller(broadcast(limit), x)); }

// The following functions replace several vectors at once, each step of all of them before the next one: a processor
// looks too few instructions ahead to find those of the next vector behind a whole function of the first.

// Within 2 units in the last place on [-87, 87], beyond which sigmoid and tanh change by less than 2e-38.
template <int N>
inline void exponential(Vector (&x)[N]) {
    Vector n[N], y[N];
    Integers power_of_two[N];
    for (int v = 0; v < N; v++) x[v] = clip(x[v], 87.0f);
    for (int v = 0; v < N; v++) n[v] = multiply_add(x[v], broadcast(1.44269504f), broadcast(ROUNDING));
    for (int v = 0; v < N; v++) power_of_two[v] = (as_integers(n[v]) + 127) << 23;
    for (int v = 0; v < N; v++) n[v] -= ROUNDING;
    for (int v = 0; v < N; v++) x[v] = multiply_add(n[v], broadcast(-0.693359375f), x[v]);
    for (int v = 0; v < N; v++) x[v] = multiply_add(n[v], broadcast(2.12194440e-4f), x[v]);
    // Taylor series: |x| <= ln(2) / 2
    for (int v = 0; v < N; v++) y[v] = multiply_add(broadcast(1.0f / 5040), x[v], broadcast(1.0f / 720));
    for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        for (int v = 0; v < N; v++) y[v] = multiply_add(y[v], x[v], broadcast(coefficient));
    for (int v = 0; v < N; v++) x[v] = y[v] * as_floats(power_of_two[v]);
}

template <int N>
inline void sigmoid(Vector (&x)[N]) {
    for (int v = 0; v < N; v++) x[v] = -x[v];
    exponential(x);
    for (int v = 0; v < N; v++) x[v] = 1.0f / (1.0f + x[v]);
}

inline Vector sigmoid(Vector x) {
    Vector values[1] = {x};
    sigmoid(values);
    return values[0];
}

// Within 2e-7, also near 0: that is not small beside the smallest results.
inline Vector tanh(Vector x) {
    const Vector doubled = sigmoid(x + x);
    return doubled + doubled - 1.0f;
}

inline Vector relu(Vector x) { return larger(Vector{}, x); }

// The larger of two numbers, NaN if one of them is.
inline Vector larger_or_nan(Vector a, Vector b) { return b > a ? b : b == b ? a : b; }

}  // namespace
