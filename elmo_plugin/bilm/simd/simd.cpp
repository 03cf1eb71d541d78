// The library that library.py loads: one source, compiled once for each vector unit by setup.py. Read vectors.h,
// products.h and lstm.h first, in this order; amx.h and threads.h can wait.

#include <exception>

#include "character_encoder.h"
#include "lstm.h"
#include "lstm_backward.h"

namespace {

// Calls `function` with the type whose weights have `weight_bytes` bytes. Returns 0, or 1 if memory or threads ran out.
template <typename Function>
int for_type(int weight_bytes, const Function& function) {
    try {
        if (weight_bytes == 4) function(Float32());
        else if (weight_bytes == 2) function(BFloat16());
        else function(Int8());
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

}  // namespace

extern "C" {

// Of the functions and structs of this library, and of the order of panels. Raise it here and in library.py whenever
// they change.
int abi_version() { return 9; }

// Columns of a panel, and of a strip: see `in_panels` in panels.py.
int panel_columns() { return PANEL; }
int strip_columns() { return STRIP_COLUMNS; }

// The depth of a matrix is a multiple of this.
int depth_multiple(int weight_bytes) {
    int multiple = 0;
    for_type(weight_bytes, [&](auto type) { multiple = DEPTH_MULTIPLE<decltype(type)>; });
    return multiple;
}

// The number of values of a trace for each token.
int trace_width(int cell_size) { return static_cast<int>(width_of_trace(cell_size)); }

// Sets the functions GOMP_parallel, omp_get_max_threads, omp_get_num_threads and omp_get_thread_num of the library
// whose threads torch uses. Without them, and in forked processes, each call starts threads. Several threads may call
// this, while others run layers with what was set before: that is never freed.
void use_openmp(void* parallel, void* max_threads, void* team_size, void* thread_number) {
    if (parallel == nullptr) {
        openmp = nullptr;
        return;
    }
    openmp = new OpenMP{reinterpret_cast<decltype(OpenMP::parallel)>(parallel),
                        reinterpret_cast<decltype(OpenMP::max_threads)>(max_threads),
                        reinterpret_cast<decltype(OpenMP::team_size)>(team_size),
                        reinterpret_cast<decltype(OpenMP::thread_number)>(thread_number), getpid()};
}

// The following functions return what `for_type` returns.

// `threads_per_run` divides `num_threads`.
int run_panel_layers(int weight_bytes, const Layer* layers, const Sequences* sequences, int num_runs, int num_threads,
                     int threads_per_run) {
    return for_type(weight_bytes, [=](auto type) {
        run_all<LSTMRun<decltype(type)>>(layers, sequences, num_runs, num_threads, threads_per_run);
    });
}

int run_panel_layers_backward(int weight_bytes, const Layer* layers, const BackwardSequences* sequences, int num_runs,
                              int num_threads, int threads_per_run) {
    return for_type(weight_bytes, [=](auto type) {
        if constexpr (!IS_INT8<decltype(type)>)  // nothing is trained in int8
            run_all<LSTMBackward<decltype(type)>>(layers, sequences, num_runs, num_threads, threads_per_run);
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
    return for_type(4, [=](auto) { write_maxima(*encoder, *words, *maxima, num_threads); });
}

int pool_words_backward(const Encoder* encoder, const Filters* filters, const Words* words, const Maxima* gradients,
                        float* embedding_gradients, int num_threads) {
    return for_type(4, [=](auto) {
        add_gradients_of_maxima(*encoder, filters, *words, *gradients, embedding_gradients, num_threads);
    });
}
}
