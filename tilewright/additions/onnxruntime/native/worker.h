// The compiler process, as the provider holds it: started once per process of onnxruntime, shared by all sessions.
//
// It is a process of its own, so that the provider works in programs without Python, needs no lock of an interpreter
// at run time, and an end of the compiler is an error of the session and not of the program.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "channel.h"
#include "texts.h"

extern char **environ;

namespace tw {

class Worker {
  public:
    // Starts the process and waits until it is ready. Throws Failure.
    Worker() : owner_(::getpid()) {
        int ends[2];
        pair(ends);
        control_ = std::make_unique<Channel>(ends[0]);
        int error = spawn(ends[1]);
        ::close(ends[1]);
        if (error)
            throw Failure{std::string("cannot start its compiler process ") + python_path() + ": " + std::strerror(error) +
                          "; tilewright.onnxruntime_library() makes a library for another Python"};
        exchange([](Channel &line) {
            line.send(HELLO, {});
            line.texts();
        });
    }

    // The process ends when its line does.
    ~Worker() {
        idle_.clear();
        control_.reset();
        if (::getpid() != owner_) return;
        for (int i = 0; i < 200; i++) {
            if (::waitpid(process_, nullptr, WNOHANG) != 0) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }

    pid_t process() const { return process_; }

    // Whether new sessions may use it.
    bool usable() {
        std::lock_guard<std::mutex> lock(mutex_);
        return !ended_ && ::getpid() == owner_;
    }

    // Runs `body` with a line that nobody else uses meanwhile. Throws Failure.
    template <class Body>
    void exchange(Body body) {
        if (::getpid() != owner_)
            throw Failure{"a session does not outlive a fork; make it in the process that runs it"};
        try {
            std::unique_ptr<Channel> line = take();
            try {
                body(*line);
            } catch (const Failure &) {  // the answer was read to its end
                give(std::move(line));
                throw;
            }
            give(std::move(line));
        } catch (const Closed &) {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
            throw Failure{"its compiler process (" + std::to_string(process_) + ") has ended; make the session again"};
        }
    }

    std::vector<std::string> ask(Request request, const std::vector<Blob> &blobs) {
        std::vector<std::string> found;
        exchange([&](Channel &line) {
            line.send(request, blobs);
            found = line.texts();
        });
        return found;
    }

  private:
    static void pair(int (&ends)[2]) {
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            throw Failure{std::string("cannot open a line to its compiler process: ") + std::strerror(errno)};
    }

    int spawn(int end) {
        static const char code[] =
            "import sys; sys.path.insert(0, sys.argv[1]); from tilewright.onnxruntime.worker import main; main()";
        const char *arguments[] = {python_path(), "-P", "-c", code, import_root(), nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, end, TW_LINE);
        int error = ::posix_spawn(&process_, python_path(), &actions, nullptr, const_cast<char **>(arguments), environ);
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }

    std::unique_ptr<Channel> take() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (ended_) throw Closed{};
        if (!idle_.empty()) {
            std::unique_ptr<Channel> found = std::move(idle_.back());
            idle_.pop_back();
            return found;
        }
        int ends[2];
        pair(ends);
        auto line = std::make_unique<Channel>(ends[0]);
        struct Close {
            int end;
            ~Close() { ::close(end); }
        } close{ends[1]};
        control_->pass(ends[1]);
        return line;
    }

    void give(std::unique_ptr<Channel> line) {
        std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(std::move(line));
    }

    pid_t owner_, process_ = -1;
    std::mutex mutex_;
    bool ended_ = false;
    std::unique_ptr<Channel> control_;
    std::vector<std::unique_ptr<Channel>> idle_;
};

}  // namespace tw
