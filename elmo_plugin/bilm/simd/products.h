// Products of rows and a packed matrix, in float32, bfloat16 and int8.
//
// A matrix is packed in panels. A panel is four vectors of columns: for the gates of an LSTM, one vector each of i, g,
// f and o of the same cells, so that cells and hidden values are computed from products that are still in registers.
// Within a panel, weights are in the order in which they are read: see `in_panels` in panels.py.

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

// The fields are those of `CMatrix` in panels.py.
struct Matrix {
    const void* panels;
    const float* bias;    // of each column; null: none
    const float* scales;  // of each column, of int8
    const int32_t* sums;  // of the integers of each column, of int8
    int64_t depth;        // number of rows, a multiple of GROUP
};

namespace {

constexpr int VECTORS = 4;
constexpr int PANEL = LANES * VECTORS;

// A tile of sums is kept in registers, for as many rows as leave room for weights. Units with 16 registers multiply two
// vectors of a panel at a time, those with 32 all four.
constexpr int ROWS = 6;
constexpr int TILE_VECTORS = REGISTERS >= 32 ? 4 : 2;

// ---------------------------------------------------------------------------------------------------- types

// GROUP neighbouring rows of weights share 32 bits. They are multiplied in one or more PARTS, each with 32 bits of the
// left row.

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
// Weights are cast to float32 when they are read: this halves the memory traffic, and rows are not rounded.
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

template <typename Type>
constexpr bool IS_INT8 = std::is_same<Type, Int8>::value;

// Rows to be multiplied, in the type that weights are multiplied with; of int8 with the scale of each row. They are
// padded with zeros to whole vectors.
template <typename Type>
struct Rows {
    using Element = typename Type::RowElement;
    std::vector<Element> values;
    std::vector<float> scales;
    int64_t stride = 0;

    void resize(int64_t num_rows, int64_t width) {
        stride = (width + LANES - 1) / LANES * LANES;
        values.resize(num_rows * stride);
        scales.resize(num_rows);
    }
    Element* row(int64_t number) { return values.data() + number * stride; }
    const Element* row(int64_t number) const { return values.data() + number * stride; }
};

// ------------------------------------------------------------------------------------------------- products

// Multiplies NUM_ROWS rows from `first_row` on by NUM_PANELS panels. A sum has the same order, and so the same bits,
// whichever rows and panels it is computed with.
template <typename Type, int NUM_ROWS, int NUM_PANELS>
inline __attribute__((always_inline)) void multiply(
    const Rows<Type>& rows, int64_t first_row, const Matrix& right, int64_t panel,
    Vector (&result)[NUM_ROWS][NUM_PANELS * VECTORS]
) {
    using Element = typename Type::Element;
    constexpr int ALL = NUM_PANELS * VECTORS;
    constexpr int WIDTH = NUM_ROWS * ALL <= ROWS * TILE_VECTORS ? ALL : TILE_VECTORS;
    const int64_t depth = right.depth, tile = depth * TILE_VECTORS * LANES;
    const Element* weights = static_cast<const Element*>(right.panels) + panel * depth * PANEL;
    const auto* left_rows = rows.row(first_row);
    const int64_t stride = rows.stride;
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
                    const auto left = Type::left(left_rows + r * stride + k, part);
                    for (int v = 0; v < WIDTH; v++) sums[r][v] = Type::multiply_add(sums[r][v], left, weight[v]);
                }
            }
        }
        for (int r = 0; r < NUM_ROWS; r++)
            for (int v = 0; v < WIDTH; v++) {
                if constexpr (IS_INT8<Type>) {
                    const int64_t column = panel * PANEL + (first + v) * LANES;
                    // No sum overflows in up to 66,000 rows of weights.
                    const Integers sum = sums[r][v] - ROW_OFFSET * load_integers(right.sums + column);
                    result[r][first + v] = __builtin_convertvector(sum, Vector) *
                                           (broadcast(rows.scales[first_row + r]) * load(right.scales + column));
                } else {
                    result[r][first + v] = sums[r][v];
                }
            }
    }
}

// Multiplies `num_rows` rows from `first_row` on by panels, and calls `function(row, panel, products)` with the number
// of a row, counted from `first_row`, and the four vectors of a panel.
template <typename Type, typename Function>
inline void for_products(
    const Rows<Type>& rows, int64_t first_row, int64_t num_rows, const Matrix& right, const Share& panels,
    const Function& function
) {
    const auto multiply_tile = [&](int64_t row, int64_t panel, auto tile_rows, auto tile_panels) {
        constexpr int NUM_ROWS = decltype(tile_rows)::value, NUM_PANELS = decltype(tile_panels)::value;
        Vector products[NUM_ROWS][NUM_PANELS * VECTORS];
        multiply<Type, NUM_ROWS, NUM_PANELS>(rows, first_row + row, right, panel, products);
        for (int r = 0; r < NUM_ROWS; r++)
            for (int p = 0; p < NUM_PANELS; p++) function(row + r, panel + p, products[r] + p * VECTORS);
    };
    constexpr std::integral_constant<int, 1> one;
    constexpr std::integral_constant<int, 2> two;
    int64_t panel = panels.begin;
    // Additions to the same sum wait for each other, so a single row is multiplied by two panels at a time.
    if (num_rows == 1)
        for (; panel + 2 <= panels.end; panel += 2) multiply_tile(0, panel, one, two);
    for (; panel < panels.end; panel++) {
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

// ------------------------------------------------------------------------------------------------- casts

// The bfloat16 nearest to each number, in the lower 16 bits.
inline Integers to_bfloat16(Vector values) {
    const Unsigned bits = (Unsigned)values;
    const Unsigned rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding a NaN could carry into its exponent.
    return values == values ? (Integers)rounded : broadcast(0x7FC0);
}

// Casts a vector to float32 or bfloat16. For int8 only whole rows are cast, as that takes the scale of the row.
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

// Casts `source`, `width` numbers, to a row. The largest magnitude becomes the integer 127. If a number is not finite,
// the scale is NaN, and so are all products with the row, as in the reference.
template <typename Type>
void cast_row(const float* source, int64_t width, Rows<Type>& rows, int64_t number) {
    auto* target = rows.row(number);
    if constexpr (!IS_INT8<Type>) {
        for (int64_t k = 0; k < width; k += LANES) cast(load_first(source + k, width - k), target + k);
    } else {
        // Magnitudes of floats have the order of their bits as integers: numbers, infinity, NaN.
        Integers magnitudes = {};
        for (int64_t k = 0; k < width; k += LANES) {
            const Integers next = as_integers(load_first(source + k, width - k)) & 0x7FFFFFFF;
            magnitudes = next > magnitudes ? next : magnitudes;
        }
        int32_t largest_bits = 0;
        for (int lane = 0; lane < LANES; lane++) largest_bits = std::max<int32_t>(largest_bits, magnitudes[lane]);
        float largest;
        std::memcpy(&largest, &largest_bits, sizeof largest);
        const bool is_finite = std::isfinite(largest);
        rows.scales[number] = is_finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
        // Infinite where all numbers are zero or nearly so.
        const float factor = std::isfinite(127.0f / largest) ? 127.0f / largest : 0.0f;
        const Vector rounding = broadcast(ROUNDING + ROW_OFFSET);
        for (int64_t k = 0; k < width; k += LANES) {
            const Vector values = is_finite ? load_first(source + k, width - k) : Vector{};
            const Bytes bytes = __builtin_convertvector(as_integers(values * factor + rounding) & 255, Bytes);
            std::memcpy(target + k, &bytes, sizeof bytes);
        }
    }
}

}  // namespace
