// Products of rows and weights that do not change, in float32, bfloat16 and int8.
//
// Weights lie in panels. A panel is four vectors of columns: for the gates of an LSTM the i, g, f and o of as many
// cells as a vector has lanes, so that what a product leaves in registers becomes cells and hidden values without
// a detour through memory. Within a panel, weights lie in the order in which they are read.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "threads.h"
#include "vectors.h"

// The fields of these structs are those of library.py.

// A matrix in panels. `scales` and `offsets` are of int8: a column's scale, and 128 times its sum.
struct Matrix {
    const void* panels;
    const float* scales;
    const int32_t* offsets;
    int64_t depth;  // rows, a multiple of GROUP
};

// A matrix as torch has it: outputs in one or more groups, of each of which a panel holds as many.
struct Plain {
    const float* weight;
    int64_t num_groups, num_outputs, depth;  // outputs of a group
    int64_t group_stride, output_stride, depth_stride;
};

// Where to pack it.
struct Packed {
    void* panels;
    float* scales;
    int32_t* offsets;
};

namespace {

constexpr int VECTORS = 4;
constexpr int PANEL = LANES * VECTORS;

// A tile of sums is held in registers, for as many rows as leave room for weights. Units with few registers take
// two vectors of a panel at a time; those with many, all four.
constexpr int ROWS = 6;
constexpr int TILE_VECTORS = REGISTERS >= 32 ? 4 : 2;

// ---------------------------------------------------------------------------------------------------- types

// GROUP neighbouring rows of weights lie together in 32 bits. They are multiplied in one or more PARTS, in each of
// which every row gives the 32 bits `left`.

// The 32 bits of a group of narrower elements.
inline Integers broadcast_group(const void* row) {
    int32_t group;
    std::memcpy(&group, row, sizeof group);
    return broadcast(group);
}

struct Float32 {
    using Element = float;
    using RowElement = float;
    using Sum = Vector;
    static constexpr int GROUP = 1;
    static constexpr int PARTS = 1;
    static Vector weight(const void* source, int) { return load(static_cast<const float*>(source)); }
    static Vector left(const float* row, int) { return broadcast(*row); }
    static Vector multiply_add(Vector sum, Vector left, Vector weight) { return ::multiply_add(left, weight, sum); }
};

#ifdef ELMO_BFLOAT16_PRODUCTS
struct BFloat16 {
    using Element = uint16_t;
    using RowElement = uint16_t;
    using Sum = Vector;
    static constexpr int GROUP = 2;
    static constexpr int PARTS = 1;
    static Integers weight(const void* source, int) { return load_integers(source); }
    static Integers left(const uint16_t* row, int) { return broadcast_group(row); }
    static Vector multiply_add(Vector sum, Integers left, Integers weight) {
        return add_products_of_pairs(sum, left, weight);
    }
};
#else
// Weights become float32 again when they are read: half of the memory traffic, and no loss in rows.
struct BFloat16 {
    using Element = uint16_t;
    using RowElement = float;
    using Sum = Vector;
    static constexpr int GROUP = 2;
    static constexpr int PARTS = 2;
    static Vector weight(const void* source, int part) {
        const Integers pair = load_integers(source);
        return as_floats(part == 0 ? pair << 16 : pair & broadcast(static_cast<int32_t>(0xFFFF0000)));
    }
    static Vector left(const float* row, int part) { return broadcast(row[part]); }
    static Vector multiply_add(Vector sum, Vector left, Vector weight) { return ::multiply_add(left, weight, sum); }
};
#endif

struct Int8 {
    using Element = int8_t;
    using RowElement = uint8_t;
    using Sum = Integers;
    static constexpr int GROUP = 4;
    static constexpr int PARTS = 1;
    static Integers weight(const void* source, int) { return load_integers(source); }
    static Integers left(const uint8_t* row, int) { return broadcast_group(row); }
    static Integers multiply_add(Integers sum, Integers left, Integers weight) {
        return add_products_of_fours(sum, left, weight);
    }
};

// Where in a panel of so many rows an element stands.
template <typename Type>
inline int64_t position(int64_t depth, int64_t k, int column) {
    constexpr int GROUP = Type::GROUP;
    const int vector = column / LANES, lane = column % LANES;
    const int64_t tile = vector / TILE_VECTORS * depth * TILE_VECTORS;
    const int64_t group = k / GROUP * GROUP * TILE_VECTORS + vector % TILE_VECTORS * GROUP;
    return (tile + group) * LANES + lane * GROUP + k % GROUP;
}

template <typename Type>
constexpr bool IS_INT8 = std::is_same<Type, Int8>::value;

// Rows to be multiplied, cast to what weights of a type are multiplied with; of int8 with the scale of each row.
// Rows are whole vectors long, with zeros at their ends.
template <typename Type>
struct Rows {
    using Element = typename Type::RowElement;
    std::vector<Element> values;
    std::vector<float> scales;
    int64_t stride = 0;

    // Zeros.
    void resize(int64_t num_rows, int64_t width) {
        stride = (width + LANES - 1) / LANES * LANES;
        values.resize(num_rows * stride);
        scales.resize(num_rows);
    }
    Element* row(int64_t number) { return values.data() + number * stride; }
};

// ------------------------------------------------------------------------------------------------- products

// Multiplies NUM_ROWS rows, `row_stride` elements apart, by NUM_PANELS panels. `scales` are those of the rows, of int8.
// A sum has the same order, and so the same bits, whichever rows and panels it is made with.
template <typename Type, int NUM_ROWS, int NUM_PANELS>
inline __attribute__((always_inline)) void multiply(
    const typename Type::RowElement* rows, int64_t row_stride, const float* scales, const Matrix& right,
    int64_t panel, Vector (&result)[NUM_ROWS][NUM_PANELS * VECTORS]
) {
    using Element = typename Type::Element;
    constexpr int ALL = NUM_PANELS * VECTORS;
    constexpr int WIDTH = NUM_ROWS * ALL <= ROWS * TILE_VECTORS ? ALL : TILE_VECTORS;
    const int64_t depth = right.depth, tile = depth * TILE_VECTORS * LANES;
    const Element* weights = static_cast<const Element*>(right.panels) + panel * depth * PANEL;
    for (int first = 0; first < ALL; first += WIDTH) {
        typename Type::Sum sums[NUM_ROWS][WIDTH] = {};
        for (int64_t k = 0; k < depth; k += Type::GROUP) {
            const Element* group = weights + first / TILE_VECTORS * tile + k * TILE_VECTORS * LANES;
            for (int part = 0; part < Type::PARTS; part++) {
                decltype(Type::weight(group, part)) weight[WIDTH];
                for (int v = 0; v < WIDTH; v++)
                    weight[v] = Type::weight(
                        group + v / TILE_VECTORS * tile + v % TILE_VECTORS * Type::GROUP * LANES, part
                    );
                for (int r = 0; r < NUM_ROWS; r++) {
                    const auto left = Type::left(rows + r * row_stride + k, part);
                    for (int v = 0; v < WIDTH; v++) sums[r][v] = Type::multiply_add(sums[r][v], left, weight[v]);
                }
            }
        }
        for (int r = 0; r < NUM_ROWS; r++)
            for (int v = 0; v < WIDTH; v++) {
                if constexpr (IS_INT8<Type>) {
                    const int64_t column = panel * PANEL + (first + v) * LANES;
                    // Up to 66,000 rows, no sum is too large.
                    const Integers sum = sums[r][v] - load_integers(right.offsets + column);
                    result[r][first + v] = __builtin_convertvector(sum, Vector) *
                                           (broadcast(scales[r]) * load(right.scales + column));
                } else {
                    result[r][first + v] = sums[r][v];
                }
            }
    }
}

// Multiplies rows as above by panels `begin` to `end`, and calls `function(row, panel, products)` for each row and
// panel, with four vectors.
template <typename Type, typename Function>
inline void for_products(
    const typename Type::RowElement* rows, int64_t row_stride, const float* scales, int64_t num_rows,
    const Matrix& right, int64_t begin, int64_t end, const Function& function
) {
    const auto multiply_tile = [&](int64_t row, int64_t panel, auto tile_rows, auto tile_panels) {
        constexpr int NUM_ROWS = decltype(tile_rows)::value, NUM_PANELS = decltype(tile_panels)::value;
        Vector products[NUM_ROWS][NUM_PANELS * VECTORS];
        multiply<Type, NUM_ROWS, NUM_PANELS>(
            rows + row * row_stride, row_stride, IS_INT8<Type> ? scales + row : nullptr, right, panel, products
        );
        for (int r = 0; r < NUM_ROWS; r++)
            for (int p = 0; p < NUM_PANELS; p++) function(row + r, panel + p, products[r] + p * VECTORS);
    };
    constexpr std::integral_constant<int, 1> one;
    constexpr std::integral_constant<int, 2> two;
    int64_t panel = begin;
    // Additions to one sum wait for each other, so a single row takes sums of several panels at a time.
    if (num_rows == 1)
        for (; panel + 2 <= end; panel += 2) multiply_tile(0, panel, one, two);
    for (; panel < end; panel++) {
        int64_t row = 0;
        for (; row + ROWS <= num_rows; row += ROWS)
            multiply_tile(row, panel, std::integral_constant<int, ROWS>(), one);
        switch (num_rows - row) {
            case 5: multiply_tile(row, panel, std::integral_constant<int, 5>(), one); break;
            case 4: multiply_tile(row, panel, std::integral_constant<int, 4>(), one); break;
            case 3: multiply_tile(row, panel, std::integral_constant<int, 3>(), one); break;
            case 2: multiply_tile(row, panel, two, one); break;
            case 1: multiply_tile(row, panel, one, one); break;
        }
    }
}

template <typename Type, typename Function>
inline void for_products(
    Rows<Type>& rows, int64_t first, int64_t num_rows, const Matrix& right, const Share& panels,
    const Function& function
) {
    for_products<Type>(
        rows.row(first), rows.stride, rows.scales.data() + first, num_rows, right, panels.begin, panels.end, function
    );
}

// ------------------------------------------------------------------------------------------------- casts

// The bfloat16 nearest to each number.
inline Integers to_bfloat16(Vector values) {
    const Unsigned bits = (Unsigned)values;
    const Unsigned rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry from NaN into the exponent.
    return values == values ? (Integers)rounded : broadcast(0x7FC0);
}

inline uint16_t to_bfloat16(float value) { return static_cast<uint16_t>(to_bfloat16(broadcast(value))[0]); }

// Casts a vector to a row of float32 or bfloat16. Of int8 a whole row is cast: its scale must be known.
inline void cast(Vector values, float* target) { store(target, values); }
inline void cast(Vector values, uint16_t* target) {
    const Shorts shorts = __builtin_convertvector(to_bfloat16(values), Shorts);
    std::memcpy(target, &shorts, sizeof shorts);
}

// `count` may exceed the lanes.
template <typename Element>
inline void cast_first(Vector values, Element* target, int64_t count) {
    if (count >= LANES) return cast(values, target);
    Element elements[LANES];
    cast(values, elements);
    std::memcpy(target, elements, count * sizeof(Element));
}

// The magnitudes of floats are ordered as unsigned integers are, infinity after all numbers and NaN after infinity.
inline int32_t magnitude(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits & 0x7FFFFFFF;
}

inline float from_magnitude(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// How a row or column becomes 8-bit integers. Values that are not finite have no integers: their scale is NaN, and
// so is every product with them, as in the reference.
struct Quantization {
    float factor, scale;
    explicit Quantization(float largest) : factor(127.0f / largest), scale(largest / 127.0f) {
        if (!std::isfinite(factor)) factor = 0;  // also where all values are zeros or nearly so
        if (!std::isfinite(largest)) scale = std::numeric_limits<float>::quiet_NaN();
    }
};

inline int to_int8(float value, float factor) {
    return std::isfinite(value) ? static_cast<int>(std::nearbyintf(value * factor)) : 0;
}

// Casts `source`, `width` numbers, to a row.
template <typename Type>
void cast_row(const float* source, int64_t width, Rows<Type>& rows, int64_t number) {
    auto* target = rows.row(number);
    if constexpr (!IS_INT8<Type>) {
        for (int64_t k = 0; k < width; k += LANES) cast(load_first(source + k, width - k), target + k);
    } else {
        Integers magnitudes = {};
        for (int64_t k = 0; k < width; k += LANES) {
            const Integers next = as_integers(load_first(source + k, width - k)) & 0x7FFFFFFF;
            magnitudes = next > magnitudes ? next : magnitudes;
        }
        int32_t largest = 0;
        for (int lane = 0; lane < LANES; lane++) largest = std::max<int32_t>(largest, magnitudes[lane]);
        const Quantization quantization(from_magnitude(largest));
        rows.scales[number] = quantization.scale;
        const bool is_finite = std::isfinite(quantization.scale);
        const Vector factor = broadcast(quantization.factor), rounding = broadcast(ROUNDING + ROW_OFFSET);
        for (int64_t k = 0; k < width; k += LANES) {
            const Vector values = is_finite ? load_first(source + k, width - k) : Vector{};
            const Bytes bytes = __builtin_convertvector(as_integers(values * factor + rounding) & 255, Bytes);
            std::memcpy(target + k, &bytes, sizeof bytes);
        }
    }
}

// -------------------------------------------------------------------------------------------------- packing

template <typename Type>
void pack_panel(const Plain& plain, const Packed& packed, int64_t panel, std::vector<float>& columns) {
    using Element = typename Type::Element;
    const int64_t outputs_per_panel = PANEL / plain.num_groups;
    const int64_t depth = columns.size() / PANEL;
    const int64_t first = panel * outputs_per_panel;
    const int64_t present = std::min(outputs_per_panel, plain.num_outputs - first);
    std::fill(columns.begin(), columns.end(), 0.0f);
    for (int64_t k = 0; k < plain.depth; k++)
        for (int64_t group = 0; group < plain.num_groups; group++) {
            const float* source = plain.weight + group * plain.group_stride + first * plain.output_stride +
                                  k * plain.depth_stride;
            float* target = columns.data() + k * PANEL + group * outputs_per_panel;
            if (plain.output_stride == 1) std::memcpy(target, source, present * sizeof(float));
            else
                for (int64_t output = 0; output < present; output++)
                    target[output] = source[output * plain.output_stride];
        }
    Element* panels = static_cast<Element*>(packed.panels) + panel * depth * PANEL;
    float factors[PANEL] = {};
    int32_t sums[PANEL] = {};
    if constexpr (IS_INT8<Type>)
        for (int c = 0; c < PANEL; c++) {
            // Two neighbouring products with rows of up to 255 must fit into 16 bits: weights of the same sign are
            // at most 128 together, also when both were rounded up.
            int32_t largest = 0;
            for (int64_t k = 0; k < depth; k += 2) {
                const float a = columns[k * PANEL + c], b = columns[(k + 1) * PANEL + c];
                largest = std::max(largest, std::max(magnitude(a), magnitude(b)));
                if (std::signbit(a) == std::signbit(b)) largest = std::max(largest, magnitude(a + b));
            }
            const Quantization quantization(from_magnitude(largest));
            factors[c] = quantization.factor;
            packed.scales[panel * PANEL + c] = quantization.scale;
        }
    for (int64_t k = 0; k < depth; k++)
        for (int c = 0; c < PANEL; c++) {
            const float value = columns[k * PANEL + c];
            Element& target = panels[position<Type>(depth, k, c)];
            if constexpr (std::is_same<Type, Float32>::value) target = value;
            if constexpr (std::is_same<Type, BFloat16>::value) target = to_bfloat16(value);
            if constexpr (IS_INT8<Type>) {
                const int integer = to_int8(value, factors[c]);
                target = static_cast<int8_t>(integer);
                sums[c] += integer;
            }
        }
    if constexpr (IS_INT8<Type>)
        for (int c = 0; c < PANEL; c++) packed.offsets[panel * PANEL + c] = ROW_OFFSET * sums[c];
}

template <typename Type>
void pack_matrix(const Plain& plain, const Packed& packed, int num_threads) {
    const int64_t num_panels = (plain.num_outputs * plain.num_groups + PANEL - 1) / PANEL;
    const int64_t depth = (plain.depth + Type::GROUP - 1) / Type::GROUP * Type::GROUP;
    // A panel each, as numbers: (depth, PANEL)
    std::vector<std::vector<float>> columns(num_threads, std::vector<float>(depth * PANEL));
    in_threads(num_threads, [&](int thread) {
        const Share panels(num_panels, thread, num_threads);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            pack_panel<Type>(plain, packed, panel, columns[thread]);
    });
}

}  // namespace
