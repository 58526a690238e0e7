// Spans of compiled programs in the profile of a session: its steps, as long as each took.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "runtime.h"

namespace tw {

// The spans of a session since its profile was begun. Any number of threads may add some.
class Spans {
  public:
    using Clock = std::chrono::steady_clock;

    bool wanted() {
        std::lock_guard<std::mutex> lock(mutex_);
        return wanted_;
    }

    // `since_ns`: how long the profile runs already.
    void begin(int64_t since_ns) {
        std::lock_guard<std::mutex> lock(mutex_);
        origin_ = Clock::now() - std::chrono::nanoseconds(since_ns);
        wanted_ = true;
        all_.clear();
    }

    // Steps of a program that started then: a line each, of microseconds since the start, of microseconds it took and
    // its name, with tabulators between them.
    void add(Clock::time_point start, const std::string &lines) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!wanted_) return;
        int64_t before = std::chrono::duration_cast<std::chrono::microseconds>(start - origin_).count();
        for (size_t at = 0; at < lines.size();) {
            size_t end = std::min(lines.find('\n', at), lines.size());
            size_t first = lines.find('\t', at), second = lines.find('\t', first + 1);
            if (first < second && second < end)
                all_.push_back({lines.substr(second + 1, end - second - 1), before + std::atoll(&lines[at]),
                                std::atoll(&lines[first + 1])});
            at = end + 1;
        }
    }

    // Hands all spans over to onnxruntime.
    void end(const Runtime &r, OrtProfilingEventsContainer *to) {
        std::vector<Span> all;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            wanted_ = false;
            all.swap(all_);
        }
        for (const Span &span : all) {
            OrtProfilingEvent *event = nullptr;
            r.check(r.profiling.CreateProfilingEvent(EVENT_KERNEL, -1, -1, span.name.c_str(), span.start_us,
                                                     span.duration_us, nullptr, nullptr, 0, &event));
            OrtStatus *status = r.profiling.ProfilingEventsContainer_AddEvents(to, &event, 1);
            r.profiling.ReleaseProfilingEvent(event);
            r.check(status);
        }
    }

  private:
    struct Span {
        std::string name;
        int64_t start_us, duration_us;
    };
    std::mutex mutex_;
    bool wanted_ = false;
    Clock::time_point origin_;
    std::vector<Span> all_;
};

// What onnxruntime tells when a profile begins and ends.
class Profiler : public OrtEpProfilerImpl {
  public:
    Profiler(const Runtime &runtime, std::shared_ptr<Spans> spans) : r_(runtime), spans_(std::move(spans)) {
        Release = [](OrtEpProfilerImpl *self) { delete static_cast<Profiler *>(self); };
        StartProfiling = [](OrtEpProfilerImpl *self, int64_t since_ns) -> OrtStatus * {
            static_cast<Profiler *>(self)->spans_->begin(since_ns);
            return nullptr;
        };
        EndProfiling = [](OrtEpProfilerImpl *self, OrtProfilingEventsContainer *to) {
            auto *it = static_cast<Profiler *>(self);
            return it->r_.guarded([&] { it->spans_->end(it->r_, to); });
        };
    }

  private:
    const Runtime &r_;
    std::shared_ptr<Spans> spans_;
};

}  // namespace tw
