// Threads that run one function together, with barriers inside it.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cutaway {

// ``run`` lets every thread, the caller included, execute a function of its index. Workers wait for the next one
// spinning for some microseconds, because steps follow each other closely, and then asleep.
class Pool {
   public:
    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return size_; }
    void run(const std::function<void(int)>& work);

    // Every thread waits until all have come.
    void barrier();

   private:
    void serve(int index);
    void stop();

    const int size_;
    const std::function<void(int)>* work_ = nullptr;
    std::atomic<uint64_t> generation_{0};
    std::atomic<int> num_done_{0};
    std::atomic<int> num_arrived_{0};
    std::atomic<uint64_t> phase_{0};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

}  // namespace cutaway
