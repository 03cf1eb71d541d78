// Products of rows and a packed matrix, in float32, bfloat16 and int8.
//
// A matrix is packed in panels. A panel is four vectors of columns: for the gates of an LSTM, one vector each of i, g,
// f and o of the same cells, so that cells and hidden values are computed from products that are still in registers or
// the first-level cache. Within a panel, weights are in the order in which they are read: see `in_panels` in panels.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "threads.h"
#include "amx.h"
#include "vectors.h"

// The fields are those of `CMatrix` in panels.py.
struct Matrix {
    const void* panels;
    const float* bias;    // of each column; null: none
    const float* scales;  // of each column, of int8
    const int32_t* sums;  // of the integers of each column, of int8
    int64_t depth;        // number of rows, a multiple of DEPTH_MULTIPLE
};

namespace {

inline int64_t ceil_divided(int64_t total, int64_t size) { return (total + size - 1) / size; }

constexpr int VECTORS = 4;
constexpr int PANEL = LANES * VECTORS;

// A tile of sums is kept in registers, for as many rows as leave room for weights. A strip is the columns of a panel that
// are multiplied at a time: two vectors by units with 16 registers, all four by those with 32.
constexpr int ROWS = 6;
constexpr int STRIP_VECTORS = REGISTERS >= 32 ? 4 : 2;
constexpr int STRIP_COLUMNS = STRIP_VECTORS * LANES;
constexpr int STRIPS = VECTORS / STRIP_VECTORS;

constexpr int64_t LINE_BYTES = 64;
// Weights at this distance are fetched, into the second-level cache (2), or into the first one too (3): AMD's
// processors take a fifth longer with AVX2 without the latter. Those with AVX512_BF16 and without AMX are AMD's.
constexpr int64_t BYTES_AHEAD = 32768;
#if defined(__AVX512BF16__) || (defined(__AVX2__) && !defined(__AVX512F__))
constexpr int FETCHED_INTO = 3;
#else
constexpr int FETCHED_INTO = 2;
#endif
// Number of rows that stay in the second-level cache while they are multiplied by one panel after another.
constexpr int64_t ROWS_PER_PASS = 240;
inline int64_t num_passes(int64_t num_rows) { return ceil_divided(num_rows, ROWS_PER_PASS); }

// ---------------------------------------------------------------------------------------------------- types

// NEIGHBORS rows of weights that follow each other share 32 bits. They are multiplied in one or more PARTS, each with
// 32 bits of the left row.

// The 32 bits of neighbors.
inline Integers broadcast_neighbors(const void* row) {
    int32_t bits;
    std::memcpy(&bits, row, sizeof bits);
    return broadcast(bits);
}

struct Float32 {
    using Element = float;
    using RowElement = float;
    using Sum = Vector;
    static constexpr int NEIGHBORS = 1;
    static constexpr int PARTS = 1;
    static Vector weight(const void* source, int) { return load(static_cast<const float*>(source)); }
    static Vector left(const float* row, int) { return broadcast(*row); }
    static Vector add_product(Vector sum, Vector left, Vector weight) { return ::multiply_add(left, weight, sum); }
};

#if defined(__AMX_BF16__)
// Multiplied by AMX only.
struct BFloat16 {
    using Element = uint16_t;
    using RowElement = uint16_t;
    using Sum = Vector;
    static constexpr int NEIGHBORS = 2;
};
#elif defined(ELMO_BFLOAT16_PRODUCTS)
struct BFloat16 {
    using Element = uint16_t;
    using RowElement = uint16_t;
    using Sum = Vector;
    static constexpr int NEIGHBORS = 2;
    static constexpr int PARTS = 1;
    static Integers weight(const void* source, int) { return load_integers(source); }
    static Integers left(const uint16_t* row, int) { return broadcast_neighbors(row); }
    static Vector add_product(Vector sum, Integers left, Integers weight) {
        return add_products_of_pairs(sum, left, weight);
    }
};
#else
// Weights are cast to float32 when they are read: this halves the memory traffic, and rows are not rounded.
struct BFloat16 : Float32 {
    using Element = uint16_t;
    static constexpr int NEIGHBORS = 2;
    static constexpr int PARTS = 2;
    static Vector weight(const void* source, int part) {
        const Integers pair = load_integers(source);
        return as_floats(part == 0 ? pair << 16 : pair & broadcast(static_cast<int32_t>(0xFFFF0000)));
    }
    static Vector left(const float* row, int part) { return broadcast(row[part]); }
};
#endif

struct Int8 {
    using Element = int8_t;
    using RowElement = uint8_t;
    using Sum = Integers;
    static constexpr int NEIGHBORS = 4;
    static constexpr int PARTS = 1;
    static Integers weight(const void* source, int) { return load_integers(source); }
    static Integers left(const uint8_t* row, int) { return broadcast_neighbors(row); }
    static Integers add_product(Integers sum, Integers left, Integers weight) {
        return add_products_of_fours(sum, left, weight);
    }
};

template <typename Type>
constexpr bool IS_INT8 = std::is_same<Type, Int8>::value;

template <typename Type>
constexpr bool USES_AMX = HAS_AMX && sizeof(typename Type::Element) < sizeof(float);

// A matrix is padded with zeros to a multiple of so many rows.
template <typename Type>
constexpr int DEPTH_MULTIPLE = USES_AMX<Type> ? AMX_ROWS * Type::NEIGHBORS : Type::NEIGHBORS;

// A block of weights stays in the first-level cache, beside rows; products by AMX read more of these.
template <typename Type>
constexpr int64_t BLOCK_BYTES = USES_AMX<Type> ? 16384 : 32768;

// Rows to be multiplied, in the type that weights are multiplied with; of int8 with the scale of each row. They are
// padded with zeros to whole vectors.
template <typename Type>
struct Rows {
    using Element = typename Type::RowElement;
    std::vector<Element> values;
    std::vector<float> scales;
    int64_t stride = 0;

    void resize(int64_t num_rows, int64_t width) {
        // Whole vectors, and a line more: AMX reads whole lines, and rows that are powers of two apart would share few
        // places of a cache.
        stride = ceil_divided(width, LANES) * LANES + LINE_BYTES / sizeof(Element);
        values.resize(num_rows * stride);
        scales.resize(num_rows);
    }
    Element* row(int64_t number) { return values.data() + number * stride; }
    const Element* row(int64_t number) const { return values.data() + number * stride; }
};

// ------------------------------------------------------------------------------------------------- products

// Adds the products of NUM_ROWS rows and `depth` rows of weights to `sums`, which stay in registers: for each row
// NUM_VECTORS vectors of columns, from as many strips as these take, `strip_size` elements apart. Weights from `next` on
// are fetched meanwhile, `next_bytes` of them, evenly: too many fetches at a time would hold up all other reads. A sum has
// the same order, and so the same bits, whichever rows and columns it is computed with.
template <typename Type, int NUM_ROWS, int NUM_VECTORS>
inline __attribute__((always_inline)) void add_products(
    const typename Type::RowElement* rows, int64_t stride, const typename Type::Element* weights, int64_t strip_size,
    int64_t depth, const char* next, int64_t next_bytes, typename Type::Sum (&sums)[NUM_ROWS][NUM_VECTORS]
) {
    const int64_t step = next_bytes * Type::NEIGHBORS / depth;
    for (int64_t k = 0; k < depth; k += Type::NEIGHBORS) {
        const auto* neighbors = weights + k * STRIP_COLUMNS;
        __builtin_prefetch(next, 0, FETCHED_INTO);
        next += step;
        for (int part = 0; part < Type::PARTS; part++) {
            decltype(Type::weight(neighbors, part)) weight[NUM_VECTORS];
            for (int v = 0; v < NUM_VECTORS; v++)
                weight[v] = in_register(Type::weight(
                    neighbors + v / STRIP_VECTORS * strip_size + v % STRIP_VECTORS * Type::NEIGHBORS * LANES, part
                ));
            for (int r = 0; r < NUM_ROWS; r++) {
                const auto left = Type::left(rows + r * stride + k, part);
                for (int v = 0; v < NUM_VECTORS; v++) sums[r][v] = Type::add_product(sums[r][v], left, weight[v]);
            }
        }
    }
}

// Calls `function(row, std::integral_constant<int, n>())` for each tile of n rows, the first of which is `row`: N rows,
// and fewer in the last one.
template <int N = ROWS, typename Function>
inline void for_tiles(int64_t row, int64_t end, const Function& function) {
    for (; row + N <= end; row += N) function(row, std::integral_constant<int, N>());
    if constexpr (N > 1) for_tiles<N - 1>(row, end, function);
}

// A block of weights of a strip, and the rows that are multiplied by it while it is in the first-level cache.
template <typename Type>
struct Block {
    Share rows;
    int64_t panel, strip;
    int64_t first_weight, num_weights;  // rows of weights
    bool is_last;                       // of a panel
    const typename Type::Element* weights;

    const char* next() const { return reinterpret_cast<const char*>(weights) + BYTES_AHEAD; }
};

// Calls `function` with each block.
template <typename Type, typename Function>
inline void for_blocks(int64_t num_rows, const Matrix& right, const Share& panels, const Function& function) {
    constexpr int64_t DEPTH = BLOCK_BYTES<Type> / (STRIP_COLUMNS * sizeof(typename Type::Element));
    const auto* weights = static_cast<const typename Type::Element*>(right.panels);
    const int64_t passes = num_passes(num_rows);
    for (int64_t pass = 0; pass < passes; pass++)
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            for (int64_t strip = 0; strip < STRIPS; strip++)
                for (int64_t first = 0; first < right.depth; first += DEPTH) {
                    const int64_t depth = std::min(DEPTH, right.depth - first);
                    const bool is_last = strip + 1 == STRIPS && first + depth == right.depth;
                    const int64_t row_of_weights = (panel * STRIPS + strip) * right.depth + first;
                    function(Block<Type>{
                        share_of(num_rows, pass, passes), panel, strip, first, depth, is_last,
                        weights + row_of_weights * STRIP_COLUMNS
                    });
                }
}

#if defined(__AMX_TILE__)
// What `for_products` does with types that use AMX. `take_sums(row, panel, sums)` takes the sums of a row.
template <typename Type, typename Take>
inline void sums_by_amx(
    const Rows<Type>& rows, int64_t num_rows, const Matrix& right, const Share& panels, const Take& take_sums
) {
    using Sum = typename Type::Sum;
    Sum partial[ROWS_PER_PASS][VECTORS];  // sums of rows over the blocks so far
    const int64_t rows_of_pass = ceil_divided(num_rows, num_passes(num_rows));
    // All tiles have the same number of rows, so the last one may begin with rows of the one before.
    const int64_t num_tiles = ceil_divided(rows_of_pass, AMX_ROWS);
    const int64_t tile_rows = ceil_divided(rows_of_pass, num_tiles);
    begin_amx(tile_rows);
    for_blocks<Type>(num_rows, right, panels, [&](const Block<Type>& block) {
        // The processor itself fetches what is read without a pause.
        const int64_t next_bytes = num_tiles > 2 ? BLOCK_BYTES<Type> / num_tiles : 0;
        for (int64_t tile = 0; tile < num_tiles; tile++) {
            const int64_t first = block.rows.begin + tile * tile_rows;
            const int64_t from = std::min(first, block.rows.end - tile_rows);
            Sum(*sums)[VECTORS] = partial + tile * AMX_ROWS;
            add_products_by_amx<IS_INT8<Type>>(
                rows.row(from) + block.first_weight, rows.stride * sizeof(typename Type::RowElement), block.weights,
                block.num_weights / Type::NEIGHBORS, block.first_weight == 0, block.next() + tile * next_bytes,
                next_bytes, sums
            );
            for (int64_t row = first; block.is_last && row < from + tile_rows; row++)
                take_sums(row, block.panel, sums[row - from]);
        }
    });
    end_amx();
}
#endif

// The same with other types.
template <typename Type, typename Take>
inline void sums_in_registers(
    const Rows<Type>& rows, int64_t num_rows, const Matrix& right, Share panels, const Take& take_sums
) {
    using Sum = typename Type::Sum;
    Sum partial[ROWS_PER_PASS][VECTORS];  // sums of rows over the blocks so far
    // Additions to the same sum wait for each other, so a single row is multiplied by two panels at a time.
    for (; num_rows == 1 && panels.begin + 2 <= panels.end; panels.begin += 2) {
        Sum sums[1][2 * VECTORS] = {};
        const int64_t strip_size = right.depth * STRIP_COLUMNS;
        const auto* from = static_cast<const typename Type::Element*>(right.panels) + panels.begin * STRIPS * strip_size;
        const char* next = reinterpret_cast<const char*>(from) + BYTES_AHEAD;
        add_products<Type>(rows.row(0), rows.stride, from, strip_size, right.depth, next, strip_size * sizeof(*from), sums);
        take_sums(0, panels.begin, sums[0]);
        take_sums(0, panels.begin + 1, sums[0] + VECTORS);
    }
    for_blocks<Type>(num_rows, right, panels, [&](const Block<Type>& block) {
        const int64_t num_rows_of_block = block.rows.end - block.rows.begin, column = block.strip * STRIP_VECTORS;
        const int64_t next_bytes = BLOCK_BYTES<Type> * ROWS / (num_rows_of_block + ROWS - 1);
        const char* next = block.next();
        for_tiles(0, num_rows_of_block, [&](int64_t first, auto rows_of_tile) {
            constexpr int NUM_ROWS = decltype(rows_of_tile)::value;
            Sum sums[NUM_ROWS][STRIP_VECTORS];
            Sum(*so_far)[VECTORS] = partial + first;
            for (int r = 0; r < NUM_ROWS; r++)
                for (int v = 0; v < STRIP_VECTORS; v++)
                    sums[r][v] = block.first_weight == 0 ? Sum{} : so_far[r][column + v];
            const int64_t row = block.rows.begin + first;
            const auto* left = rows.row(row) + block.first_weight;
            add_products<Type>(left, rows.stride, block.weights, 0, block.num_weights, next, next_bytes, sums);
            next += next_bytes;
            for (int r = 0; r < NUM_ROWS; r++) {
                if (STRIPS > 1 || !block.is_last)
                    for (int v = 0; v < STRIP_VECTORS; v++) so_far[r][column + v] = sums[r][v];
                if (block.is_last) take_sums(row + r, block.panel, STRIPS > 1 ? so_far[r] : sums[r]);
            }
        });
    });
}

// Multiplies the first `num_rows` rows by panels, and calls `function(row, panel, products)` with the numbers of row and
// panel, and the four vectors of the panel.
template <typename Type, typename Function>
inline void for_products(
    const Rows<Type>& rows, int64_t num_rows, const Matrix& right, Share panels, const Function& function
) {
    const auto take_sums = [&](int64_t row, int64_t panel, const typename Type::Sum* sums) {
        Vector products[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            if constexpr (IS_INT8<Type>) {
                const int64_t column = panel * PANEL + v * LANES;
                // Nothing overflows in 65,536 rows of weights, MAX_SIZE in options.py: each adds up to 255 * 127.
                const Integers sum = sums[v] - ROW_OFFSET * load_integers(right.sums + column);
                const Vector scale = broadcast(rows.scales[row]) * load(right.scales + column);
                products[v] = __builtin_convertvector(sum, Vector) * scale;
            } else {
                products[v] = sums[v];
            }
        }
        function(row, panel, products);
    };
    if constexpr (USES_AMX<Type>) sums_by_amx(rows, num_rows, right, panels, take_sums);
    else sums_in_registers(rows, num_rows, right, panels, take_sums);
}

// Stores the four vectors of a panel in a row that is `width` columns wide, as far as the row reaches.
inline void store_panel(float* row, int64_t width, int64_t panel, const Vector* values) {
    for (int v = 0; v < VECTORS; v++) {
        const int64_t first = panel * PANEL + v * LANES;
        if (first < width) store_first(row + first, values[v], width - first);
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
