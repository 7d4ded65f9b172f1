#include "pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cutaway {
namespace {

constexpr int kSpinsBeforeYield = 100;
constexpr int kSpinsBeforeSleep = 40000;

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// Waits until a condition holds; gives the processor away when that takes long, since others may need it to get there.
template <typename Condition>
void spin_until(Condition condition) {
    for (int spins = 0; !condition(); ++spins) {
        if (spins < kSpinsBeforeYield)
            pause();
        else
            std::this_thread::yield();
    }
}

}  // namespace

Pool::Pool(int num_threads) : size_(num_threads) {
    try {
        for (int index = 1; index < size_; ++index) threads_.emplace_back([this, index] { serve(index); });
    } catch (...) {
        stop();  // those that did start
        throw;
    }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int)>& work) {
    work_ = &work;
    num_done_.store(0);
    {
        std::lock_guard<std::mutex> lock(mutex_);  // a worker between its last look and its sleep would miss it
        generation_.fetch_add(1);
    }
    wake_.notify_all();
    work(0);
    spin_until([this] { return num_done_.load(std::memory_order_acquire) == size_ - 1; });
}

void Pool::barrier() {
    const uint64_t phase = phase_.load(std::memory_order_acquire);
    if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
        num_arrived_.store(0, std::memory_order_relaxed);
        phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    spin_until([this, phase] { return phase_.load(std::memory_order_acquire) != phase; });
}

void Pool::serve(int index) {
    uint64_t seen = 0;
    while (true) {
        for (int spins = 0; spins < kSpinsBeforeSleep && generation_.load(std::memory_order_acquire) == seen; ++spins)
            pause();
        if (generation_.load(std::memory_order_acquire) == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [this, seen] { return generation_.load() != seen; });
        }
        ++seen;
        if (stopping_) return;
        (*work_)(index);
        num_done_.fetch_add(1, std::memory_order_release);
    }
}

}  // namespace cutaway
