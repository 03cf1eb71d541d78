// The library that library.py loads: one source, compiled once for each vector unit (see setup.py).

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

// Of the functions and structs of this library. Raise it here and in library.py whenever they change.
int abi_version() { return 6; }

// Numbers in a vector; a panel has four times as many columns.
int num_lanes() { return LANES; }

// Gives the functions GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num of the library whose
// threads torch uses. Without them, and in forked processes, a call starts threads of its own.
void use_openmp(void* parallel, void* max_threads, void* team_size, void* thread_number) {
    openmp.parallel = reinterpret_cast<decltype(openmp.parallel)>(parallel);
    openmp.max_threads = reinterpret_cast<decltype(openmp.max_threads)>(max_threads);
    openmp.team_size = reinterpret_cast<decltype(openmp.team_size)>(team_size);
    openmp.thread_number = reinterpret_cast<decltype(openmp.thread_number)>(thread_number);
    openmp.process = getpid();
}

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

// For training, in float32.
int pool_words(const Encoder* encoder, const Words* words, const Maxima* maxima, int num_threads) {
    return for_type(4, [=](auto) { pool_words(*encoder, *words, *maxima, num_threads); });
}

int pool_words_backward(const float* embedding, int64_t embedding_dim, const Filters* filters,
                        int64_t num_convolutions, const Words* words, const MaximaGradients* gradients,
                        int num_threads) {
    return for_type(4, [=](auto) {
        pool_words_backward(embedding, embedding_dim, filters, num_convolutions, *words, *gradients, num_threads);
    });
}
}
