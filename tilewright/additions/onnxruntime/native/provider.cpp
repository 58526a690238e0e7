// The execution provider: a factory, which onnxruntime makes when the library is registered, and an object per session.
#include <algorithm>
#include <atomic>
#include <deque>

#include "compute.h"
#include "context.h"
#include "graph.h"

namespace tw {
namespace {

// What became of the last sessions, for `tilewright.onnxruntime_report`: a JSON text each, oldest first.
class Reports {
  public:
    void add(const std::string &report) {
        std::lock_guard<std::mutex> lock(mutex_);
        all_.push_back(report);
        if (all_.size() > 16) all_.pop_front();
    }
    std::string all() {
        std::lock_guard<std::mutex> lock(mutex_);
        std::string found = "[";
        for (const std::string &report : all_) found += (found.size() > 1 ? "," : "") + report;
        return found + "]";
    }

  private:
    std::mutex mutex_;
    std::deque<std::string> all_;
} reports;

std::atomic<int> last_process{0};  // of the compiler

class Provider : public OrtEp {
  public:
    Provider(const Runtime &runtime, std::shared_ptr<Worker> worker, std::string options, ContextOptions contexts,
             const OrtLogger *logger)
        : r_(runtime), worker_(std::move(worker)), options_(std::move(options)), contexts_(runtime, std::move(contexts)),
          logger_(logger) {
        GetName = [](const OrtEp *) { return PROVIDER; };
        OrtEp::GetCapability = [](OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *found) {
            auto *it = static_cast<Provider *>(self);
            return it->r_.guarded([&] { it->claim(graph, found); });
        };
        OrtEp::Compile = [](OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                            OrtNodeComputeInfo **infos, OrtNode **contexts) {
            auto *it = static_cast<Provider *>(self);
            return it->r_.guarded([&] {
                for (size_t i = 0; i < count; i++) it->compile(graphs[i], fused[i], infos[i], contexts[i]);
            });
        };
        OrtEp::ReleaseNodeComputeInfos = [](OrtEp *, OrtNodeComputeInfo **infos, size_t count) {
            for (size_t i = 0; i < count; i++) delete static_cast<Computation *>(infos[i]);
        };
        if (r_.profiles) {
            version = PROFILING_VERSION;
            OrtEp::CreateProfiler = [](OrtEp *self, OrtEpProfilerImpl **made) {
                auto *it = static_cast<Provider *>(self);
                return it->r_.guarded([&] { *made = new Profiler(it->r_, it->spans_); });
            };
        }
        OrtEp::GetCompiledModelCompatibilityInfo = [](OrtEp *, const OrtGraph *) { return own_version(); };
    }

  private:
    // Tells onnxruntime which nodes to give away, and in which groups.
    void claim(const OrtGraph *graph, OrtEpGraphSupportInfo *found) {
        if (r_.get(r_.api.Graph_GetParentNode, graph) != nullptr) return;  // the body of an If or Loop
        std::vector<const OrtNode *> nodes = r_.list(r_.api.Graph_GetNumNodes, r_.api.Graph_GetNodes, graph);
        bool precompiled = false;
        for (const OrtNode *node : nodes)
            if (contexts_.is_ours(node)) {
                precompiled = true;
                fuse(found, {node});
            }
        if (precompiled || nodes.empty()) return;
        Model model = GraphWriter(r_).write(graph, r_.list(r_.api.Graph_GetNumInputs, r_.api.Graph_GetInputs, graph),
                                            r_.list(r_.api.Graph_GetNumOutputs, r_.api.Graph_GetOutputs, graph));
        if (model.given_away) return;  // a second look
        std::string left;
        for (const auto &[place, reason] : model.left) left += std::to_string(place) + "\t" + reason + "\n";
        std::vector<std::string> answer = worker_->ask(CLAIM, {options_, model.bytes, left, std::string(r_.shares ? "1" : "")});
        if (answer.size() < 2) throw Failure{"its compiler process gave an answer of another version"};
        reports.add(answer[0]);
        log(answer[1]);
        for (size_t i = 2; i < answer.size(); i++) {
            std::vector<const OrtNode *> group;
            for (size_t at = 0; at + 4 <= answer[i].size(); at += 4) {
                uint32_t place;
                std::memcpy(&place, &answer[i][at], 4);
                group.push_back(model.nodes.at(place));
            }
            fuse(found, group);
        }
    }

    void fuse(OrtEpGraphSupportInfo *found, const std::vector<const OrtNode *> &nodes) const {
        FusionOptions options{API_VERSION, true};  // the compiled program has the constants
        r_.check(r_.ep.EpGraphSupportInfo_AddNodesToFuse(found, nodes.data(), nodes.size(), &options));
    }

    // One line of the compiler's log per line of the session's; those that begin with ! are warnings.
    void log(const std::string &text) const {
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find('\n', at), text.size());
            bool warning = text[at] == '!';
            if (end > at) r_.log(logger_, warning ? LOG_WARNING : LOG_INFO, "Tilewright: " + text.substr(at + warning, end - at - warning));
            at = end + 1;
        }
    }

    void compile(const OrtGraph *graph, const OrtNode *fused, OrtNodeComputeInfo *&info, OrtNode *&context) const {
        std::vector<const OrtNode *> nodes = r_.list(r_.api.Graph_GetNumNodes, r_.api.Graph_GetNodes, graph);
        if (nodes.size() == 1 && contexts_.is_ours(nodes[0])) {
            auto [content, path] = contexts_.read(graph, nodes[0]);
            info = new Computation(r_, worker_, worker_->ask(LOAD, {options_, content, path}).at(0), spans_);
            return;
        }
        Model model = GraphWriter(r_).write(graph, r_.list(r_.api.Node_GetNumInputs, r_.api.Node_GetInputs, fused),
                                            r_.list(r_.api.Node_GetNumOutputs, r_.api.Node_GetOutputs, fused));
        bool write = contexts_.options().write;
        std::vector<std::string> answer = worker_->ask(COMPILE, {options_, model.bytes, std::string(write ? "1" : "")});
        info = new Computation(r_, worker_, answer.at(0), spans_);
        if (write) context = contexts_.node(graph, fused, answer.at(1));
    }

    const Runtime &r_;
    std::shared_ptr<Worker> worker_;
    std::string options_;
    Contexts contexts_;
    const OrtLogger *logger_;
    std::shared_ptr<Spans> spans_ = std::make_shared<Spans>();
};

class Factory : public OrtEpFactory {
  public:
    explicit Factory(const Runtime &runtime) : r_(runtime) {
        worker();  // a process that cannot be started is an error here
        GetName = [](const OrtEpFactory *) { return PROVIDER; };
        GetVendor = [](const OrtEpFactory *) { return "Tilewright"; };
        GetVendorId = [](const OrtEpFactory *) { return uint32_t(0); };
        GetVersion = [](const OrtEpFactory *) { return own_version(); };
        OrtEpFactory::GetSupportedDevices = [](OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count,
                                               OrtEpDevice **found, size_t most, size_t *number) {
            auto *it = static_cast<Factory *>(self);
            return it->r_.guarded([&] { it->devices(devices, count, found, most, *number); });
        };
        OrtEpFactory::CreateEp = [](OrtEpFactory *self, const OrtHardwareDevice *const *, const OrtKeyValuePairs *const *,
                                    size_t, const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **made) {
            auto *it = static_cast<Factory *>(self);
            return it->r_.guarded([&] { *made = it->provider(options, logger); });
        };
        OrtEpFactory::ReleaseEp = [](OrtEpFactory *, OrtEp *provider) { delete static_cast<Provider *>(provider); };
        OrtEpFactory::ValidateCompiledModelCompatibilityInfo = [](OrtEpFactory *, const OrtHardwareDevice *const *, size_t,
                                                                  const char *info, int *found) -> OrtStatus * {
            *found = std::string(info) == own_version() ? OPTIMAL : UNSUPPORTED;
            return nullptr;
        };
        // Tensors stay in memory of the CPU.
        OrtEpFactory::CreateAllocator = [](OrtEpFactory *, const void *, const OrtKeyValuePairs *, void **made) -> OrtStatus * {
            *made = nullptr;
            return nullptr;
        };
        OrtEpFactory::ReleaseAllocator = [](OrtEpFactory *, void *) {};
        OrtEpFactory::CreateDataTransfer = [](OrtEpFactory *, void **made) -> OrtStatus * {
            *made = nullptr;
            return nullptr;
        };
        OrtEpFactory::IsStreamAware = [](const OrtEpFactory *) { return false; };
        OrtEpFactory::CreateSyncStreamForDevice = [](OrtEpFactory *, const void *, const OrtKeyValuePairs *, void **made) -> OrtStatus * {
            *made = nullptr;
            return nullptr;
        };
    }

  private:
    // The CPU stands for every device: simulators run on it, boards and servers hang off it, and versions before 1.24
    // know no others.
    void devices(const OrtHardwareDevice *const *devices, size_t count, OrtEpDevice **found, size_t most, size_t &number) {
        number = 0;
        for (size_t i = 0; i < count && number < most; i++) {
            if (r_.api.HardwareDevice_Type(devices[i]) != HARDWARE_CPU) continue;
            OrtEpDevice *device = nullptr;
            r_.check(r_.ep.CreateEpDevice(this, devices[i], nullptr, nullptr, &device));
            found[number++] = device;
        }
    }

    OrtEp *provider(const OrtSessionOptions *options, const OrtLogger *logger) {
        OrtKeyValuePairs *pairs = nullptr;
        r_.check(r_.api.GetSessionOptionsConfigEntries(options, &pairs));
        const char *const *keys = nullptr, *const *values = nullptr;
        size_t count = 0;
        r_.api.GetKeyValuePairs(pairs, &keys, &values, &count);
        std::string prefix = std::string("ep.") + PROVIDER + ".", own;
        std::transform(prefix.begin(), prefix.end(), prefix.begin(), [](unsigned char c) { return char(std::tolower(c)); });
        ContextOptions contexts;
        for (size_t i = 0; i < count; i++) {
            std::string key = keys[i], value = values[i];
            if (key.compare(0, prefix.size(), prefix) == 0) own += key.substr(prefix.size()) + "\t" + value + "\n";
            if (key == "ep.context_enable") contexts.write = value == "1";
            if (key == "ep.context_embed_mode") contexts.embed = value == "1";
            if (key == "ep.context_file_path") contexts.path = value;
        }
        r_.api.ReleaseKeyValuePairs(pairs);
        std::shared_ptr<Worker> running = worker();
        running->ask(OPEN, {own});
        return new Provider(r_, running, own, contexts, logger);
    }

    // The compiler process; a new one if the last has ended.
    std::shared_ptr<Worker> worker() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!worker_ || !worker_->usable()) {
            worker_ = std::make_shared<Worker>();
            last_process = worker_->process();
        }
        return worker_;
    }

    const Runtime &r_;
    std::mutex mutex_;
    std::shared_ptr<Worker> worker_;
};

}  // namespace
}  // namespace tw

#define TW_EXPORT extern "C" __attribute__((visibility("default")))

TW_EXPORT OrtStatus *CreateEpFactories(const char *, const tw::OrtApiBase *base, const OrtLogger *, OrtEpFactory **made,
                                       size_t most, size_t *count) {
    *count = 0;
    const tw::Runtime *runtime;
    try {
        static const tw::Runtime found(*base);  // sessions refer to it
        runtime = &found;
    } catch (const tw::Failure &failure) {
        tw::Table oldest = base->GetApi(1);  // whose first function makes a status, in every version
        return reinterpret_cast<OrtStatus *(*)(int, const char *)>(oldest[0])(failure.code, failure.message.c_str());
    }
    return runtime->guarded([&] {
        if (most < 1) throw tw::Failure{"onnxruntime left no room for a factory"};
        made[0] = new tw::Factory(*runtime);
        *count = 1;
    });
}

TW_EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
    delete static_cast<tw::Factory *>(factory);
    return nullptr;
}

// The reports of the last sessions as JSON; how many bytes that are, of which at most `size` are written.
TW_EXPORT size_t tilewright_reports(char *to, size_t size) {
    std::string found = tw::reports.all();
    std::memcpy(to, found.data(), std::min(size, found.size()));
    return found.size();
}

// The compiler process started last, 0 before the first.
TW_EXPORT int tilewright_process() { return tw::last_process; }
