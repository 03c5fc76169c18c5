// A pool of threads that share numbered tasks.
//
// Each thread takes the next task when it is ready, and the caller takes part. A thread that the system does not run
// (the machine may be busy) therefore delays nothing: the others take its tasks. A parallel loop of OpenMP would wait
// for every thread to arrive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace regard {

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Threads {
  public:
    explicit Threads(int count) {
        for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
    }

    ~Threads() {
        stopping_.store(true);
        wake();
        for (auto& worker : workers_) worker.join();
    }

    int count() const { return static_cast<int>(workers_.size()) + 1; }

    // Call task(i) for each i in [0, tasks), and return when all have finished.
    template <class Task>
    void run(int tasks, const Task& task) {
        if (tasks <= 1 || workers_.empty()) {
            for (int i = 0; i < tasks; ++i) task(i);
            return;
        }
        ++generation_;
        Job& job = jobs_[generation_ % JOBS];
        void (*call)(const void*, int) = [](const void* body, int i) { (*static_cast<const Task*>(body))(i); };
        job.call.store(call, std::memory_order_relaxed);
        job.body.store(&task, std::memory_order_relaxed);
        job.tasks.store(tasks, std::memory_order_relaxed);
        finished_.store(0, std::memory_order_relaxed);
        next_.store(generation_ << 32);
        if (sleeping_.load() > 0) wake();
        take_tasks(generation_);
        for (int waited = 0; finished_.load(std::memory_order_acquire) < tasks; ++waited) {
            pause_core();
            if (waited % 1024 == 1023) std::this_thread::yield();  // to the thread that has the last task
        }
    }

  private:
    static constexpr uint64_t JOBS = 8;
    static constexpr int SPINS = 4000;  // about 50 µs, longer than a search needs between two parallel loops

    struct Job {
        std::atomic<void (*)(const void*, int)> call{nullptr};
        std::atomic<const void*> body{nullptr};
        std::atomic<int> tasks{0};
    };

    // Take tasks of this generation until there are none left. The generation is part of the counter: a late thread
    // can never take a task of another loop than the one it has read.
    void take_tasks(uint64_t generation) {
        const Job& job = jobs_[generation % JOBS];
        uint64_t next = next_.load();
        while (next >> 32 == (generation & 0xffffffff)) {
            auto call = job.call.load(std::memory_order_relaxed);
            auto body = job.body.load(std::memory_order_relaxed);
            int index = static_cast<int>(next & 0xffffffff);
            if (index >= job.tasks.load(std::memory_order_relaxed)) return;
            if (!next_.compare_exchange_weak(next, next + 1)) continue;
            call(body, index);
            finished_.fetch_add(1, std::memory_order_release);
            next = next_.load();
        }
    }

    void work() {
        uint64_t seen = 0;
        while (!stopping_.load(std::memory_order_relaxed)) {
            int spins = 0;
            while (next_.load(std::memory_order_acquire) >> 32 == seen && spins < SPINS) {
                pause_core();
                ++spins;
            }
            if (next_.load() >> 32 == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                sleeping_.fetch_add(1);
                condition_.wait(lock, [&] { return stopping_.load() || next_.load() >> 32 != seen; });
                sleeping_.fetch_sub(1);
            }
            seen = next_.load() >> 32;
            take_tasks(seen);
        }
    }

    void wake() {
        std::lock_guard<std::mutex> lock(mutex_);
        condition_.notify_all();
    }

    std::vector<std::thread> workers_;
    uint64_t generation_ = 0;
    Job jobs_[JOBS];
    std::atomic<uint64_t> next_{0};  // generation << 32 | number of the next task
    std::atomic<int> finished_{0};
    std::atomic<int> sleeping_{0};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable condition_;
};

}  // namespace regard
