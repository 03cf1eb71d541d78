// The library behind simd_kernel.py: one source, compiled once for each vector unit (see setup.py).

#include <exception>

#include "character_encoder.h"
#include "lstm.h"
#include "lstm_backward.h"
#include "products.h"

namespace {

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
int abi_version() { return 4; }

// Numbers in a vector; a panel has four times as many columns.
int num_lanes() { return LANES; }

// These give 0, or what is wrong: 1 if there is no weight of so many bytes, 2 if memory or threads ran out.

int pack(int weight_bytes, const Plain* plain, const Packed* packed, int num_threads) {
    return for_type(weight_bytes, [=](auto type) { pack_matrix<decltype(type)>(*plain, *packed, num_threads); });
}

// `threads_per_run` divides `num_threads`.
int run_layers(int weight_bytes, const Layer* layers, const Sequences* sequences, int num_runs, int num_threads,
               int threads_per_run) {
    return for_type(weight_bytes, [=](auto type) {
        run_all<LSTMRun<decltype(type)>>(layers, sequences, num_runs, num_threads, threads_per_run);
    });
}

// In float32, and in bfloat16 where it is multiplied as such.
int run_layers_backward(int weight_bytes, const BackwardLayer* layers, const BackwardSequences* sequences,
                        int num_runs, int num_threads, int threads_per_run) {
    return for_type(weight_bytes, [=](auto type) {
        using Type = decltype(type);
        if constexpr (!IS_INT8<Type>)
            run_all<LSTMBackward<Type>>(layers, sequences, num_runs, num_threads, threads_per_run);
    });
}

int encode_words(int weight_bytes, const Encoder* encoder, const Words* words, int num_threads) {
    return for_type(weight_bytes, [=](auto type) {
        EncoderRun<decltype(type)> run(*encoder, *words, num_threads);
        in_threads(num_threads, [&run](int thread) { run.run(thread); });
    });
}
}
