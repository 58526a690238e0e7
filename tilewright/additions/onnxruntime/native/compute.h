// A compiled subgraph, which onnxruntime calls as one node: inputs go to the compiler process, outputs come back.
#pragma once

#include "profile.h"
#include "worker.h"

namespace tw {

class Computation : public OrtNodeComputeInfo {
  public:
    // `handle` names the program in the compiler process, and is given back with this object.
    Computation(const Runtime &runtime, std::shared_ptr<Worker> worker, std::string handle, std::shared_ptr<Spans> spans)
        : r_(runtime), worker_(std::move(worker)), handle_(std::move(handle)), spans_(std::move(spans)) {
        CreateState = [](OrtNodeComputeInfo *self, OrtNodeComputeContext *, void **state) -> OrtStatus * {
            *state = self;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo *, void *state, OrtKernelContext *context) -> OrtStatus * {
            auto *self = static_cast<Computation *>(state);
            return self->r_.guarded([&] { self->run(context); });
        };
        ReleaseState = [](OrtNodeComputeInfo *, void *) {};
    }

    ~Computation() {
        try {
            worker_->ask(DROP, {handle_});
        } catch (...) {  // it has ended, and the program with it
        }
    }

  private:
    void run(OrtKernelContext *context) const {
        size_t count = r_.get(r_.api.KernelContext_GetInputCount, context);
        std::vector<std::string> heads(count);
        std::vector<Blob> blobs{handle_};
        for (size_t i = 0; i < count; i++) {
            const OrtValue *value = nullptr;
            const void *data = nullptr;
            size_t size = 0;
            r_.check(r_.api.KernelContext_GetInput(context, i, &value));
            heads[i] = head(value);
            r_.check(r_.api.GetTensorSizeInBytes(value, &size));
            r_.check(r_.api.GetTensorData(value, &data));
            blobs.emplace_back(heads[i]);
            blobs.emplace_back(data, size);
        }
        bool profiled = spans_->wanted();
        worker_->exchange([&](Channel &line) {
            auto start = Spans::Clock::now();
            line.send(profiled ? PROFILE : RUN, blobs);
            std::string steps = receive(line, context, profiled);
            if (profiled) spans_->add(start, steps);
        });
    }

    // Element type, rank and sizes of a tensor.
    std::string head(const OrtValue *value) const {
        OrtTensorTypeAndShapeInfo *info = nullptr;
        r_.check(r_.api.GetTensorTypeAndShape(value, &info));
        size_t rank = 0;
        int type = 0;
        OrtStatus *status = r_.api.GetTensorElementType(info, &type);
        if (!status) status = r_.api.GetDimensionsCount(info, &rank);
        std::vector<int64_t> words(1 + rank, type);
        if (!status && rank) status = r_.api.GetDimensions(info, words.data() + 1, rank);
        r_.api.ReleaseTensorTypeAndShapeInfo(info);
        r_.check(status);
        return std::string(reinterpret_cast<const char *>(words.data()), 8 * words.size());
    }

    // Outputs are read into onnxruntime's memory. What does not fit in breaks the line: the rest cannot be read.
    // Returns what follows them: with `profiled`, the steps and their times.
    std::string receive(Channel &line, OrtKernelContext *context, bool profiled) const {
        std::vector<uint64_t> sizes = line.answer();
        size_t count = r_.get(r_.api.KernelContext_GetOutputCount, context);
        if (sizes.size() != 2 * count + profiled) throw Closed{};
        for (size_t i = 0; i < count; i++) {
            std::vector<int64_t> words(sizes[2 * i] / 8);
            line.read(words.data(), 8 * words.size());
            OrtValue *value = nullptr;
            void *data = nullptr;
            size_t size = 0;
            OrtStatus *status = r_.api.KernelContext_GetOutput(context, i, words.data() + 1, words.size() - 1, &value);
            if (!status) status = r_.api.GetTensorSizeInBytes(value, &size);
            if (!status) status = r_.api.GetTensorMutableData(value, &data);
            if (status) r_.api.ReleaseStatus(status);
            if (status || words.empty() || size != sizes[2 * i + 1]) throw Closed{};
            line.read(data, size);
        }
        return profiled ? line.text(sizes.back()) : "";
    }

    const Runtime &r_;
    std::shared_ptr<Worker> worker_;
    std::string handle_;
    std::shared_ptr<Spans> spans_;
};

}  // namespace tw
