// The functions that Python calls (regard/decoding/cpu_engine.py).

#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>

#include "search.h"

using namespace regard;

namespace {

// What all searches of a process share. One computes at a time.
struct Shared {
    pid_t process = getpid();
    std::mutex in_use;
    std::unique_ptr<Threads> threads;

    Threads& threads_of(int count) {
        if (!threads || threads->count() != count) {
            threads.reset();
            threads.reset(new Threads(count));
        }
        return *threads;
    }
};

// A process that was forked gets its own. It has not inherited the threads of the other, and cannot end them.
Shared& shared() {
    static std::atomic<Shared*> current{nullptr};
    Shared* found = current.load();
    if (found && found->process == getpid()) return *found;
    Shared* created = new Shared;
    if (current.compare_exchange_strong(found, created)) return *created;
    delete created;
    return *found;
}

}  // namespace

extern "C" {

int64_t regard_network_size() { return sizeof(Network); }
int64_t regard_task_size() { return sizeof(Task); }

int64_t regard_packed_size(int32_t type, int32_t outputs, int32_t inputs) {
    return packed_size(static_cast<Type>(type), outputs, inputs);
}

void regard_pack(int32_t type, const float* matrix, int32_t outputs, int32_t inputs, void* packed, float* scales) {
    switch (static_cast<Type>(type)) {
        case Type::float32: return pack<Float32>(matrix, outputs, inputs, static_cast<float*>(packed), scales);
        case Type::bfloat16: return pack<Bfloat16>(matrix, outputs, inputs, static_cast<uint16_t*>(packed), scales);
        case Type::int8: return pack<Int8>(matrix, outputs, inputs, static_cast<uint8_t*>(packed), scales);
    }
}

// Read the sources and prompts. Null if there is not enough memory.
Search* regard_search_start(const Network* network, const Task* task, int32_t thread_count) {
    std::lock_guard<std::mutex> lock(shared().in_use);
    try {
        return new Search(*network, *task, shared().threads_of(thread_count));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

// Generate a token for each input; return the number of inputs that are not finished, or -1 without enough memory.
int32_t regard_search_step(Search* search, int32_t thread_count) {
    std::lock_guard<std::mutex> lock(shared().in_use);
    try {
        return search->step(shared().threads_of(thread_count));
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// Number of tokens of an input's finished hypothesis; -1 if there are not as many.
int32_t regard_search_length(const Search* search, int32_t input, int32_t number) {
    const auto& finished = search->finished(input);
    return number < static_cast<int32_t>(finished.size()) ? static_cast<int32_t>(finished[number].tokens.size()) : -1;
}

void regard_search_read(const Search* search, int32_t input, int32_t number, int32_t* tokens, float* scores) {
    const auto& hypothesis = search->finished(input)[number];
    std::copy(hypothesis.tokens.begin(), hypothesis.tokens.end(), tokens);
    scores[0] = hypothesis.score;
    scores[1] = hypothesis.penalised;
}

void regard_search_free(Search* search) { delete search; }
}
