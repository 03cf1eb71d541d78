// Products by the tiles of Intel's AMX: registers of up to 16 rows of 64 bytes.

#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

constexpr int AMX_ROWS = 16;
constexpr int64_t AMX_ROW_BYTES = 64;

#if defined(__AMX_TILE__)
constexpr bool HAS_AMX = true;

// To be called by a thread before its products of `num_rows` rows at a time, up to 16. After them it calls `end_amx`.
inline void begin_amx(int num_rows) {
    struct alignas(64) {
        uint8_t palette = 1, first_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } configuration;
    for (int tile = 0; tile < 8; tile++) {
        configuration.row_bytes[tile] = AMX_ROW_BYTES;
        // Tiles 0 to 3 have sums, 4 has left rows, the others weights.
        configuration.rows[tile] = tile < 5 ? num_rows : AMX_ROWS;
    }
    // What was written before is in memory when tiles read it, which the compiler does not see; nor, before GCC 14,
    // that all of the configuration is read.
    asm volatile("" : : "r"(&configuration) : "memory");
    _tile_loadconfig(&configuration);
}

inline void end_amx() { _tile_release(); }

// Adds to four tiles of sums, four vectors for each row, the products of rows, `row_bytes` apart, and weights: `depth`
// times the neighbors of four vectors. That is 64 bytes of each row for every 16 of these. Weights from `next` on are
// fetched meanwhile, `next_bytes` of them.
template <bool ARE_INTEGERS>
inline void add_products_by_amx(
    const void* rows, int64_t row_bytes, const void* weights, int64_t depth, bool is_first, const char* next,
    int64_t next_bytes, void* sums
) {
    constexpr int64_t FOUR_VECTORS = 4 * AMX_ROW_BYTES;
    const int64_t step = next_bytes * AMX_ROWS / depth;
    char* const sum = static_cast<char*>(sums);
    if (is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sum, FOUR_VECTORS);
        _tile_loadd(1, sum + AMX_ROW_BYTES, FOUR_VECTORS);
        _tile_loadd(2, sum + 2 * AMX_ROW_BYTES, FOUR_VECTORS);
        _tile_loadd(3, sum + 3 * AMX_ROW_BYTES, FOUR_VECTORS);
    }
    const char* left = static_cast<const char*>(rows);
    const char* right = static_cast<const char*>(weights);
    for (int64_t count = depth / AMX_ROWS; count > 0; count--) {
        _tile_loadd(4, left, row_bytes);
        _tile_loadd(5, right, FOUR_VECTORS);
        _tile_loadd(6, right + AMX_ROW_BYTES, FOUR_VECTORS);
        _tile_loadd(7, right + 2 * AMX_ROW_BYTES, FOUR_VECTORS);
        for (int64_t byte = 0; byte < step; byte += 64) __builtin_prefetch(next + byte, 0, 2);
        // Rows of int8 are unsigned.
        if constexpr (ARE_INTEGERS) {
            _tile_dpbusd(0, 4, 5);
            _tile_dpbusd(1, 4, 6);
            _tile_dpbusd(2, 4, 7);
        } else {
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 6);
            _tile_dpbf16ps(2, 4, 7);
        }
        _tile_loadd(5, right + 3 * AMX_ROW_BYTES, FOUR_VECTORS);
        if constexpr (ARE_INTEGERS) _tile_dpbusd(3, 4, 5);
        else _tile_dpbf16ps(3, 4, 5);
        left += AMX_ROW_BYTES;
        right += AMX_ROWS * FOUR_VECTORS;
        next += step;
    }
    _tile_stored(0, sum, FOUR_VECTORS);
    _tile_stored(1, sum + AMX_ROW_BYTES, FOUR_VECTORS);
    _tile_stored(2, sum + 2 * AMX_ROW_BYTES, FOUR_VECTORS);
    _tile_stored(3, sum + 3 * AMX_ROW_BYTES, FOUR_VECTORS);
}
#else
constexpr bool HAS_AMX = false;
#endif

}  // namespace
