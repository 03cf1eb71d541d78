// Threads that share the work of one call.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Where threads wait for each other. They spin, for a step takes tens of microseconds, but give way if others
// want the processor.
class Barrier {
  public:
    explicit Barrier(int num_threads) : num_threads_(num_threads) {}
    void wait() {
        if (num_threads_ == 1) return;
        const int round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
            if (spins < 4096) pause();
            else std::this_thread::yield();
        }
    }

  private:
    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    const int num_threads_;
    std::atomic<int> arrived_{0};
    std::atomic<int> round_{0};
};

// What one of several threads does of `total` pieces of work.
struct Share {
    int64_t begin, end;
    Share(int64_t total, int thread, int num_threads)
        : begin(total * thread / num_threads), end(total * (thread + 1) / num_threads) {}
};

// The OpenMP library whose threads torch uses. Other threads would compete with them: for some milliseconds after an
// operation of torch they stay awake and wait for the next.
struct OpenMP {
    void (*parallel)(void (*function)(void*), void* data, unsigned num_threads, unsigned flags) = nullptr;
    int (*max_threads)() = nullptr;
    int (*team_size)() = nullptr;
    int (*thread_number)() = nullptr;
    pid_t process = 0;
};
OpenMP openmp;

// As `in_threads`, in threads of OpenMP. False if there are not so many, and nothing was called.
template <typename Function>
bool in_openmp_threads(int num_threads, const Function& function) {
    // A forked process has OpenMP's notes about threads, but not the threads.
    if (openmp.parallel == nullptr || getpid() != openmp.process) return false;
    struct Call {
        const Function& function;
        const int num_threads;
        std::atomic<bool> is_done;
    } call{function, num_threads, {false}};
    const auto member = [](void* data) {
        Call& call = *static_cast<Call*>(data);
        const int thread = openmp.thread_number();
        if (openmp.team_size() < call.num_threads || thread >= call.num_threads) return;
        call.function(thread);
        call.is_done = true;
    };
    // All that torch uses: those that a team lacks would end, and be started again for torch's next operation.
    openmp.parallel(member, &call, std::max(num_threads, openmp.max_threads()), 0);
    return call.is_done;
}

// Calls `function(thread)` in so many threads, in all of them or in none: those that wait for each other must not
// wait for one that could not be started. `function` must not throw.
template <typename Function>
void in_threads(int num_threads, const Function& function) {
    if (num_threads == 1) return function(0);
    if (in_openmp_threads(num_threads, function)) return;
    enum { WAIT, GO, GIVE_UP };
    std::atomic<int> signal{WAIT};
    std::vector<std::thread> others;
    const auto join = [&](int value) {
        signal.store(value);
        if (value == GO) function(0);
        for (std::thread& other : others) other.join();
    };
    try {
        for (int thread = 1; thread < num_threads; thread++)
            others.emplace_back([&signal, &function, thread] {
                while (signal.load() == WAIT) std::this_thread::yield();
                if (signal.load() == GO) function(thread);
            });
    } catch (...) {
        join(GIVE_UP);
        throw;
    }
    join(GO);
}

// Makes a `Run` of each of several layers and their sequences, which do not depend on each other, with
// `threads_per_run` threads each. If there are more threads, several runs take place at a time.
template <typename Run, typename Layer, typename Sequences>
void run_all(const Layer* layers, const Sequences* sequences, int num_runs, int num_threads, int threads_per_run) {
    std::vector<std::unique_ptr<Run>> runs;
    for (int number = 0; number < num_runs; number++)
        runs.emplace_back(new Run(layers[number], sequences[number], threads_per_run));
    const int at_a_time = num_threads / threads_per_run;
    in_threads(num_threads, [&](int thread) {
        for (int number = thread / threads_per_run; number < num_runs; number += at_a_time)
            runs[number]->run(thread % threads_per_run);
    });
}

}  // namespace
