// Messages between the provider and the compiler process: a number, and blobs of bytes.
//
// On the line: u32 kind, u32 count, u64 size of each blob, then the blobs. An answer of kind ANSWER_ERROR has one blob,
// the reason. `worker.py` is the other end.
#pragma once

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "runtime.h"

namespace tw {

enum Request : uint32_t { HELLO = 1, CLAIM, COMPILE, LOAD, RUN, DROP, OPEN, PROFILE };
constexpr uint32_t ANSWER_OK = 0, MOST_BLOBS = 1 << 20;

struct Blob {
    const void *data;
    size_t size;
    Blob(const std::string &text) : data(text.data()), size(text.size()) {}
    Blob(const void *data, size_t size) : data(data), size(size) {}
};

// The other end is gone.
struct Closed {};

// One end of a line; closes it. At most one exchange at a time.
class Channel {
  public:
    explicit Channel(int line) : line_(line) {}
    ~Channel() { ::close(line_); }
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    void send(uint32_t kind, const std::vector<Blob> &blobs) {
        std::string head(8 + 8 * blobs.size(), '\0');
        uint32_t count = uint32_t(blobs.size());
        std::memcpy(&head[0], &kind, 4);
        std::memcpy(&head[4], &count, 4);
        for (size_t i = 0; i < blobs.size(); i++) {
            uint64_t size = blobs[i].size;
            std::memcpy(&head[8 + 8 * i], &size, 8);
        }
        write(head.data(), head.size());
        for (const Blob &blob : blobs) write(blob.data, blob.size);
    }

    // Sizes of the answer's blobs, which the caller then reads one after the other. Throws Failure with the other
    // end's reason, with nothing left on the line.
    std::vector<uint64_t> answer() {
        uint32_t head[2];
        read(head, sizeof head);
        if (head[1] > MOST_BLOBS) throw Closed{};
        std::vector<uint64_t> sizes(head[1]);
        read(sizes.data(), 8 * sizes.size());
        if (head[0] == ANSWER_OK) return sizes;
        std::string reason;
        for (uint64_t size : sizes) reason += text(size);
        throw Failure{reason};
    }

    std::string text(uint64_t size) {
        std::string found(size, '\0');
        read(&found[0], size);
        return found;
    }

    std::vector<std::string> texts() {
        std::vector<std::string> found;
        for (uint64_t size : answer()) found.push_back(text(size));
        return found;
    }

    void read(void *to, size_t size) {
        char *at = static_cast<char *>(to);
        while (size) {
            ssize_t got = ::recv(line_, at, size, 0);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) throw Closed{};
            at += got;
            size -= size_t(got);
        }
    }

    // Hands the other end of a new line over, which `worker.py` answers on from then on.
    void pass(int end) {
        char byte = 1;
        iovec part{&byte, 1};
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr *control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(control), &end, sizeof(int));
        ssize_t sent;
        do sent = ::sendmsg(line_, &message, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent != 1) throw Closed{};
    }

  private:
    void write(const void *from, size_t size) {
        const char *at = static_cast<const char *>(from);
        while (size) {
            ssize_t sent = ::send(line_, at, size, MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent <= 0) throw Closed{};
            at += sent;
            size -= size_t(sent);
        }
    }

    int line_;
};

}  // namespace tw
