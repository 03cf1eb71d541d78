// Threads that share the work of one call.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Where threads wait for each other. They spin, as a step takes tens of microseconds. If that takes longer, another
// process may have the CPU that the last thread needs, so they sleep.
class Barrier {
  public:
    explicit Barrier(int num_threads) : num_threads_(num_threads) {}
    void wait() {
        if (num_threads_ == 1) return;
        const int round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            {
                const std::lock_guard<std::mutex> lock(mutex_);
                round_.store(round + 1, std::memory_order_release);
            }
            next_round_.notify_all();
            return;
        }
        for (int spins = 0; spins < MAX_SPINS; spins++) {
            if (round_.load(std::memory_order_acquire) != round) return;
            pause();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        next_round_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != round; });
    }

  private:
    // 40 to 200 microseconds on x86-64: about what it takes to sleep and to wake up.
    static constexpr int MAX_SPINS = 4096;

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
    std::mutex mutex_;
    std::condition_variable next_round_;
};

// A range of `total` pieces of work.
struct Share {
    int64_t begin, end;
};

// What one of several threads does.
inline Share share_of(int64_t total, int thread, int num_threads) {
    return {total * thread / num_threads, total * (thread + 1) / num_threads};
}

// Functions of the OpenMP library whose threads torch uses. Other threads would compete with these: they spin for some
// milliseconds after an operation of torch.
struct OpenMP {
    void (*parallel)(void (*function)(void*), void* data, unsigned num_threads, unsigned flags);
    int (*max_threads)();
    int (*team_size)();
    int (*thread_number)();
    pid_t process;
};
std::atomic<const OpenMP*> openmp{nullptr};

// As `in_threads`, in threads of OpenMP. Returns false, and calls nothing, if there are fewer than `num_threads`.
template <typename Function>
bool in_openmp_threads(int num_threads, const Function& function) {
    const OpenMP* const library = openmp;
    // In a forked process the threads are gone, which OpenMP does not know.
    if (library == nullptr || getpid() != library->process) return false;
    struct Call {
        const OpenMP& library;
        const Function& function;
        const int num_threads;
        std::atomic<bool> is_done;
    } call{*library, function, num_threads, {false}};
    const auto member = [](void* data) {
        Call& call = *static_cast<Call*>(data);
        const int thread = call.library.thread_number();
        if (call.library.team_size() < call.num_threads || thread >= call.num_threads) return;
        call.function(thread);
        call.is_done = true;
    };
    // As many as torch uses: a smaller team would end the others, to be started again for torch's next operation.
    library->parallel(member, &call, std::max(num_threads, library->max_threads()), 0);
    return call.is_done;
}

// Calls `function(thread)` in `num_threads` threads: in all of them or, if one cannot be started, in none, as threads
// wait for each other. `function` must not throw.
template <typename Function>
void in_threads(int num_threads, const Function& function) {
    if (num_threads == 1) return function(0);
    if (in_openmp_threads(num_threads, function)) return;
    std::vector<std::thread> others;
    bool is_complete = false;
    std::mutex starting;  // held until all threads are started, or one is not
    std::unique_lock<std::mutex> lock(starting);
    const auto join = [&] {
        lock.unlock();
        if (is_complete) function(0);
        for (std::thread& other : others) other.join();
    };
    try {
        for (int thread = 1; thread < num_threads; thread++)
            others.emplace_back([&starting, &is_complete, &function, thread] {
                { const std::lock_guard<std::mutex> wait(starting); }
                if (is_complete) function(thread);
            });
    } catch (...) {
        join();
        throw;
    }
    is_complete = true;
    join();
}

}  // namespace
