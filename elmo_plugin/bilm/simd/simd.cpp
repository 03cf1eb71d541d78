// The library behind simd_kernel.py: one source, compiled once for each vector unit (see setup.py).

#include <exception>

#include "lstm.h"
#include "products.h"

namespace {

template <typename Type>
void multiply_all(const Matrix& matrix, const float* source, float* target, int64_t num_rows, int64_t depth,
                  int64_t num_outputs, int num_threads) {
    Rows<Type> rows;
    rows.resize(num_rows, depth);
    for (int64_t row = 0; row < num_rows; row++) cast_row(source + row * depth, depth, rows, row);
    in_threads(num_threads, [&](int thread) {
        const Share panels((num_outputs + PANEL - 1) / PANEL, thread, num_threads);
        for_products(rows, 0, num_rows, matrix, panels, [&](int64_t row, int64_t panel, const Vector* products) {
            for (int v = 0; v < VECTORS; v++) {
                const int64_t first = panel * PANEL + v * LANES;
                if (first >= num_outputs) break;
                store_first(target + row * num_outputs + first, products[v], num_outputs - first);
            }
        });
    });
}

// Calls `function` with the type whose weights have so many bytes.
template <typename Function>
int for_type(int weight_bytes, const Function& function) {
    try {
        switch (weight_bytes) {
            case 4: function(Float32()); return 0;
            case 2: function(BFloat16()); return 0;
            case 1: function(Int8()); return 0;
        }
    } catch (const std::exception&) {
        return 2;
    }
    return 1;
}

}  // namespace

extern "C" {

// Of the functions and structs that simd_kernel.py calls with. Raise it in both files whenever they change.
int abi_version() { return 2; }

// Numbers in a vector; a panel has four times as many columns.
int num_lanes() { return LANES; }

// These give 0, or what is wrong: 1 if there is no weight of so many bytes, 2 if memory or threads ran out.

int pack(int weight_bytes, const Plain* plain, const Packed* packed, int num_threads) {
    return for_type(weight_bytes, [=](auto type) { pack_matrix<decltype(type)>(*plain, *packed, num_threads); });
}

int run_linear(int weight_bytes, const Matrix* matrix, const float* rows, float* result, int64_t num_rows,
               int64_t depth, int64_t num_outputs, int num_threads) {
    return for_type(weight_bytes, [=](auto type) {
        multiply_all<decltype(type)>(*matrix, rows, result, num_rows, depth, num_outputs, num_threads);
    });
}

// `threads_per_run` divides `num_threads`.
int run_layers(int weight_bytes, const Layer* layers, const Sequences* sequences, int num_runs, int num_threads,
               int threads_per_run) {
    return for_type(weight_bytes, [=](auto type) {
        run_lstms<decltype(type)>(layers, sequences, num_runs, num_threads, threads_per_run);
    });
}
}
